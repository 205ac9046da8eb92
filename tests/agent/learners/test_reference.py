"""The update and its plain transcription (benchmarks/reference.py) agree: metrics, rewards and
every weight."""

import pytest
import torch

from benchmarks.cost import updater
from benchmarks.reference import Reference
from replay_buffer import Batch
from utils import Streams, weights

# Every skill is in every batch: production measures the accuracy of CPC against all skills, the
# reference its batch's.
SIZES = [("preset=smoke", "skill_dim=4"), ("preset=cpu", "learner.batch_size=160")]


@pytest.fixture(params=[torch.float64, torch.float32], ids=["double", "single"])
def dtype(request):
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


def weights_of(reference):
    """The reference's weights and running moments under the production names."""
    parts = {
        "objective": {
            "contrast.embed": reference.embed,
            "contrast.head": reference.head,
            "encoder.state": reference.state,
            "encoder.predict": reference.predict,
            "encoder.skill": reference.skill,
            "rnd.predictor": reference.predictor,
            "rnd.target": reference.frozen,
        },
        "learner": {
            "actor.trunk": reference.actor[0],
            "actor.head": reference.actor[1],
            "critic": reference.critic,
            "target": reference.target,
        },
    }
    found = {
        owner: {
            f"{name}.{key}": value
            for name, module in modules.items()
            for key, value in module.state_dict().items()
        }
        for owner, modules in parts.items()
    }
    found["objective"]["contrast.log_metric"] = reference.log_metric.detach()
    for name, moments in (("entropy", reference.distances), ("rnd", reference.errors)):
        found["objective"] |= {
            f"{name}.moments.mean": moments.mean,
            f"{name}.moments.var": moments.var,
            f"{name}.moments.count": torch.full((1,), moments.count),
        }
    return found


class Watched:
    """An updater whose batches and rewards can be looked at."""

    def __init__(self, *overrides, dtype):
        self.update = updater("amped", *overrides)
        memory, objective = self.update.memory, self.update.objective
        sample, rewards = memory.sample, objective.rewards

        def watched_sample(size):
            self.batch = Batch(*(field.to(dtype) for field in sample(size)))
            return self.batch

        def watched_rewards(batch):
            self.rewards, parts = rewards(batch)
            return self.rewards, parts

        memory.sample, objective.rewards = watched_sample, watched_rewards


@pytest.mark.parametrize("size", SIZES, ids=" ".join)
def test_the_update_is_its_plain_transcription(dtype, size):
    watched = Watched(*size, dtype=dtype)
    learner, objective = watched.update.learner, watched.update.objective
    plain = Reference(learner, objective, Streams(0))
    precision = (
        dict(rtol=1e-9, atol=1e-11) if dtype == torch.float64 else dict(rtol=2e-3, atol=1e-4)
    )
    conflicts = 0
    for _ in range(5):
        metrics = watched.update()
        del metrics["actor/saturated"]  # a diagnosis of ours, no part of the update
        expected, rewards = plain.update(watched.batch)
        conflicts += expected["surgery/conflict"].item()
        torch.testing.assert_close(metrics, expected, check_dtype=False, **precision)
        torch.testing.assert_close(watched.rewards, rewards, **precision)
        for owner, values in weights_of(plain).items():
            found = weights(getattr(watched.update, owner))
            assert found.keys() == values.keys()
            if dtype == torch.float64:
                torch.testing.assert_close(dict(found), values, rtol=1e-7, atol=1e-9)
            else:  # where a gradient is zero but for rounding, as of a bias that moves all features alike, Adam steps
                apart = torch.cat([(found[k] - v).abs().flatten() for k, v in values.items()])
                assert apart.max() < 1e-2 and apart.quantile(0.99) < 1e-4
    assert conflicts > 0  # the surgery had something to do

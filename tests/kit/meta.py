"""The device `meta`, which has shapes and no values, and a guard that refuses any other.

What learns here waits for no device inside an update, and would run on a GPU.
"""

from types import SimpleNamespace
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agent.skills.sources import SkillSpace
from replay_buffer import Batch
from run.build import make_learner, make_objective
from run.seeing import render_settings
from utils import Streams

WALKER = SimpleNamespace(obs_dim=24, action_dim=6)


class HostTensor(AssertionError):
    """An operation took or gave a tensor that is not on `meta`."""


class OnlyMeta(TorchDispatchMode):
    """Refuses every operation that takes or gives a tensor outside `meta`.

    0-d tensors inside an optimiser's step are exempt: Adam keeps its own count of steps on the
    host.
    """

    def __init__(self):
        super().__init__()
        self.in_step, self.operations = False, 0

    def __enter__(self):
        def mark(inside):
            def hook(*_):
                self.in_step = inside

            return hook

        self.hooks = [
            register_optimizer_step_pre_hook(mark(True)),
            register_optimizer_step_post_hook(mark(False)),
        ]
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        for leaf in tree_leaves((args, kwargs, result)):
            if (
                isinstance(leaf, torch.Tensor)
                and leaf.device.type != "meta"
                and not self.exempt(leaf)
            ):
                raise HostTensor(
                    f"{function}: a tensor of shape {tuple(leaf.shape)} on {leaf.device}"
                )
        return result

    def exempt(self, tensor):
        return tensor.ndim == 0 and self.in_step


class MetaMemory:
    """A memory whose batches have shapes and no values."""

    def __init__(self, skill_dim, picture=None):
        self.skill_dim, self.picture = skill_dim, picture  # shape of a picture, with pixels

    def __len__(self):
        return 1

    def sample(self, batch_size):
        dims = {
            "obs": WALKER.obs_dim,
            "action": WALKER.action_dim,
            "reward": 1,
            "discount": 1,
            "next_obs": WALKER.obs_dim,
            "skill": self.skill_dim,
            "next_obs_1": WALKER.obs_dim,
        }
        batch = Batch(
            **{name: torch.empty(batch_size, dim, device="meta") for name, dim in dims.items()}
        )
        if self.picture is None:
            return batch
        seen = torch.empty(batch_size, *self.picture, dtype=torch.uint8, device="meta")
        return batch._replace(obs=seen, next_obs=seen.clone(), next_obs_1=seen.clone())


def build(config: dict[str, Any]):
    """Objective, learner and memory of a run on `meta`."""
    rng = Streams(config["seed"], "meta")
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    with torch.device("meta"):
        objective = make_objective(config, WALKER, space.dim, rng)
        learner = make_learner(config, WALKER, space.dim, objective.streams, rng)
    render = render_settings(config)
    return objective, learner, MetaMemory(space.dim, None if render is None else render.shape)


def learn(objective, learner, memory, step=0):
    """Outside of any `torch.device`: what `learn` makes, it must put on the device itself."""
    with OnlyMeta() as guard:
        metrics = learner.learn(memory, objective, step)
    assert guard.operations > 100
    return metrics


def assert_scalars_on_meta(metrics: dict[str, torch.Tensor]) -> None:
    """Metrics are numbers that stayed on the device and carry no gradient."""
    for name, value in metrics.items():
        assert value.device.type == "meta" and value.ndim == 0 and not value.requires_grad, name


def learn_twice(objective, learner, memory) -> list[dict[str, torch.Tensor]]:
    """Metrics of two whole updates that never leave the device; the second finds optimisers that
    have a state."""
    found = [learn(objective, learner, memory, step) for step in (0, 2)]
    for metrics in found:
        assert_scalars_on_meta(metrics)
    assert {
        t.device.type for m in (objective, learner) for t in (*m.parameters(), *m.buffers())
    } == {"meta"}
    return found

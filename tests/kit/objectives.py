"""Helpers for the tests of single methods: objectives from the real config, batches, and what every
method owes."""

import copy
import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.base import Objective
from agent.skills.sources import SkillSpace
from replay_buffer import Batch
from run.build import make_objective
from tests.kit import meta
from tests.kit.configs import composed
from utils import Streams, UserError

torch.set_num_threads(1)
ENV = SimpleNamespace(obs_dim=4, action_dim=2)
SIZE, SKILLS = 24, 4


def make(agent: str, *overrides: str, seed: int = 0) -> Objective:
    """The method's objective for 4-d states and 2-d actions; skill_dim=... among the overrides
    where it matters."""
    config = composed("pretrain", f"agent={agent}", "preset=smoke", *overrides)
    torch.manual_seed(seed)
    dim = SkillSpace(config["agent"]["skill_space"], config["skill_dim"]).dim
    return make_objective(config, ENV, dim, Streams(seed))


def make_batch(
    size: int = SIZE,
    skills: int = SKILLS,
    seed: int = 0,
    obs_dim: int = ENV.obs_dim,
    action_dim: int = ENV.action_dim,
    kind: str = "one_hot",
) -> Batch:
    """Random transitions, actions inside (-1, 1); `kind` is the skill space, `skills` its
    dimension."""
    rng = torch.Generator().manual_seed(seed)
    obs, action, reward, discount, next_obs, next_obs_1 = (
        torch.randn(size, d, generator=rng) for d in (obs_dim, action_dim, 1, 1, obs_dim, obs_dim)
    )
    if kind == "one_hot":
        skill = F.one_hot(torch.randint(skills, (size,), generator=rng), skills).float()
    elif kind == "cube":
        skill = torch.rand(size, skills, generator=rng)
    else:
        skill = torch.randn(size, 0 if kind == "none" else skills, generator=rng)
        skill = F.normalize(skill, dim=1) if kind == "sphere" else skill
    return Batch(
        obs, torch.tanh(action), reward, torch.sigmoid(discount), next_obs, skill, next_obs_1
    )


def array(x: torch.Tensor) -> np.ndarray:
    return x.detach().double().numpy()


def close(actual: torch.Tensor, expected, rtol: float = 2e-4, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(
        array(actual), np.asarray(expected, np.float64), rtol=rtol, atol=atol
    )


class Fixed(torch.nn.Module):
    """Stands in for a network whose output is known."""

    def __init__(self, output):
        super().__init__()
        self.output = output if isinstance(output, tuple) else torch.as_tensor(output)

    def forward(self, *_):
        return self.output


def silence(*nets: torch.nn.Module) -> None:
    """Networks whose output is zero from now on."""
    for net in nets:
        for parameter in net.parameters():
            torch.nn.init.zeros_(parameter)


def assert_rewards_are_sound(objective: Objective, **batch) -> None:
    """Streams as named, each a finite column that differs between rows and has no gradient; metrics
    are scalars."""
    for seed in range(4):
        data = make_batch(seed=seed, **batch)
        metrics = objective.update(data)
        streams, parts = objective.rewards(data)
        assert tuple(streams) == objective.streams
        for reward in streams.values():
            assert (
                reward.shape == (len(data.obs), 1)
                and reward.isfinite().all()
                and not reward.requires_grad
            )
            assert reward.std() > 0
        for name, value in (metrics | parts).items():
            assert value.ndim == 0 and value.isfinite() and not value.requires_grad, name


def advance(objective: Objective, seeds, **batch) -> torch.Tensor:
    """Rewards of a few updates, one batch per seed: (updates, B, streams)."""
    rewards = []
    for seed in seeds:
        data = make_batch(seed=seed, **batch)
        for remaining in reversed(range(objective.batches_per_update)):
            objective.update(data, final=remaining == 0)
        rewards.append(torch.cat(list(objective.rewards(data)[0].values()), 1))
    return torch.stack(rewards)


def assert_state_round_trip(agent: str, *overrides: str, **batch) -> None:
    """A loaded objective goes on as if it had never stopped; a fresh one does not."""
    original, other = make(agent, *overrides), make(agent, *overrides, seed=1)
    advance(original, range(3), **batch)
    file = io.BytesIO()
    torch.save(original.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    if original.generator is not None:  # travels with the run's streams
        other.generator.set_state(original.generator.get_state())
    fresh = make(agent, *overrides, seed=1)
    expected = advance(original, range(3, 6), **batch)
    assert torch.equal(advance(other, range(3, 6), **batch), expected)
    assert not torch.equal(advance(fresh, range(3, 6), **batch), expected)


def assert_updates_lower(objective: Objective, *losses: str, updates: int = 60, **batch) -> None:
    """Repeated updates on one batch lower the named losses."""
    data = make_batch(**batch)
    first = objective.update(data)
    for _ in range(updates):
        last = objective.update(data)
    for name in losses:
        assert last[name] < first[name], name


def depends_on(objective: Objective, stream: str, **batch) -> set[str]:
    """The fields of a batch that a stream reads."""
    data, found = make_batch(**batch), set()

    def reward(data):
        probe = copy.deepcopy(objective)
        if objective.generator is not None:
            probe.generator.set_state(objective.generator.get_state())
        return probe.rewards(data)[0][stream]

    for field in data._fields:
        value = getattr(data, field).roll(1, 0)
        other = data._replace(
            **{field: value if field == "skill" else value + getattr(data, field)}
        )
        if not torch.equal(reward(other), reward(data)):
            found.add(field)
    return found


def moved(objective: Objective, action: Callable[[], Any], within: str | None = None) -> set[str]:
    """First names of parameters and buffers that `action()` changes; of the module named `within`
    the second names too."""
    before = copy.deepcopy({k: v for k, v in objective.state_dict().items() if torch.is_tensor(v)})
    action()
    after = objective.state_dict()
    changed = [
        name.split(".") for name, value in before.items() if not torch.equal(value, after[name])
    ]
    return {".".join(parts[:2]) if parts[0] == within else parts[0] for parts in changed}


def assert_learns_on_meta(agent: str, *overrides: str, phase: str = "pretrain") -> None:
    """Two whole updates on the device that has shapes and no values: nothing there asks for a
    value."""
    config = composed(phase, f"agent={agent}", "preset=smoke", *overrides)
    meta.learn_twice(*meta.build(config))


def assert_unknown_reading_is_named(agent: str, key: str) -> None:
    with pytest.raises(UserError, match=f"agent.objective.{key}='nonsense' is not valid"):
        make(agent, f"agent.objective.{key}=nonsense")

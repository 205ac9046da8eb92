"""Small learners, batches for them, and objectives whose rewards are known."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from agent.base import Objective
from agent.keys import arguments
from agent.learners.compiled import Compiled
from agent.learners.ddpg import DDPG
from agent.learners.ppo import PPO
from agent.learners.surgery import SumGradients
from replay_buffer import Batch
from run.build import make_learner
from tests.kit.configs import composed
from utils import Streams

OBS, ACT, SKILLS, B = 5, 2, 3, 12
SETTINGS = dict(
    hidden_dim=16,
    layers=1,
    action_input="trunk",
    critic_heads="shared",
    surgery_scope="critic",
    lr=1e-3,
    batch_size=B,
    critic_target_tau=0.01,
    stddev=0.2,
    stddev_clip=0.3,
    update_every_steps=2,
    num_seed_steps=10,
    init_critic=True,
    init_heads=False,
    sync_target=True,
    presquash=0.0,
    frozen=False,
    conflict_every_updates=0,
    conflict_samples=64,
    reward_scale="none",
    reward_window=1000,
)
TWO = ("diversity", "exploration")
MAZE = SimpleNamespace(obs_dim=2, action_dim=2)


def make_ddpg(*, streams=("task",), surgery=None, seed=0, init=0, obs_dim=OBS, **changes) -> DDPG:
    """DDPG with the settings above; `init` seeds its weights and `seed` its random streams."""
    torch.manual_seed(init)
    return DDPG(
        obs_dim=obs_dim,
        action_dim=ACT,
        skill_dim=SKILLS,
        streams=streams,
        surgery=surgery or SumGradients(),
        rng=Streams(seed),
        **{key: changes.pop(key, None) for key in ("adapt", "pixels", "images")},
        **arguments(DDPG, {**SETTINGS, **changes}),
    )


def make_ppo(*words: str, streams=("a", "b"), surgery="sum", skills=SKILLS, seed=1) -> PPO:
    """PPO for a maze, as `pretrain.py agent=amped domain=tree_maze preset=smoke <words>` makes
    it."""
    config = composed(
        "pretrain", "preset=smoke", "agent=amped", "domain=tree_maze", f"surgery={surgery}", *words
    )
    if surgery == "pcgrad":
        config["surgery"] |= {"first": "a", "p": 0.5}
    torch.manual_seed(seed)
    return make_learner(config, MAZE, skills, streams, Streams(seed))


def make_batch(seed: int = 0, size: int = B) -> Batch:
    """Random transitions for `make_ddpg`; some rows end in a true terminal."""
    g = torch.Generator().manual_seed(seed)
    skill = F.one_hot(torch.randint(SKILLS, (size,), generator=g), SKILLS).float()
    discount = 0.970299 * (torch.rand(size, 1, generator=g) < 0.8).float()
    return Batch(
        obs=torch.randn(size, OBS, generator=g),
        action=torch.rand(size, ACT, generator=g) * 2 - 1,
        reward=torch.randn(size, 1, generator=g),
        discount=discount,
        next_obs=torch.randn(size, OBS, generator=g),
        skill=skill,
        next_obs_1=torch.randn(size, OBS, generator=g),
    )


class Tape:
    """A memory that plays given batches in order."""

    def __init__(self, *seeds: int):
        self.batches = [make_batch(seed) for seed in seeds]

    def __len__(self):
        return len(self.batches)

    def sample(self, batch_size: int) -> Batch:
        assert batch_size == B
        return self.batches.pop(0)


class Given(Objective):
    """Streams that are fixed functions of the batch, by name."""

    def __init__(self, **functions):
        super().__init__()
        self.functions, self.streams = functions, tuple(functions)

    def rewards(self, batch):
        return {name: f(batch) for name, f in self.functions.items()}, {}


def task_and_negative() -> Given:
    """The task's reward, and one that pulls against it."""
    return Given(
        diversity=lambda batch: batch.reward,
        exploration=lambda batch: -2 * batch.reward + batch.obs[:, :1],
    )


def flat(tree):
    """The leaves of nested dicts and lists."""
    if isinstance(tree, dict):
        return [leaf for key in tree for leaf in flat(tree[key])]
    return (
        [leaf for part in tree for leaf in flat(part)]
        if isinstance(tree, (list, tuple))
        else [tree]
    )


def same_numbers(a, b, **tolerance):
    """Two trees hold the same leaves: tensors bit for bit, or within a tolerance."""
    assert len(flat(a)) == len(flat(b))
    for x, y in zip(flat(a), flat(b)):
        if isinstance(x, torch.Tensor) and x.is_floating_point():
            torch.testing.assert_close(x, y, **(tolerance or {"rtol": 0, "atol": 0}))
        elif isinstance(x, torch.Tensor):
            assert torch.equal(x, y)
        else:
            assert x == y


class Traced(Compiled):
    """torch.compile up to its graph, which then runs operator by operator."""

    backend = "eager"

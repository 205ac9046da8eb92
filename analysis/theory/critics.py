"""Critics whose conflict is known, on made rewards, or measured, in short runs of AMPED."""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from agent.base import Objective, RewardStreams
from agent.learners.ddpg import DDPG
from agent.learners.surgery import flat_grad
from experiment import runs as planned
from replay_buffer import Batch
from run.build import make_learner, make_parts
from run.cli.schema import resolve
from run.directory import RunDirectory
from run.logger import Logger
from run.loop import Runner
from utils import Streams, stream_seed

MEASURES = {
    "conflict": "surgery/conflict",
    "sample_conflict": "surgery/sample_conflict",
    "cosine": "surgery/cosine",
}
SIZES = SimpleNamespace(obs_dim=8, action_dim=2, skill_dim=4, rows=512)  # of the fixed transitions
RELATIONS = {  # the second reward, from two unrelated functions of the state with mean 1
    "aligned": lambda first, other: first,
    "unrelated": lambda first, other: other,
    "opposed": lambda first, other: 2 - first,
}
SHORT = ("preset=smoke", "agent=amped", "domain=walker", "device=cpu", "learner.batch_size=64")
SETTLING = "learner.critic_target_tau=0.05"  # values settle in 500 updates


@functools.cache
def compose(*words: str) -> dict[str, Any]:
    """The config of these words. It is shared by all callers with the same words, so it must not be
    written to."""
    return resolve(planned.compose([*SHORT, *words]))


# -------------------------------------------------------------------------------- fixed transitions


class GivenRewards(Objective):
    """Two streams that the transitions themselves hold, one per column of their reward."""

    streams = ("diversity", "exploration")

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, dict]:
        return {name: batch.reward[:, i : i + 1] for i, name in enumerate(self.streams)}, {}


class Transitions:
    """A replay buffer that never grows."""

    def __init__(self, batch: Batch, generator: torch.Generator):
        self.batch, self.generator = batch, generator

    def sample(self, count: int) -> Batch:
        rows = torch.randint(len(self.batch.obs), (count,), generator=self.generator)
        return Batch(*(field[rows] for field in self.batch))


def make_transitions(
    relation: str, scale: float, discount: float, generator: torch.Generator
) -> Batch:
    """Random states, and rewards of mean 1 and mean `scale`."""
    n = SIZES.rows
    obs = torch.randn(n, SIZES.obs_dim, generator=generator)
    following = obs + 0.3 * torch.randn(n, SIZES.obs_dim, generator=generator)
    action = 2 * torch.rand(n, SIZES.action_dim, generator=generator) - 1
    skill = torch.eye(SIZES.skill_dim)[torch.randint(SIZES.skill_dim, (n,), generator=generator)]
    both = 1 + 0.5 * torch.tanh(obs @ torch.randn(SIZES.obs_dim, 2, generator=generator))  # (n, 2)
    first, other = (both / both.mean(0)).split(1, 1)
    reward = torch.cat([first, scale * RELATIONS[relation](first, other)], 1)
    return Batch(obs, action, reward, torch.full((n, 1), discount), following, skill, following)


def evaluate_policy(
    transitions: Batch, seed: int, words: Sequence[str], updates: int, *, watch: bool = False
) -> tuple[DDPG, list[dict]]:
    """The learner of this repository on fixed transitions; its random policy stays, so that values
    can settle.

    `watch`: the conflict per sample too, at every tenth update; it costs more than the update.
    """
    every, rng = 10 if watch else 0, Streams(seed)
    config = compose(SETTLING, f"learner.conflict_every_updates={every}", *words)
    torch.manual_seed(stream_seed(seed, "init"))
    learner = make_learner(config, SIZES, SIZES.skill_dim, GivenRewards.streams, rng)
    learner.update_actor = lambda batch: {}
    memory, objective = Transitions(transitions, rng.torch("transitions")), GivenRewards()
    step = learner.update_every_steps
    return learner, [learner.learn(memory, objective, step * i) for i in range(updates)]


def late_means(metrics: list[dict[str, Tensor]]) -> dict[str, float]:
    """Means over the last third."""
    late = metrics[-(len(metrics) // 3) :]
    return {
        name: float(torch.stack([m[key] for m in late if key in m]).mean())
        for name, key in MEASURES.items()
    }


# --------------------------------------------------------------------------------------- short runs


def amped_run(factor: float, heads: str, seed: int, frames: int) -> dict[str, float]:
    """AMPED on walker, its alpha and beta times `factor`: rewards and conflict of the second half
    of the run."""
    base = compose()
    config = compose(
        f"seed={seed}",
        f"alpha={factor * base['alpha']}",
        f"beta={factor * base['beta']}",
        f"learner.critic_heads={heads}",
        "learner.hidden_dim=64",
        f"num_train_frames={frames}",
        "num_seed_frames=200",
        f"log_every_frames={frames // 2}",
        f"eval_every_frames={frames}",
        f"checkpoint_every_frames={10 * frames}",
        "snapshots=[]",
        f"replay.capacity={2 * frames}",
    )
    parts = make_parts(config, config["domain"]["primal_task"], torch.device("cpu"))
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        directory = RunDirectory(Path(place) / "run", config)
        directory.open()
        logger = Logger(
            directory.path, use_tb=False, use_wandb=False, project="", name="", config=config
        )
        try:
            Runner(config, directory, parts, logger, {}).train()
        finally:
            directory.close()
        last = {key: float(value) for key, value in logger.train.rows[-1].items()}
    row = {name: last[key] for name, key in MEASURES.items()}
    row |= {name: last[f"reward/{name}"] for name in ("diversity", "exploration")}
    if heads == "shared":
        batches = [parts.replay.sample(config["learner"]["batch_size"]) for _ in range(20)]
        shares = [
            offset_share(parts.learner, batch, parts.objective.rewards(batch)[0])
            for batch in batches
        ]
        row["offset_share"] = float(torch.stack(shares).mean())
    return row


def offset_share(learner: DDPG, batch: Batch, rewards: RewardStreams) -> Tensor:
    """How much of what separates the two gradients is the difference of the rewards' means.

    (g1 - g2) / 2 is linear in y2 - y1: its part along the mean of y2 - y1, by projection; 1 is all
    of it.
    """
    parameters = list(learner.critic.parameters())

    def separation(half: Tensor, middle: Tensor) -> Tensor:
        losses = learner.critic_losses(batch, {"low": middle - half, "high": middle + half}, {})
        low, high = (
            flat_grad(losses[name], parameters, retain_graph=name == "low")
            for name in ("low", "high")
        )
        return (low - high) / 2

    y1, y2 = learner.targets(batch, rewards).values()
    half, middle = (y2 - y1) / 2, (y1 + y2) / 2
    whole, offset = separation(half, middle), separation(half.mean().expand_as(half), middle)
    return whole @ offset / (whole @ whole)

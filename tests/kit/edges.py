"""Every numeric key of an agent at the edges of what it may hold, tried without a run.

A case is composed, checked, built on a tiny environment and updated once. It must either work, with
finite metrics, or be refused in one line before anything is built.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from agent.learners.ppo import PPO, Rollout
from replay_buffer import ReplayBuffer
from run.build import make_parts
from run.cli.schema import Schema, _require_skills, flatten, resolve
from run.cli.together import check_together
from run.parts import Parts
from tests.kit.configs import unchecked
from utils import UserError

EDGES = (0, 1, 2, 10**15)
# Of the run around the parts, which other tests try; and what only says how long something takes.
AROUND = re.compile(
    r"(preset|domain|task|phase|agent\.(name|per_domain|show|ddpg|ppo)|seed$|num_|eval_|video_|"
    r"log_every|checkpoint_|snapshot|action_repeat|skills\.workers)"
)
FRAMES = ("num_train_frames", "eval_every_frames", "log_every_frames", "checkpoint_every_frames")
SMALL = ("preset=smoke", "skill_dim=3", "replay.capacity=30")
SIZES = {
    "ddpg": ("preset.ddpg.hidden_dim=4", "preset.ddpg.batch_size=4"),
    "ppo": (
        "preset.ppo.hidden_dim=4",
        "preset.ppo.rollouts=8",
        "preset.ppo.rollout_steps=5",
        "learner.epochs=1",
        "learner.minibatches=3",
        "learner.objective_epochs=1",
    ),
}


def config_of(agent: str, learner: str, phase: str = "pretrain", *more: str) -> Any:
    domain = "domain=walker" if learner == "ddpg" else "domain=tree_maze"
    where = (domain,) if phase == "pretrain" else ("task=walker_run",)
    return unchecked(phase, f"agent={agent}", *where, *SMALL, *SIZES[learner], *more)


class Edges:
    """The cases of one agent with one learner."""

    def __init__(self, agent: str, learner: str):
        self.learner, cfg = learner, config_of(agent, learner)
        self.schema = Schema(OmegaConf.to_container(cfg, resolve=False))  # type: ignore[arg-type]
        # Frames at which nothing is due suit cycles of any length.
        self.config = resolve(cfg) | dict.fromkeys(FRAMES, 0) | {"snapshots": []}

    def cases(self) -> Iterator[tuple[str, int]]:
        for key, value in flatten(self.config).items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            # What an objective makes of its keys does not depend on the learner.
            own = self.learner == "ddpg" or key.startswith(("learner.", "surgery."))
            if number and own and not AROUND.match(key):
                for edge in EDGES:
                    yield key, edge

    def attempt(self, key: str, value: Any) -> str:
        """`works`, or the line by which it is refused before anything is built."""
        config = copy.deepcopy(self.config)
        *path, last = key.split(".")
        section = config
        for name in path:
            section = section[name]
        section[last] = value
        on_policy = config["learner"]["name"] == "ppo"
        env = config["domain"]["primal_task"] if on_policy else "dummy"
        try:
            self.schema.require_valid(key, value)
            _require_skills(config)
            check_together(config)
            parts = make_parts({**config, "eval_envs": 1}, env, torch.device("cpu"))
        except UserError as error:
            assert "\n" not in str(error)
            return str(error)
        metrics = learn(parts, config)
        wrong = [name for name, each in metrics.items() if not np.isfinite(float(each))]
        # A huge step or weight diverges, which a run says in one line at its next row.
        assert not wrong or key.endswith("lr") or value == EDGES[-1], f"{key}={value}: {wrong}"
        return "works"


def learn(parts: Parts, config: dict[str, Any]) -> dict[str, Any]:
    """One update on random experience."""
    rng = np.random.default_rng(0)
    env, space, learner = parts.env, parts.skills.space, parts.learner
    if isinstance(learner, PPO):
        steps, count = env.steps, config["learner"]["rollouts"]
        assert steps * count < 10**5, "an edge that takes minutes"

        def draw(*shape: int) -> torch.Tensor:
            return torch.as_tensor(rng.random((steps, count, *shape), np.float32) - 0.5)

        skill = np.stack([space.sample(rng) for _ in range(steps * count)])
        rollouts = [
            Rollout(
                draw(env.obs_dim),
                draw(env.action_dim),
                draw(),
                draw(env.obs_dim),
                torch.as_tensor(skill.reshape(steps, count, -1)),
            )
            for _ in range(learner.rollouts_wanted(parts.objective))
        ]
        return learner.learn(rollouts, parts.objective, 0)
    memory = parts.memory
    assert isinstance(memory, ReplayBuffer)
    obs = rng.random(env.obs_dim, np.float32)
    memory.begin(obs)
    for _ in range(12):
        skill = space.sample(rng)
        obs = rng.random(env.obs_dim, np.float32)
        memory.add(rng.random(env.action_dim, np.float32), skill, 1.0, 1.0, obs)
    return learner.learn(memory, parts.objective, 1000)

"""Every numeric key at the edges of what it may hold.

Those of an agent and its learner are tried without a run: a case is composed, checked, built on a tiny
environment and updated once (`Edges`). Those of the run around them and of fine-tuning are tried by a
run of a few steps (`ShortRuns`). A case must either work, with finite metrics, or be refused in one
line before anything is built.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf

from agent.learners.ppo import PPO, Rollout
from replay_buffer import ReplayBuffer
from run.build import make_parts, run
from run.cli.schema import Schema, _require_skills, flatten, resolve
from run.cli.together import check_together
from run.data import Data
from run.parts import Parts
from tests.kit.configs import unchecked
from utils import UserError

EDGES = (0, 1, 2, 10**15)
# Of the run around the parts; and what other keys refer to.
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

# A run of a few steps, at the end of which everything has happened once.
SHORT = {
    "ddpg": (
        *("num_train_frames=12", "num_seed_frames=4", "snapshots=[]", "compile=false"),
        *("eval_every_frames=12", "checkpoint_every_frames=6"),
    ),
    "ppo": (
        *("preset.ppo.rollouts=2", "learner.minibatches=2", "num_train_frames=40", "snapshots=[]"),
        *("eval_every_frames=40", "log_every_frames=20", "checkpoint_every_frames=20"),
    ),
}
# Huge values that are fine and only never end.
ENDLESS = {"num_train_frames", "num_eval_episodes", "data.offline_updates"}


def config_of(agent: str, learner: str, phase: str = "pretrain", *more: str) -> Any:
    domain = "domain=walker" if learner == "ddpg" else "domain=tree_maze"
    task = "task=walker_run" if learner == "ddpg" else "task=tree_maze_reach_left"
    place = domain if phase == "pretrain" else task
    return unchecked(phase, f"agent={agent}", place, *SMALL, *SIZES[learner], *more)


class Edges:
    """The cases of one agent with one learner."""

    def __init__(self, agent: str, learner: str):
        cfg = config_of(agent, learner)
        self.schema = Schema(OmegaConf.to_container(cfg, resolve=False))  # type: ignore[arg-type]
        # Frames at which nothing is due suit cycles of any length.
        self.config = resolve(cfg) | dict.fromkeys(FRAMES, 0) | {"snapshots": []}

    def cases(self) -> Iterator[tuple[str, int]]:
        for key in numeric(self.config):
            if not AROUND.match(key):
                for edge in EDGES:
                    yield key, edge

    def attempt(self, key: str, value: Any) -> str:
        """`works`, or the line by which it is refused before anything is built."""
        config = changed(self.config, key, value)
        env = where(config) if config["learner"]["name"] == "ppo" else "dummy"
        try:
            require(self.schema, config, key, value)
            parts = make_parts({**config, "eval_envs": 1}, env, torch.device("cpu"))
        except UserError as error:
            return one_line(error)
        metrics = learn(parts, config)
        wrong = [name for name, each in metrics.items() if not np.isfinite(float(each))]
        # A huge step or weight diverges, which a run says in one line at its next row.
        assert not wrong or key.endswith("lr") or value == EDGES[-1], f"{key}={value}: {wrong}"
        return "works"


def where(config: dict[str, Any]) -> str:
    """The environment: of the task, or of the domain."""
    return config["task"]["env"] if "task" in config else config["domain"]["primal_task"]


def numeric(config: dict[str, Any]) -> list[str]:
    """Keys that hold a number."""
    return [
        key
        for key, value in flatten(config).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    *path, last = key.split(".")
    section = config
    for name in path:
        section = section[name]
    section[last] = value
    return config


def require(schema: Schema, config: dict[str, Any], key: str, value: Any) -> None:
    """As run/cli/schema.py checks it before anything is built."""
    schema.require_valid(key, value)
    _require_skills(config)
    check_together(config)


def one_line(error: UserError) -> str:
    assert "\n" not in str(error)
    return str(error)


class ShortRuns:
    """The cases of the run around the parts, or of a fine-tuning's own sections, each a run of a few
    steps. The agent does not matter to them: DIAYN is the quickest."""

    def __init__(self, learner: str, sections: tuple[str, ...] = (), *more: str):
        self.phase, self.learner = ("finetune" if sections else "pretrain"), learner
        cfg = config_of("diayn", learner, self.phase, *SHORT[learner], *more)
        self.schema = Schema(OmegaConf.to_container(cfg, resolve=False))  # type: ignore[arg-type]
        self.config = {**resolve(cfg), "overrides": [], "num_threads": 1}
        if sections:
            self.keys = [key for key in numeric(self.config) if key.startswith(sections)]
        else:
            around = [key for key in numeric(self.config) if AROUND.match(key)]
            self.keys = [key for key in around if "." not in key]

    def cases(self) -> Iterator[tuple[str, int]]:
        for key in self.keys:
            for edge in EDGES:
                yield key, edge

    def attempt(self, key: str, value: Any, folder: Path) -> str:
        """As `Edges.attempt`; what would only take long is built and not run."""
        config = changed(self.config, key, value)
        env = where(config) if self.learner == "ppo" else "dummy"
        device = torch.device("cpu")
        relabelled = self.phase == "finetune" and config["data"]["name"] == "relabelled"
        older = some_data() if relabelled else None
        try:
            require(self.schema, config, key, value)
            if value == EDGES[-1] and key in ENDLESS:
                make_parts(config, env, device, older=older)
            else:
                run(config, folder, env, device, older=older)
        except UserError as error:
            diverged = value == EDGES[-1] and " became " in str(error)
            assert diverged or not (folder / "config.yaml").exists(), f"begun, then: {error}"
            return "works" if diverged else one_line(error)
        return "works"


def some_data() -> Data:
    """What a pre-training in the dummy environment could have left: six episodes of four steps."""
    rng, rows = np.random.default_rng(0), 30
    columns = {
        "obs": rng.random((rows, 5), np.float32),
        "action": rng.random((rows, 2), np.float32),
        "reward": rng.random((rows, 1), np.float32),
        "discount": np.ones((rows, 1), np.float32),
        "skill": np.eye(3, dtype=np.float32)[np.arange(rows) // 5 % 3],
        "episode_step": np.arange(rows, dtype=np.int32) % 5,
        "task_rewards": rng.random((rows, 1), np.float32),
    }
    return Data(columns, ("walker_run",), "walker_run", True, 24, 1)


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

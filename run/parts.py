"""The five nouns of a run, side by side, and the check that what an environment gives is finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.base import Learner, Objective
from agent.skills.sources import SkillSource
from replay_buffer import ReplayBuffer
from utils import NotFinite, Streams


@dataclass
class Parts:
    """Env, skill source, learner, objective and memory; and the random streams they draw from.

    `env` and `eval_envs` are single environments (envs.Env) for DDPG and many episodes side by side
    (envs.maze.Lanes) for PPO, whose experience is a rollout: its `memory` is None unless a selector
    learns above it.
    """

    env: Any
    eval_envs: list[Any]
    skills: SkillSource
    learner: Learner
    objective: Objective
    memory: ReplayBuffer | None
    rng: Streams


def require_finite(frame: int, **given: Any) -> None:
    """Names what an environment gave that is no number."""
    for name, value in given.items():
        if not np.isfinite(value).all():
            raise NotFinite(f"the environment gave a non-finite {name} at frame {frame}")

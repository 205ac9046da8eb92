"""What a run is made of, side by side, and the check that what an environment gives is finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.base import Learner, Objective
from agent.learners.compiled import Capture
from agent.skills.sources import SkillSource
from replay_buffer import DeviceReplayBuffer, MixedReplay, ReplayBuffer
from run.seeing import Sight
from utils import NotFinite, Streams


@dataclass
class Parts:
    """Env, skill source, learner, objective and memory; and the random streams they draw from.

    `env` and `eval_envs` are single environments (envs.Env) for DDPG and many episodes side by side
    (envs.maze.lanes.Lanes) for PPO, each with the loop that knows how to drive it. PPO learns from
    rollouts, so its `memory` is None unless a selector learns above it.
    """

    env: Any
    eval_envs: list[Any]
    skills: SkillSource
    learner: Learner
    objective: Objective
    memory: ReplayBuffer | MixedReplay | None
    rng: Streams
    sight: Sight | None = None  # with obs_type=pixels

    @property
    def replay(self) -> ReplayBuffer | MixedReplay:
        """The memory of a run that has one."""
        assert self.memory is not None, "PPO without a selector keeps no replay"
        return self.memory

    @property
    def experience(self) -> ReplayBuffer:
        """What this run itself has seen, without older data: whoever chooses skills learns from
        what its own choices brought."""
        memory = self.replay
        return memory.fresh if isinstance(memory, MixedReplay) else memory

    @property
    def to_choose_by(self) -> Any:
        """The same for whoever chooses skills: batches of features where the agent sees pixels."""
        return self.experience if self.sight is None else self.sight

    @property
    def captures(self) -> list[Capture]:
        """What compiles or records the updates of the learner and of a selector."""
        found = (getattr(part, "capture", None) for part in (self.learner, self.skills))
        return [capture for capture in found if capture is not None]

    @property
    def choices(self) -> dict[str, str]:
        """What `auto` became on this machine, by key, in words; empty where nothing is compiled,
        recorded or copied to a device."""
        found = {}
        if (capture := getattr(self.learner, "capture", None)) is not None:
            found[capture.key] = capture.choice
        memory = self.memory.fresh if isinstance(self.memory, MixedReplay) else self.memory
        if isinstance(memory, DeviceReplayBuffer):
            found["replay.on_device"] = memory.choice
        return found


def require_finite(frame: int, **given: Any) -> None:
    """Stop the run where an environment gave something that is no finite number, by its name."""
    for name, value in given.items():
        if not np.isfinite(value).all():
            raise NotFinite(f"the environment gave a non-finite {name} at frame {frame}")

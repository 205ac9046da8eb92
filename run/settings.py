"""What the keys of a run may hold that no class of agent/ takes: those of the scripts and the
runner, the names of directories, and what a preset is.

Every other key belongs to a class, whose annotations say what it may hold (run/cli/schema.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from agent.parts.pixels import PixelSettings
from agent.skills.sources import SpaceKind
from envs.pixels import RenderSettings
from run.cli.rules import Rule
from utils import Count, Layers, Natural, Rows


def is_name(value: Any) -> bool:
    """A name may become a directory, so it must not lead out of one."""
    pattern = r"\w[\w.,=+@~-]*"
    return (
        isinstance(value, str)
        and re.fullmatch(pattern, value) is not None
        and len(value.encode()) <= 200
    )


def is_frames(value: Any) -> bool:
    return isinstance(value, list) and all(type(x) is int and 0 < x <= 10**15 for x in value)


def matching(pattern: str, words: str) -> Rule:
    return Rule(words, lambda v: isinstance(v, str) and re.fullmatch(pattern, v) is not None)


NAME = Rule("a file name without slashes, of at most 200 bytes", is_name)
CLASS = matching(
    r"[^\W\d]\w*(\.[^\W\d]\w*)+", "a class by its full name, such as agent.amped.AMPED"
)
Name = Annotated[str, NAME]
Class = Annotated[str, CLASS]
Path = Annotated[str, matching(r"[^\0]{1,1000}", "a path")]
Environment = Annotated[
    str,
    matching(
        r"[\w.:/-]+", "an environment, such as walker_run, gymnasium:ID or some.module:function"
    ),
]
Device = Annotated[str, matching(r"auto|cpu|cuda(:\d{1,3})?", "one of auto, cpu, cuda, cuda:N")]
Frames = Annotated[list, Rule("a list of frames above 0, such as [100,200]", is_frames)]
Colour = Annotated[str, matching(r"#[0-9A-Fa-f]{6}", 'a colour, such as "#882255"')]
Workers = Annotated[int, Interval(ge=1, le=1024)]


@dataclass(kw_only=True)
class RunSettings:
    """The top level of a config, without what the agent's yaml adds."""

    phase: Literal["pretrain", "finetune"]
    seed: Annotated[int, Interval(ge=0, le=2**32 - 1)]
    device: Device
    num_threads: Workers | None
    compile: bool | Literal["auto"]
    cuda_graph: bool | Literal["auto"]
    tf32: bool
    run_root: Path
    variant: Name | None
    obs_type: Literal["states", "pixels"]
    action_repeat: Annotated[int, Interval(ge=1, le=1000)]
    num_train_frames: Natural
    num_seed_frames: Natural
    snapshots: Frames
    save_replay: bool | Literal["physics"]
    eval_every_frames: Count
    num_eval_episodes: Count
    eval_episode_steps: Count | None
    eval_envs: Workers
    log_every_frames: Count
    checkpoint_every_frames: Count
    keep_checkpoint: bool
    save_video: bool
    video_episodes: Count
    video_size: Annotated[int, Interval(ge=16, le=4096)]
    use_tb: bool
    use_wandb: bool
    wandb_project: Name
    snapshot_ts: Count | None
    snapshot: Path | None
    pretrain_variant: Name | None


@dataclass(kw_only=True)
class SkillSettings:
    """The top level of every agent's yaml; with the keys that a yaml adds, these are the method."""

    skill_dim: Annotated[int, Interval(ge=0, le=2**16)]
    skill_interval: Natural


@dataclass(kw_only=True)
class Show:
    """How tables and figures show a method. A family shares a colour, in tints, and a marker."""

    label: str
    family: Name
    colour: Colour
    marker: str


@dataclass(kw_only=True)
class AgentSettings:
    name: Name
    skill_space: SpaceKind
    finetune_skills: Literal["switching", "fixed", "none"]


@dataclass(kw_only=True)
class Named:
    """A preset, a learner, a surgery, a rule of skills."""

    name: Name


@dataclass(kw_only=True)
class DomainSettings:
    name: Name
    primal_task: Environment


@dataclass(kw_only=True)
class TaskSettings:
    name: Name
    domain: Name
    env: Environment


@dataclass(kw_only=True)
class MemorySettings:
    """Of `replay`, beside what ReplayBuffer takes."""

    on_device: bool | Literal["auto"]


@dataclass(kw_only=True)
class PixelKeys:
    """Of `pixels`, beside what an encoder takes (PixelSettings): what other keys are with
    obs_type=pixels."""

    encoder: PixelSettings
    action_repeat: Annotated[int, Interval(ge=1, le=1000)]
    layers: Layers
    action_input: Literal["trunk", "head"]


@dataclass(kw_only=True)
class RolloutSettings:
    """Of `learner=ppo`, beside what PPO takes."""

    rollouts: Rows
    rollout_steps: Rows | None
    batch_size: Rows  # of a selector above it


@dataclass(kw_only=True)
class RegimeSettings:
    """Of `skills`, beside what sources and selectors take."""

    warmup_frames: Natural  # of a selector
    workers: Workers | None  # of the oracle


SECTIONS = {
    "": RunSettings,
    "agent": AgentSettings,
    "agent.show": Show,
    "preset": Named,
    "learner": Named,
    "surgery": Named,
    "balance": Named,
    "skills": Named,
    "adapt": Named,
    "data": Named,
    "domain": DomainSettings,
    "task": TaskSettings,
    "replay": MemorySettings,
    "render": RenderSettings,
    "pixels": PixelKeys,
}
# Keys of a preset whose name differs from the key that takes them.
STANDS_FOR = {
    "pretrain_frames": "num_train_frames",
    "finetune_frames": "num_train_frames",
    "replay_capacity": "replay.capacity",
    "running_episode": "replay.running_episode",
    "offline_updates": "data.offline_updates",
    "bandit_budget": "skills.budget",
    "selector_dim": "skills.hidden_dim",
    "selector_every": "skills.update_every_steps",
    "selector_interval": "skills.interval",
    "epsilon_decay": "skills.epsilon_decay",
    "size": "render.size",
    "shadows": "render.shadows",
    "channels": "pixels.channels",
}

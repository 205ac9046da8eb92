"""Which keys make a run what it is, and which pre-training a fine-tuning can start from."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from agent.base import MOVED
from agent.keys import keys_of
from agent.skills.regimes import SOURCES
from agent.skills.selector_networks import ALGORITHMS
from run.cli.schema import LEARNERS, flatten
from run.files import read_config
from run.settings import RunSettings
from utils import Unreadable, UserError

# Of an agent, what only fine-tuning reads: no pre-training differs by it.
FINETUNE_ONLY = ("agent.native_skills", "agent.finetune_skills", "agent.per_domain")

# Keys that came later, with what every run had before there was such a key.
LATER = {
    "replay.running_episode": True,
    "agent.objective.numerics": "logsumexp",
    "agent.objective.prototype_norm": "gradient",
    "agent.objective.contrast_net": "projected",
    "learner.presquash": 0.0,
    "learner.reward_scale": "none",
    "learner.reward_window": 1000,
    "balance.name": "constant",
    "balance.of": "diversity",
    "balance.share": None,
    "save_replay": False,
    "adapt.name": "urlb",
    "adapt.warmup": "uniform",
    "adapt.actor": True,
    "adapt.moments": False,
    "adapt.critic_first": 0,
    "adapt.actor_lr": 1.0,
    "adapt.pull": 0.0,
    "data.name": "none",
    "data.file": None,
    "data.share": 0.0,
    "data.offline_updates": 0,
    "data.skill": "stored",
}


def of_the_method(key: str, config: dict[str, Any]) -> bool:
    """Fine-tuning looks for the pre-training that had the same ones: keys of the agent, of
    surgery and balance, what the agent's yaml sets at the top level (alpha, skill_dim), and what shapes a
    pre-training among the learner's."""
    section, _, last = key.partition(".")
    if section in ("agent", "balance", "surgery", "render", "pixels"):
        return True
    if key in ("learner", "reading", "obs_type"):
        return True
    if section == "learner":
        return last in LEARNERS[config["learner"]["name"]].shapes_pretraining
    return key in config and not isinstance(config[key], dict) and key not in keys_of(RunSettings)


def unused(key: str, config: dict[str, Any]) -> bool:
    """A key of `skills` that this rule does not take: skills=default brings the numbers of two
    rules along, whichever of them the agent's yaml then names. And what pictures look like, where
    there are none."""
    section, _, last = key.partition(".")
    if section in ("render", "pixels"):
        return config.get("obs_type") != "pixels"
    name = config.get("skills", {}).get("name")
    if section != "skills" or last in ("", "name") or name in ALGORITHMS:
        return False
    return name not in SOURCES or last not in keys_of(SOURCES[name])


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """The keys that can move a number of the run, flat, and classes under their present names."""
    return {
        key: MOVED.get(value, value) if isinstance(value, str) else value
        for key, value in flatten(config).items()
        # What a preset holds counts where it is taken, under the name of the key that takes it.
        if not unused(key, config)
        and not key.startswith(("preset.ddpg.", "preset.ppo.", "preset.pixels."))
    }


def differences(
    here: dict[str, Any], there: dict[str, Any], ignored: set[str]
) -> dict[str, tuple[Any, Any]]:
    """{key: (there, here)} of two configs, without the ignored keys."""
    ours, theirs = identity(here), identity(there)
    theirs = {key: value for key, value in LATER.items() if key in ours} | theirs
    return {
        key: (theirs.get(key), ours.get(key))
        for key in sorted(ours.keys() | theirs.keys())
        if key not in ignored and ours.get(key) != theirs.get(key)
    }


# ------------------------------------------------------------------------------------ pre-trainings


def config_of(run: Path) -> dict[str, Any]:
    """config.yaml of a run; empty where it cannot be read."""
    try:
        return read_config(run) or {}
    except Unreadable:
        return {}


def fits(config: dict[str, Any], pretraining: dict[str, Any]) -> bool:
    """The pre-training is of the same preset and, key by key, of the same method."""
    if pretraining.get("preset", {}).get("name") != config["preset"]["name"]:
        return False
    theirs = LATER | identity(pretraining)
    return all(
        theirs.get(key) == value
        for key, value in identity(config).items()
        if of_the_method(key, config) and not key.startswith(FINETUNE_ONLY)
    )


Present = dict[tuple[str, str], dict[int, Path]]  # (variant, seed_<n>) -> frame -> snapshot


def snapshots_below(agent: Path) -> Present:
    """The snapshots of every pre-training of an agent on a domain."""
    present: Present = {}
    for path in agent.glob("*/seed_*/snapshots/snapshot_*.pt"):
        if frame := re.fullmatch(r"snapshot_(\d+)", path.stem):
            present.setdefault((path.parts[-4], path.parts[-3]), {})[int(frame[1])] = path
    return present


def only_fitting(
    config: dict[str, Any], overrides: list[str], present: Present, frame: int | None
) -> dict[int, Path]:
    """The snapshots of the one pre-training of this seed that fits although its variant has another
    name, as a longer one has; empty where none does. Of several, the user must choose."""
    seed = f"seed_{config['seed']}"
    fitting = {
        variant: frames
        for (variant, its_seed), frames in sorted(present.items())
        if its_seed == seed
        and (frame is None or frame in frames)
        and fits(config, config_of(next(iter(frames.values())).parents[1]))
    }
    if len(fitting) > 1:
        words = ["python", "finetune.py", *overrides]
        commands = [shlex.join([*words, f"pretrain_variant={variant}"]) for variant in fitting]
        raise UserError(f"{len(fitting)} pre-trainings fit; choose one: " + "  or  ".join(commands))
    for variant, frames in fitting.items():
        print(f"note: starts from the only pre-training that fits, variant {variant}", flush=True)
        return frames
    return {}

"""Fine-tuning on a task reward, from a composed config to a finished run directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import DictConfig

from run import build, data, machine, oracle
from run.cli import own
from run.cli.schema import LEARNERS, resolve
from run.directory import RunDirectory
from run.files import require_result
from run.paths import find_snapshot, run_path
from run.seeing import sees_pixels
from utils import UserError, load_snapshot

NUMBERED = (
    "selector",
    "selector_release",
    "oracle",
    "bandit",
)  # regimes that choose among one-hot skills


# What a snapshot of pixels decides for whatever starts from it, by section.
SEEN_BY_SNAPSHOT = {"render": ("size", "stack"), "pixels": ("channels", "feature_dim")}


def one_hot_agents() -> list[str]:
    """Agents whose own yaml says that skills are numbered."""
    configs = {name: yaml.safe_load(path.read_text()) for name, path in own.yamls("agent").items()}
    return sorted(
        name for name, found in configs.items() if found["agent"].get("skill_space") == "one_hot"
    )


def require_one_hot(config: dict[str, Any]) -> None:
    """For the regimes that choose among numbered skills."""
    space = config["agent"]["skill_space"]
    if space != "one_hot":
        none = space == "none"
        raise UserError(
            f"skills={config['skills']['name']} chooses among numbered skills; agent="
            f"{config['agent']['name']} has "
            f"{'no skills' if none else f'{space} skills, which have no numbers'}: use "
            f"skills={'none' if none else 'switching, fixed or native'}, "
            f"or an agent with one-hot skills ({', '.join(one_hot_agents())})"
        )


def fit_to_snapshot(
    config: dict[str, Any], snapshot: dict[str, Any], path: Path, overrides: list[str]
) -> dict:
    """The config with the snapshot's network sizes; refuses a snapshot of something else."""
    for key, ours in (("agent", config["agent"]["name"]), ("domain", config["domain"]["name"])):
        if snapshot[key] != ours:
            raise UserError(
                f"{path} was pre-trained with {key}={snapshot[key]}, not {ours}; "
                f"choose {'a task of that domain' if key == 'domain' else f'agent={snapshot[key]}'}"
            )
    saved = snapshot["config"]["learner"]
    if saved["name"] != config["learner"]["name"]:
        raise UserError(
            f"{path} was pre-trained by learner={saved['name']}; give learner={saved['name']}"
        )
    decided = LEARNERS[saved["name"]].shapes_snapshot
    skill_dim, sizes = snapshot["spec"]["skill_dim"], {k: saved[k] for k in decided}
    given = {o.lstrip("+").partition("=")[0] for o in overrides}
    seen = seen_by(snapshot["config"], config, path)
    for key, ours, theirs in [
        ("skill_dim", config["skill_dim"], skill_dim),
        *((f"learner.{k}", config["learner"][k], v) for k, v in sizes.items()),
        *((f"{s}.{k}", config[s][k], v) for s, keys in seen.items() for k, v in keys.items()),
    ]:
        if key in given and ours != theirs:
            raise UserError(
                f"{key}={ours} does not fit {path}, which was pre-trained with {theirs}"
            )
    learner = {**config["learner"], **sizes}
    if saved["name"] == "ddpg" and not any(
        key.startswith("critic.") for key in snapshot["learner"]
    ):
        learner["init_critic"] = False  # of the zoo, which ships what acts and no critic
        print(f"note: {path} holds the actor alone; the critic starts afresh", flush=True)
    return {
        **config,
        **{section: {**config[section], **keys} for section, keys in seen.items()},
        "learner": learner,
        "skill_dim": skill_dim,
        "snapshot_frame": snapshot["frame"],
    }


def seen_by(saved: dict[str, Any], config: dict[str, Any], path: Path) -> dict[str, dict[str, Any]]:
    """What the snapshot's agent saw, by section; nothing of states. Refuses one that saw the other."""
    theirs, ours = saved.get("obs_type", "states"), config["obs_type"]
    if theirs != ours:
        raise UserError(
            f"{path} was pre-trained with obs_type={theirs}, not {ours}; give obs_type={theirs}"
        )
    if not sees_pixels(config):
        return {}
    return {
        section: {key: saved[section][key] for key in keys}
        for section, keys in SEEN_BY_SNAPSHOT.items()
    }


def is_finished(config: dict[str, Any], path: Path, overrides: list[str]) -> bool:
    """A finished fine-tuning needs its pre-training no more. Whether it is the one that is asked
    for can be told without: what the snapshot decided stands in its config.yaml."""
    stored = RunDirectory(path, config).stored()
    if (
        stored is None
        or config["agent"]["objective"] is None
        or not (path / "result.json").exists()
    ):
        return False
    given = {word.partition("=")[0] for word in overrides}
    learner = dict(config["learner"])
    for key in (*LEARNERS[learner["name"]].shapes_snapshot, "init_critic"):
        if key in learner and f"learner.{key}" not in given:
            learner[key] = stored.get("learner", {}).get(key)
    decided: dict[str, Any] = {"snapshot_frame": stored.get("snapshot_frame")}
    if sees_pixels(config):
        for section, keys in SEEN_BY_SNAPSHOT.items():
            theirs = {
                k: stored.get(section, {}).get(k) for k in keys if f"{section}.{k}" not in given
            }
            decided[section] = {**config[section], **theirs}
    if "skill_dim" not in given:
        decided["skill_dim"] = stored.get("skill_dim")
    directory = RunDirectory(path, {**config, **decided, "learner": learner})
    directory.check(resumes=False)
    if directory.finished:
        directory.say_finished()
    return directory.finished


def finetune(
    cfg: DictConfig, overrides: list[str], *, draw_choices: Callable[[Path], None] | None = None
) -> Path:
    """Train on the task from a snapshot, or from scratch where the agent has nothing to pre-train.
    `draw_choices` draws what a selector chose, beside the numbers in choices.npz."""
    config, device = machine.settle_machine(resolve(cfg))
    if config["skills"]["name"] in NUMBERED:
        require_one_hot(config)
    path = run_path(config, overrides)
    if is_finished(config, path, overrides):
        if config["skills"]["name"] == "oracle":
            oracle.show(require_result(path))
    else:
        train(config, path, overrides, device)
    if draw_choices and (path / "choices.npz").exists() and not (path / "choices.png").exists():
        draw_choices(path)
        print(f"picture: {path / 'choices.png'}", flush=True)
    return path


def train(config: dict[str, Any], path: Path, overrides: list[str], device: torch.device) -> None:
    uses_data = config["data"]["name"] != "none"
    source, snapshot, older, info = None, None, None, {}
    if config["agent"]["objective"] is not None:
        source = find_snapshot(config, overrides, RunDirectory(path, config).stored())
        snapshot = load_snapshot(source, device)
        config = fit_to_snapshot(config, snapshot, source, overrides)
        info = {
            "pretrained": str(source),
            "pretrained_frame": snapshot["frame"],
            "pretrained_seed": snapshot["seed"],
        }
        if uses_data and not config["data"]["file"]:
            older = data.load(data.find(source)).until(snapshot["frame"])
        if snapshot["seed"] != config["seed"]:
            print(
                f"note: seed {config['seed']} starts from the snapshot of seed {snapshot['seed']} in {source}",
                flush=True,
            )
    elif config["learner"]["frozen"]:
        raise UserError(
            f"learner.frozen=true keeps pre-trained skills as they are; agent={config['agent']['name']} "
            "has none: use learner.frozen=false"
        )
    elif uses_data and not config["data"]["file"]:
        raise UserError(
            f"data={config['data']['name']} takes the data of a pre-training; agent="
            f"{config['agent']['name']} has none: use data=none, or give data.file=REPLAY.pt"
        )
    if uses_data and config["data"]["file"]:
        older = data.load(Path(config["data"]["file"]))
    config = {**config, "overrides": overrides}
    if config["skills"]["name"] == "oracle":
        assert source is not None, "an agent without skills was refused above"
        oracle.run(config, overrides, source, device, info)
        return
    build.run(
        config, path, config["task"]["env"], device, snapshot=snapshot, older=older, info=info
    )

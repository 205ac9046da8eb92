"""Where a run lives, what it holds, and that two settings never share it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from agent.base import MOVED
from agent.keys import keys_of
from run.cli.schema import LEARNERS, flatten
from run.settings import NAME, RunSettings, is_name
from utils import Unreadable, UserError, load_torch, remove_halves, save_torch, write_text

CHECKPOINT_FORMAT = 2  # 1: version 0.1, whose optimisers kept their moments as one vector

# Overrides that the path names in a place of their own, so the variant need not.
PLACED = {
    "agent",
    "domain",
    "task",
    "preset",
    "seed",
    "skills",
    "skills.index",
    "snapshot_ts",
    "snapshot",
    "variant",
    "pretrain_variant",
}
# Overrides that move no number of a run.
SILENT = {
    "run_root",
    "device",
    "num_threads",
    "compile",
    "cuda_graph",
    "tf32",
    "replay.on_device",
    "eval_envs",
    "use_tb",
    "use_wandb",
    "wandb_project",
    "checkpoint_every_frames",
    "save_replay",
    "save_video",
    "video_episodes",
    "video_size",
    "skills.workers",
    "overrides",  # the words of the command, which a run keeps and which may come in any order
}
# Keys that came later, with what every run had before there was such a key.
LATER = {
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
# Fixed until a run ends: they may move bits, or decide what a checkpoint holds.
PER_MACHINE = {"device", "num_threads", "compile", "tf32", "eval_envs", "save_replay"}


def of_the_method(key: str, config: dict[str, Any]) -> bool:
    """Fine-tuning looks for the pre-training that had the same ones: keys of the agent, of surgery
    and balance, what the agent's yaml sets at the top level (alpha, skill_dim), and what shapes a
    pre-training among the learner's."""
    section, _, last = key.partition(".")
    if section in ("agent", "balance", "surgery") or key == "learner":
        return True
    if section == "learner":
        return last in LEARNERS[config["learner"]["name"]].shapes_pretraining
    return key in config and not isinstance(config[key], dict) and key not in keys_of(RunSettings)


def variant_name(config: dict[str, Any], overrides: list[str], *, method_only: bool = False) -> str:
    """`cpu`, or `cpu,beta=0`: the preset plus what was overridden, in a fixed order."""
    parts = []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if (
            key in PLACED | SILENT
            or key.startswith("hydra")
            or (method_only and not of_the_method(key, config))
        ):
            continue
        parts.append(re.sub(r"[^\w.,=+~-]+", "_", override))
    name = ",".join([config["preset"]["name"], *sorted(parts)])
    # Letters of other alphabets take up to four bytes, a file name has 255.
    if len(name.encode()) > 120:
        name = f"{name.encode()[:100].decode(errors='ignore')}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def skills_name(config: dict[str, Any]) -> str:
    """`switching`, `fixed_3`, `switching@100000`."""
    skills = config["skills"]
    name = skills["name"]
    if name == "fixed":
        name += "_random" if skills["index"] < 0 else f"_{skills['index']}"
    return f"{name}@{config['snapshot_ts']}" if config["snapshot_ts"] else name


def run_path(config: dict[str, Any], overrides: list[str]) -> Path:
    """runs/pretrain/<domain>/<agent>/<variant>/seed_<n> or
    runs/finetune/<task>/<agent>/<variant>/<skills>/seed_<n>."""
    parts = [config["agent"]["name"], config["variant"] or variant_name(config, overrides)]
    if config["phase"] == "pretrain":
        parts = [config["domain"]["name"], *parts]
    else:
        parts = [config["task"]["name"], *parts, skills_name(config)]
    # Whatever the configs hold: never out of run_root.
    if wrong := [part for part in parts if not is_name(part)]:
        raise UserError(f"{wrong[0]!r} cannot be a directory of a run; it must be {NAME.words}")
    return Path(config["run_root"], config["phase"], *parts, f"seed_{config['seed']}")


def find_snapshot(config: dict[str, Any], overrides: list[str]) -> Path:
    """The snapshot that a fine-tuning starts from: a file, a frame, or the newest."""
    if config["snapshot"]:
        path = Path(config["snapshot"])
        if not path.is_file():
            raise UserError(
                f"no snapshot at {path}{' but a directory' if path.is_dir() else ''}; give the "
                "snapshot_<frame>.pt of a pre-training, or leave snapshot= away"
            )
        return path
    variant = (
        config["pretrain_variant"]
        or config["variant"]
        or variant_name(config, overrides, method_only=True)
    )
    agent = (
        Path(config["run_root"]) / "pretrain" / config["domain"]["name"] / config["agent"]["name"]
    )
    present: dict[tuple[str, str], dict[int, Path]] = {}
    for path in agent.glob("*/seed_*/snapshots/snapshot_*.pt"):
        if frame := re.fullmatch(r"snapshot_(\d+)", path.stem):
            present.setdefault(path.parts[-4:-2], {})[int(frame[1])] = path
    frames = present.get((variant, f"seed_{config['seed']}"), {})
    wanted = config["snapshot_ts"] or max(frames, default=None)
    if wanted in frames:
        return frames[wanted]
    have = "; ".join(
        f"{v} {s}: {', '.join(map(str, sorted(f)))}" for (v, s), f in sorted(present.items())
    )
    raise UserError(
        f"no snapshot{f' {wanted}' if wanted else ''} of {config['agent']['name']} on {config['domain']['name']} "
        f"(variant {variant}, seed {config['seed']}) below {agent}; frames present: {have or 'none'}. "
        "Run pretrain.py first, or choose by snapshot_ts=, seed=, pretrain_variant= or snapshot=FILE"
    )


class RunDirectory:
    """One run: config.yaml, CSVs, snapshots/, two rolling checkpoints while unfinished, result.json
    at the end."""

    def __init__(self, path: Path, config: dict[str, Any]):
        self.path, self.config = path, config
        self._lock: int | None = None

    @property
    def variant(self) -> str:
        return self.path.parts[-2 if self.config["phase"] == "pretrain" else -3]

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    def stored(self) -> dict[str, Any] | None:
        """The config that the run was started with; None where none was started yet."""
        try:
            found = yaml.safe_load((self.path / "config.yaml").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.path / 'config.yaml'} cannot be read ({type(error).__name__}); "
                "move the directory away or give variant=NAME"
            ) from error
        return found if isinstance(found, dict) else {}

    def check(self) -> None:
        """Refuse a directory that holds another setting."""
        stored = self.stored()
        if stored is None:
            return
        ignored = SILENT - PER_MACHINE | (PER_MACHINE if self.finished else set())
        if self.config.get("compile") == "auto":  # continues as it was started
            ignored |= {"compile"}
        here, there = flatten(self.config), flatten(stored)
        there = {key: value for key, value in LATER.items() if key in here} | there
        there = {
            key: MOVED.get(value, value) if isinstance(value, str) else value
            for key, value in there.items()
        }
        differ = [
            k
            for k in sorted(here.keys() | there.keys())
            if k not in ignored
            # What a preset holds counts where it is taken, under the name of the key that takes it.
            and not k.startswith(("preset.ddpg.", "preset.ppo."))
            and here.get(k) != there.get(k)
        ]
        if differ:
            shown = ", ".join(f"{k} ({there.get(k)} there, {here.get(k)} here)" for k in differ[:4])
            raise UserError(
                f"{self.path} holds a run with other settings: {shown}"
                f"{' and more' if len(differ) > 4 else ''}; give variant=NAME, or the settings it has"
            )

    def open(self) -> None:
        """Create, lock and label the directory."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path, os.O_RDONLY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_halves(self.path)  # nobody writes here but us
            if not (self.path / "config.yaml").exists():
                write_text(self.path / "config.yaml", yaml.safe_dump(self.config, sort_keys=False))
        except BlockingIOError:
            self.close()
            raise UserError(
                f"{self.path} is in use by another process; wait for it, or give variant=NAME"
            ) from None
        except OSError as error:
            self.close()
            raise UserError(
                f"cannot write to {self.path}: {error.strerror}; "
                "choose another place by run_root=DIR"
            ) from error

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def snapshot_path(self, frame: int) -> Path:
        return self.path / "snapshots" / f"snapshot_{frame}.pt"

    def checkpoints(self) -> list[Path]:
        """Newest first, by the frame in the name: clocks may jump."""
        found = (
            re.fullmatch(r"checkpoint_(\d+)\.pt", p.name) for p in self.path.glob("checkpoint_*.pt")
        )
        frames = sorted((int(m[1]) for m in found if m), reverse=True)
        return [self.path / f"checkpoint_{frame}.pt" for frame in frames]

    def newest(self) -> str:
        """What a run that must stop can go back to."""
        found = self.checkpoints()
        return f"{found[0]} is from before that" if found else "before the first checkpoint"

    def save_checkpoint(self, frame: int, payload: dict[str, Any]) -> None:
        """Write the new one, then drop all but the newest two: a crash costs at most one
        interval."""
        labels = {"kind": "checkpoint", "format": CHECKPOINT_FORMAT}
        save_torch(self.path / f"checkpoint_{frame}.pt", {**labels, **payload})
        for path in self.checkpoints()[2:]:
            path.unlink()

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The newest that can be read; None where there is none. One that cannot be read is set
        aside, so that it does not count as one of the two that are kept."""
        found = self.checkpoints()
        for path in found:
            try:
                payload = load_torch(path, "checkpoint")
            except Unreadable as error:
                aside = path.with_name(f"damaged_{path.name}")
                print(
                    f"warning: {error}; kept as {aside.name}, trying the one before",
                    file=sys.stderr,
                    flush=True,
                )
                path.rename(aside)
                continue
            if payload.get("format") != CHECKPOINT_FORMAT:
                raise UserError(
                    f"{path} was written by another version of this code, whose unfinished runs "
                    "cannot be continued here; finish it there, or give variant=NAME to start anew"
                )
            return payload
        if found:
            raise UserError(
                f"no checkpoint of {self.path} can be read; the same command starts again from frame 0"
            )
        return None

    def finish(self, result: dict[str, Any]) -> None:
        write_text(self.path / "result.json", json.dumps(result, indent=2) + "\n")
        for path in self.checkpoints():
            path.unlink()

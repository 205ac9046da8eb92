"""Where a run lives: its directory follows from its config and from what was overridden."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from agent import zoo
from run.identity import of_the_method, only_fitting, snapshots_below, unused
from run.settings import NAME, is_name
from utils import UserError

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
    "keep_checkpoint",
    "eval_every_frames",  # evaluations draw from streams of their own
    "log_every_frames",
    "snapshots",
    "save_replay",
    "save_video",
    "video_episodes",
    "video_size",
    "skills.workers",
    "overrides",  # the words of the command, which a run keeps and which may come in any order
}
# Silent since version 0.3: the directories of older runs may have them in their names.
ONCE_NAMED = {"eval_every_frames", "log_every_frames", "snapshots"}


def variant_name(
    config: dict[str, Any],
    overrides: list[str],
    *,
    method_only: bool = False,
    silent: set[str] = SILENT,
) -> str:
    """`cpu`, or `cpu,beta=0`: the preset plus what was overridden, in a fixed order."""
    parts = []
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if (
            key in PLACED | silent
            or key.startswith("hydra")
            or unused(key, config)
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
    runs/finetune/<task>/<agent>/<variant>/<skills>/seed_<n>. A run that was begun when more keys
    were part of the variant stays where it is."""
    path = _path(config, config["variant"] or variant_name(config, overrides))
    older = _path(
        config, config["variant"] or variant_name(config, overrides, silent=SILENT - ONCE_NAMED)
    )
    return older if older != path and older.exists() and not path.exists() else path


def _path(config: dict[str, Any], variant: str) -> Path:
    parts = [config["agent"]["name"], variant]
    if config["phase"] == "pretrain":
        parts = [config["domain"]["name"], *parts]
    else:
        parts = [config["task"]["name"], *parts, skills_name(config)]
    # Whatever the configs hold: never out of run_root.
    if wrong := [part for part in parts if not is_name(part)]:
        raise UserError(f"{wrong[0]!r} cannot be a directory of a run; it must be {NAME.words}")
    return Path(config["run_root"], config["phase"], *parts, f"seed_{config['seed']}")


def find_snapshot(
    config: dict[str, Any], overrides: list[str], stored: dict[str, Any] | None = None
) -> Path:
    """The snapshot that a fine-tuning starts from: a file, a frame, the one that it has started
    from (`stored` is its config.yaml), or the newest."""
    if config["snapshot"]:
        path = zoo.resolve(config["snapshot"])
        if not path.is_file():
            raise UserError(
                f"no snapshot at {path}{' but a directory' if path.is_dir() else ''}; give the "
                "snapshot_<frame>.pt of a pre-training or zoo:NAME, or leave snapshot= away"
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
    present = snapshots_below(agent)
    wanted = config["snapshot_ts"] or (stored or {}).get("snapshot_frame")
    frames = present.get((variant, f"seed_{config['seed']}"), {})
    if not frames and not config["pretrain_variant"]:
        frames = only_fitting(config, overrides, present, wanted)
    wanted = wanted or max(frames, default=None)
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

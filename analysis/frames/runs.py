"""Run directories as data frames: read_runs(root), read_curves(paths), read_train(paths, columns).

A damaged run is a row of state "unreadable" with the reason beside it, so that it is counted and
never averaged.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from run.cli import own
from run.files import LOG_WORDS, Damaged, read_config, read_log, read_result
from utils import UserError

COLUMNS = (
    "phase",
    "domain",
    "task",
    "agent",
    "variant",
    "skills",
    "seed",
    "state",
    "frame",
    "score",
    "expert_score",
    "normalized",
    "wall_seconds",
    "commit",
    "dirty",
    "device",
    "path",
    "threads",
    "best_score",
    "problem",
)
# The directories between a phase and a seed, as run/directory.py makes them.
PLACES = {
    "pretrain": ("domain", "agent", "variant"),
    "finetune": ("task", "agent", "variant", "skills"),
}
# --------------------------------------------------------------------------------------------- runs


def read_runs(root: Path) -> pd.DataFrame:
    """One row per run directory below `root`, of both phases. Only finished runs have a score.

    `skills` is the directory's name (fixed_3, switching@100000). Beyond the obvious: `frame` of an
    unfinished run is the last one logged, `best_score` is the best skill of skills=oracle,
    `problem` says why a run is unreadable.
    """
    if not Path(root).is_dir():
        raise UserError(f"no directory {root}; give the run_root of pretrain.py and finetune.py")
    rows = [read_run(path) for path in directories(Path(root))]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(
        {
            name: float
            for name in (
                "frame",
                "score",
                "expert_score",
                "normalized",
                "wall_seconds",
                "best_score",
            )
        }
    )


def directories(root: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise UserError(f"cannot read {error.filename}: {error.strerror}")

    for folder, inside, _ in os.walk(root, onerror=refuse):
        inside.sort()
        if re.fullmatch("seed_[0-9]{1,15}", Path(folder).name):
            inside.clear()
            yield Path(folder)


def read_run(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS) | place(path) | {"path": str(path), "problem": ""}
    try:
        if row["phase"] is None:
            raise Damaged(
                "not at pretrain/DOMAIN/AGENT/VARIANT or finetune/TASK/AGENT/VARIANT/SKILLS"
            )
        row |= machine(path) | (outcome(path, row) or progress(path))
    except Damaged as error:
        row |= {"state": "unreadable", "problem": str(error)}
    return row


def place(path: Path) -> dict[str, Any]:
    """What the path of a run directory says of it, which holds even where the files inside cannot
    be read."""
    parts = path.absolute().parts
    found: dict[str, Any] = {"seed": int(parts[-1].removeprefix("seed_"))}
    for phase, names in PLACES.items():
        if len(parts) > len(names) + 1 and parts[-len(names) - 2] == phase:
            found |= {"phase": phase, **dict(zip(names, parts[-len(names) - 1 : -1], strict=True))}
    if "task" in found:
        found["domain"] = next(
            (name for name in own.yamls("domain") if found["task"].startswith(f"{name}_")), None
        )
    return found


def machine(path: Path) -> dict[str, Any]:
    """The device and the threads that the run really had, which config.yaml tells. There is none
    where only result.json was copied, or where the run has not begun."""
    config = read_config(path)
    if config is not None and not config.get("device"):
        raise Damaged("config.yaml has no device")
    return {"device": config["device"], "threads": config.get("num_threads")} if config else {}


def outcome(path: Path, row: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a finished run, checked against its directory and its curve; None while there
    is no result.json."""
    result = read_result(path)
    if result is None:
        return None
    subject = "domain" if row["phase"] == "pretrain" else "task"
    for name in ("phase", "agent", "seed", subject):
        if result[name] != row[name]:  # copied to another place, by hand
            raise Damaged(f"result.json says {name} {result[name]!r}, the directory {row[name]!r}")
    frame, curve = result["frame"], curve_of(path)
    if not curve or curve[-1]["frame"] != frame:
        last = curve[-1]["frame"] if curve else "none"
        raise Damaged(f"the last evaluation is at frame {last}, result.json at {frame}")
    git, best = (result.get(name) or {} for name in ("git", "best"))
    return {
        "state": "finished",
        **{name: result[name] for name in ("frame", "score", "wall_seconds")},
        **{name: result.get(name) for name in ("expert_score", "normalized")},
        **{name: git.get(name) for name in ("commit", "dirty")},
        "best_score": best.get("return_mean"),
    }


def progress(path: Path) -> dict[str, Any]:
    """How far an unfinished run came. It has no score: its last evaluation is not the final one."""
    frames = [
        int(row["frame"])
        for name in ("eval.csv", "train.csv")
        for row in read_log(path / name)[-1:]
    ]
    return {"state": "unfinished", "frame": max(frames, default=None)}


# ------------------------------------------------------------------------------------------- curves


def curve_of(path: Path) -> list[dict[str, Any]]:
    """The evaluations of a run: eval.csv, or what result.json repeats of it (skills=oracle has only
    that)."""
    rows: list[dict[str, Any]] = read_log(path / "eval.csv")
    if not rows:
        rows = (read_result(path) or {}).get("curve") or []
    try:
        return [
            {
                name: str(value) if name in LOG_WORDS else as_float(value)
                for name, value in row.items()
            }
            | {"frame": int(row["frame"])}
            for row in rows
        ]
    except (TypeError, ValueError, OverflowError) as error:
        raise Damaged(f"an evaluation cannot be read ({error})") from error


def as_float(text: Any) -> float:
    return math.nan if text == "" else float(text)  # a column that came later is empty before


def read_curves(paths: Iterable[str | Path]) -> pd.DataFrame:
    """Evaluations of runs, one row each: path, frame, return_mean, return_std, ... as in eval.csv.

    A run before its first evaluation has no row; a damaged one is an error (read_runs calls it
    unreadable).
    """
    rows = []
    for path in paths:
        try:
            rows += [{"path": str(path), **row} for row in curve_of(Path(path))]
        except Damaged as error:
            raise Damaged(f"{path}: {error}") from error
    table = (
        pd.DataFrame(rows)
        if rows
        else pd.DataFrame(columns=["path", "frame", "return_mean", "return_std"])
    )
    return table.astype({"frame": int})


def read_train(paths: Iterable[str | Path], columns: Iterable[str]) -> pd.DataFrame:
    """Rows of train.csv: path, frame and these columns; NaN in windows where one was not
    measured."""
    columns, table = list(columns), []
    for path in paths:
        try:
            rows = read_log(Path(path) / "train.csv")
            if rows and (lacking := [name for name in columns if name not in rows[0]]):
                raise UserError(
                    f"{path}: train.csv has no {', '.join(lacking)}; it has {', '.join(rows[0])}"
                )
            table += [
                {"path": str(path)} | {name: as_float(row[name]) for name in ("frame", *columns)}
                for row in rows
            ]
        except (Damaged, ValueError) as error:
            raise Damaged(f"{path}: {error}") from error
    return pd.DataFrame(table, columns=["path", "frame", *columns]).astype({"frame": int})

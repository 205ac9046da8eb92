"""What result.json says of a finished run: its score, its curve, and where both come from."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path
from typing import Any

from run.cli import own
from utils import RESULTS, ROOT, UserError, versions

EXPERTS = RESULTS / "expert_scores.csv"
NOT_TABLES = ":(exclude,glob)results/*/**"  # for git: all but the tables that studies write


def expert_score(task: str | None) -> float | None:
    """The return that counts as 1 in normalised scores; None for a task that has none."""
    for path in expert_files():
        with path.open() as file:
            for row in csv.DictReader(file):
                if row.get("task") == task:
                    return _number(path, task, row.get("score"))
    return None


def expert_files() -> list[Path]:
    """The user's own in --config-dir first, then the project's."""
    found = own.directory()
    mine = [found / EXPERTS.name] if found else []
    return [path for path in (*mine, EXPERTS) if path.is_file()]


def _number(path: Path, task: str | None, text: str | None) -> float:
    try:
        score = float(text or "")
    except ValueError:
        score = 0.0
    if not 0 < score < float("inf"):
        raise UserError(f"{path}: the score of {task} is {text!r}; give a number above 0")
    return score


def git_state() -> dict[str, Any] | None:
    """The commit of the code that runs, and whether files differ from it; None outside of a
    checkout or without git. Tables below results/ do not count: a study that adds its rows to one of
    them would otherwise call its own code changed from the second row on."""

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != ROOT:
            return None  # a copy of the code inside somebody else's repository
        return {
            "commit": git("rev-parse", "HEAD"),
            "dirty": bool(git("status", "--porcelain", "-uno", "--", ".", NOT_TABLES)),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def normalized(task: str | None, score: float) -> float | None:
    """The return over the expert's, without offset or clipping; None for a task without an
    expert."""
    expert = expert_score(task)
    return None if expert is None else score / expert


def summary(
    config: dict[str, Any],
    *,
    variant: str,
    frame: int,
    final: dict[str, Any],
    curve: list[dict[str, Any]],
    wall_seconds: float,
    **more: Any,
) -> dict[str, Any]:
    """The content of result.json. `final` is the evaluation at the last frame, never the best
    one."""
    task = config.get("task", {}).get("name")
    return {
        "phase": config["phase"],
        "agent": config["agent"]["name"],
        "variant": variant,
        "domain": config["domain"]["name"],
        "task": task,
        "skills": config.get("skills", {}).get("name"),
        "frozen": config["learner"]["frozen"],
        "seed": config["seed"],
        "frame": frame,
        "score": final["return_mean"],
        "expert_score": expert_score(task),
        "normalized": normalized(task, final["return_mean"]),
        "final": final,
        "curve": curve,
        "wall_seconds": round(wall_seconds, 1),
        "versions": versions(),
        "git": git_state(),
        **more,
    }

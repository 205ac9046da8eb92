"""Runs that need not be run again, because a file of rows has their result.

Run directories stay on the machine that filled them, rows of results/ travel with the repository. A
study that takes days goes on elsewhere from its rows: what has one counts as done.
"""

from __future__ import annotations

import csv
from pathlib import Path

from experiment.definition import Experiment
from experiment.runs import Run
from utils import UserError


def portable(command: str) -> str:
    """The command without the directory that it wrote to, which is this machine's alone."""
    return " ".join(word for word in command.split(" ") if not word.startswith("run_root="))


def last_frames(path: Path) -> dict[str, int]:
    """The last frame that a CSV with the columns `command` and `frame` has of each command."""
    last: dict[str, int] = {}
    try:
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                last[row["command"]] = max(last.get(row["command"], 0), int(row["frame"]))
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(
            f"rows={path} cannot be read ({type(error).__name__}); give a CSV that "
            "python -m analysis.adapt wrote"
        ) from error
    return last


def left_to_do(found: Experiment, path: Path) -> Experiment:
    """The experiment without the fine-tunings whose last frame has a row, and without the
    pre-trainings that none of the others starts from."""
    last = last_frames(path)

    def is_done(run: Run) -> bool:
        return last.get(portable(run.command), -1) >= run.config["num_train_frames"]

    finetunings = [run for run in found.finetunings if not is_done(run)]
    if not finetunings:
        raise UserError(f"nothing is left: every fine-tuning of {found.name} has its row in {path}")
    needed = {run.after for run in finetunings}
    runs = [run for run in found.runs if run.path in needed]
    return found._replace(runs=runs, finetunings=finetunings)

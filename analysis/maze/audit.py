"""A study that grows: a row per run in one CSV, whichever machine and day it was made on.

What has a row is not run again, so the CSV in the repository is the study's memory: `run` trains and
measures what has none, one run after the other, seed by seed, and adds each row as soon as it is
there. A row is recognised by the command that makes it.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.maze.episodes import Trained, load, measures
from analysis.maze.measure import as_text, commit_of
from analysis.maze.pictures import EPISODES, draw_paths
from experiment.definition import Experiment
from experiment.runs import Run, compose
from run.files import require_result
from run.pretraining import pretrain
from utils import UserError

COLUMNS = (
    "domain",
    "agent",
    "setting",
    "surgery",
    "seed",
    "skills",
    "env_steps",
    "coverage",
    "mi_grid",
    "mi_mine",  # empty: a minute per row, and never far from mi_grid (docs/mazes.md)
    "entropy_kl",
    "separability",
    "command",
    "commit",
)
MEASURES = ("coverage", "mi_grid", "entropy_kl", "separability")
NUMBERS = ("seed", "skills", "env_steps", *MEASURES)


# --------------------------------------------------------------------------------------------- rows


def read_rows(path: Path) -> pd.DataFrame:
    """The rows so far; none where there is no file yet."""
    if not path.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    try:
        # Two processes that finish one run together both write its row: the same one.
        rows = pd.read_csv(path, keep_default_na=False).drop_duplicates(ignore_index=True)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({type(error).__name__})") from error
    if tuple(rows) != COLUMNS:
        raise UserError(f"{path} is not what analysis.balance writes: {', '.join(COLUMNS)}")
    for name in NUMBERS:
        if len(rows) and not pd.api.types.is_numeric_dtype(rows[name]):
            raise UserError(f"{path}: {name} is not a number in every row")
    twice = rows[rows.duplicated("command")]
    if len(twice):
        raise UserError(f"{path} has two rows of {twice['command'].iloc[0]}; remove one")
    return rows


def add_row(path: Path, row: dict[str, Any]) -> None:
    """At the end of the file, in one write: a second process may add rows at the same time."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        writer.writeheader()
    writer.writerow(as_text(row))
    with path.open("a", newline="") as file:
        file.write(text.getvalue())


def command_of(run: Run) -> str:
    """The run's command without the directory that it writes to, which is this machine's alone."""
    return " ".join(word for word in run.command.split(" ") if not word.startswith("run_root="))


def measure(run: Run, trained: Trained) -> dict[str, Any]:
    """The row of a finished run."""
    config, seed = run.config, run.config["seed"]
    paths, skill = trained.episodes(EPISODES)
    found = measures(paths, skill, trained.lanes.maze, seed=seed, mine_steps=0)
    return {
        "domain": config["domain"]["name"],
        "agent": config["agent"]["name"],
        "setting": run.method,
        "surgery": config["surgery"]["name"],
        "seed": seed,
        "skills": len(trained.skills),
        "env_steps": trained.frame // config["action_repeat"],
        "mi_mine": "",
        **{name: found[name] for name in MEASURES},
        "command": command_of(run),
        "commit": commit_of(require_result(run.path).get("git")),
    }


# ---------------------------------------------------------------------------------------- the study


def missing(experiment: Experiment, rows: pd.DataFrame) -> list[Run]:
    """The runs without a row, all settings of one seed before the next seed: whenever it is
    stopped, as many seeds as possible are complete."""
    known = set(rows["command"])
    without = [run for run in experiment.runs if command_of(run) not in known]
    return sorted(without, key=lambda run: run.config["seed"])


def make_rows(experiment: Experiment, path: Path) -> None:
    """Train and measure what has no row. In this process: starting another one for each run would
    cost a tenth of its time."""
    todo = missing(experiment, read_rows(path))
    print(f"{experiment.name}: {len(experiment.runs)} runs, {len(todo)} without a row", flush=True)
    for number, run in enumerate(todo, 1):
        if command_of(run) in set(read_rows(path)["command"]):
            continue  # another process has made it meanwhile
        print(f"{number} of {len(todo)}: {run.name}", flush=True)
        if run.state != "finished":
            pretrain(compose(run.words), run.words, draw_paths=draw_paths)
        row = measure(run, load(run.snapshot()))
        add_row(path, row)
        print(f"coverage {row['coverage']:.3f}, MI {row['mi_grid']:.3f}: {run.name}", flush=True)

"""The evaluations of an experiment's runs as data frames.

They come from the run directories, or from results/runs, where some are shipped. Each evaluation is
a row: method, domain, task, seed, frame, score, final, and where the run comes from. What is
missing, unfinished or unreadable is named in `gaps`.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from analysis.frames.runs import read_curves, read_run, read_train
from experiment.definition import Experiment, load, read, split_words
from experiment.runs import Run
from experiment.shapes import as_list
from run.cli.console import leave_out
from run.files import Damaged, read_log
from utils import RESULTS, write_text

SHIPPED = RESULTS / "runs"
COLUMNS = [
    "phase",
    "method",
    "domain",
    "task",
    "seed",
    "frame",
    "score",
    "final",
    "distinct",
    "wall_seconds",
    "device",
    "threads",
    "commit",
    "dirty",
    "command",
]
CONFLICT = ["surgery/conflict", "surgery/sample_conflict", "surgery/cosine", "surgery/dot"]
TRAIN = ["method", "domain", "seed", "frame", *CONFLICT]


class Gathered(NamedTuple):
    evaluations: pd.DataFrame  # of finished runs, both phases
    train: pd.DataFrame  # conflict over pre-training: method, domain, seed, frame and CONFLICT
    gaps: list[str]

    @property
    def scores(self) -> pd.DataFrame:
        """method, domain, task, seed, score at the end of fine-tuning."""
        rows = self.evaluations
        return rows[(rows["phase"] == "finetune") & rows["final"]][
            ["method", "domain", "task", "seed", "score"]
        ]

    @property
    def curves(self) -> pd.DataFrame:
        rows = self.evaluations
        return rows[rows["phase"] == "finetune"][
            ["method", "domain", "task", "seed", "frame", "score"]
        ]

    @property
    def distinct(self) -> pd.DataFrame:
        """The skills that each selector made its first choice in its last 5000 steps, as scores."""
        rows = self.evaluations[self.evaluations["final"] & self.evaluations["distinct"].notna()]
        return rows.assign(score=rows["distinct"])[["method", "domain", "task", "seed", "score"]]

    @property
    def hours(self) -> pd.DataFrame:
        """One row per finished run, as hours.wall_clock takes them."""
        return self.evaluations[self.evaluations["final"]].assign(state="finished")

    def save(self, out: Path, name: str) -> list[Path]:
        """Write the frames as results/runs has them: NAME.csv, and NAME_conflict.csv where there is
        a conflict."""
        frames = {out / f"{name}.csv": self.evaluations}
        if len(self.train):
            frames[out / f"{name}_conflict.csv"] = self.train
        for path, frame in frames.items():
            write_text(path, frame.to_csv(index=False, lineterminator="\n"))
        return list(frames)


def gather(experiment: Experiment) -> Gathered:
    parts, train, gaps = [], [], []
    for run in [*experiment.runs, *experiment.finetunings]:
        found = read_run(run.path)
        if found["state"] == "finished":
            try:
                rows, conflict = evaluations(run, found), conflicts(run)
            except Damaged as error:  # a log that read_run does not look at
                found |= {"state": "unreadable", "problem": str(error)}
        if found["state"] == "unreadable":
            leave_out(f"{run.path}: {found['problem']}")
        if found["state"] == "finished":
            parts.append(rows)
            train += conflict
        else:
            gaps.append(
                (
                    run,
                    "missing"
                    if not run.path.exists()
                    else found["state"] + (f" ({found['problem']})" if found["problem"] else ""),
                )
            )
    empty = nothing()
    table = pd.concat(parts, ignore_index=True)[COLUMNS] if parts else empty.evaluations
    over_time = pd.concat(train, ignore_index=True)[TRAIN] if train else empty.train
    return Gathered(table, over_time.dropna(subset=CONFLICT, how="all"), spell(gaps))


def nothing() -> Gathered:
    return Gathered(
        pd.DataFrame(columns=COLUMNS).astype({"final": bool}), pd.DataFrame(columns=TRAIN), []
    )


def conflicts(run: Run) -> list[pd.DataFrame]:
    """How the gradients of a pre-training agreed; of one with a single stream nothing."""
    rows = read_log(run.path / "train.csv")
    if run.phase != "pretrain" or not rows or not set(CONFLICT) <= rows[0].keys():
        return []
    return [
        read_train([run.path], CONFLICT).assign(
            method=run.method, domain=run.config["domain"]["name"], seed=run.config["seed"]
        )
    ]


def evaluations(run: Run, found: dict) -> pd.DataFrame:
    """The evaluations of one run. skills=oracle becomes two methods: the mean over skills is called
    `single`, the best skill keeps the name."""
    curve = read_curves([run.path]).assign(
        phase=run.phase,
        method=run.method,
        domain=found["domain"],
        task=found["task"] or "",
        seed=run.config["seed"],
        wall_seconds=found["wall_seconds"],
        device=found["device"],
        threads=found["threads"],
        commit=found["commit"],
        dirty=found["dirty"],
        command=run.command,
        distinct=distinct(run.path),
    )
    curve["score"], curve["final"] = curve["return_mean"], curve["frame"] == found["frame"]
    if "return_best" in curve:
        return pd.concat([curve.assign(method="single"), curve.assign(score=curve["return_best"])])
    return curve


def distinct(path: Path) -> float:
    """Of a selector's run, from the last row of its log; NaN of any other."""
    rows = read_log(path / "train.csv")
    return float(rows[-1].get("skills/distinct_greedy") or "nan") if rows else math.nan


def spell(gaps: list[tuple[Run, str]]) -> list[str]:
    """A line per phase, method and state, with every task and seed in it: finetune, cic, missing:
    walker_run 3-10."""
    lines: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for run, state in gaps:
        where = (
            run.config["task"]["name"] if run.phase == "finetune" else run.config["domain"]["name"]
        )
        lines.setdefault((run.phase, run.method, state), {}).setdefault(where, []).append(
            run.config["seed"]
        )
    return [
        f"{', '.join(key)}: "
        + "; ".join(f"{where} seed {ranges(seeds)}" for where, seeds in places.items())
        for key, places in lines.items()
    ]


def ranges(numbers: list[int]) -> str:
    """[1, 2, 3, 7] -> "1-3, 7"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def shipped_names() -> list[str]:
    return sorted(
        path.stem for path in SHIPPED.glob("*.csv") if not path.stem.endswith("_conflict")
    )


def shipped(name: str) -> Gathered:
    """The frames of results/runs, as `save` wrote them."""
    conflict = SHIPPED / f"{name}_conflict.csv"
    rows = pd.read_csv(
        SHIPPED / f"{name}.csv",
        keep_default_na=False,
        na_values={"threads": [""], "distinct": [""]},
    )
    return Gathered(rows, pd.read_csv(conflict) if conflict.exists() else nothing().train, [])


def could_have_runs(name: str, words: list[str], root: Path) -> bool:
    """Whether there is a run of the experiment's agents on its domains at all: composing the
    configs of hundreds of runs, to find that none is there, takes a minute."""
    if not root.is_dir() or {"methods", "domain"} & split_words(words).keys():
        return root.is_dir()
    entry = read(name)
    agents = {each if isinstance(each, str) else each["agent"] for each in entry["methods"]}
    domains = {domain for grid in as_list(entry["grid"]) for domain in as_list(grid["domain"])}
    return any(
        (root / "pretrain" / domain / agent).is_dir()
        or any(root.glob(f"finetune/{domain}_*/{agent}"))
        for domain in domains
        for agent in agents
    )


def find(name: str, words: list[str], root: Path) -> Gathered | None:
    """The finished runs of an experiment below run_root, else the shipped ones; None where there
    are neither."""
    found = nothing()
    if could_have_runs(name, words, root):
        found = gather(load([f"experiment={name}", *words]))
    if len(found.evaluations):
        return found
    return shipped(name) if name in shipped_names() else None

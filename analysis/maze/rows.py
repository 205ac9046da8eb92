"""Rows of measures for many snapshots, several at a time.

Each row is kept in a file that is named after all that it is made from, so that several experiments
measure the same snapshot only once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from analysis.maze.episodes import load
from analysis.maze.measure import NUMBERS, as_text, measure_bound, measure_snapshot
from experiment.runs import Run
from run.files import require_result
from run.pool import Job, JobPool
from utils import UserError, read_json, write_text

# Raise this when an estimator, an episode or a maze changes: all rows are then measured anew.
VERSION = 1
BOUNDS = {"floor": "random actions", "ceiling": "uniform states"}


class Target(NamedTuple):
    """A snapshot of a run to be measured, or a bound for runs of its maze and number of skills."""

    label: str
    group: str  # runs that are compared with each other
    run: Run
    frame: int
    bound: str | None = None

    @property
    def name(self) -> str:
        name = f"{self.label}, {self.group}"
        return name if self.bound else f"{name}, seed {self.run.config['seed']}"


class Measured(NamedTuple):
    label: str
    group: str
    bound: str | None
    row: dict[str, str]

    def value(self, name: str) -> float:
        return float(self.row[name])


def fingerprint(target: Target, options: argparse.Namespace) -> str:
    """A name for the row of a target, made from its snapshot, the options and VERSION: rows with
    the same name have the same values."""
    digest = hashlib.sha256(
        json.dumps([VERSION, options.episodes, options.mine_steps, target.bound]).encode()
    )
    config = target.run.config
    if target.bound:
        digest.update(
            json.dumps([config["domain"]["name"], config["skill_dim"], config["seed"]]).encode()
        )
    else:
        commit = require_result(target.run.path).get("git")
        digest.update(json.dumps([str(target.run.path.resolve()), commit]).encode())
        try:
            digest.update(target.run.snapshot(target.frame).read_bytes())
        except OSError as error:
            raise UserError(
                f"no snapshot at {target.run.snapshot(target.frame)}; remove {target.run.path} to train "
                "that run again"
            ) from error
    return digest.hexdigest()[:24]


def measure_to(path: Path, target: Target, options: argparse.Namespace) -> None:
    """One row into a file, in a process of its own."""
    torch.set_num_threads(1)  # sums in one order, whatever runs beside
    config = target.run.config
    options = argparse.Namespace(**vars(options), skills=config["skill_dim"], seed=config["seed"])
    if target.bound:
        row = measure_bound(target.bound, config["domain"]["name"], options)
    else:
        row = measure_snapshot(load(target.run.snapshot(target.frame)), options)
    write_text(path, json.dumps(as_text(row)))


def measure_all(targets: list[Target], options: argparse.Namespace, workers: int) -> list[Measured]:
    """In the order of the targets. What was measured before is read."""
    # beside the runs, wherever the figure goes
    rows = Path(targets[0].run.config["run_root"]) / "figures" / "rows"
    paths = [rows / f"{fingerprint(target, options)}.json" for target in targets]
    missing = {
        path: target for path, target in zip(paths, targets, strict=True) if not path.exists()
    }
    if missing:
        print(
            f"measuring {len(missing)} of {len(targets)} rows, {min(workers, len(missing))} at a time",
            flush=True,
        )
        jobs = [
            Job(f"row {target.name}", measure_to, (path, target, options))
            for path, target in missing.items()
        ]
        with tqdm(
            total=len(jobs), unit="row", desc="measures", disable=None, dynamic_ncols=True
        ) as bar:
            pool = JobPool(jobs, workers, "each finished row is kept", bar)
            pool.run()
        if pool.failed:
            raise UserError(
                f"{'; '.join(pool.failed)}: not measured, so nothing is drawn; the same command goes on"
            )
    return [
        Measured(target.label, target.group, target.bound, read_row(path))
        for target, path in zip(targets, paths, strict=True)
    ]


def read_row(path: Path) -> dict[str, str]:
    """A row that was measured before."""
    row = read_json(path)
    try:
        if not all(isinstance(value, str) for value in row.values()):
            raise ValueError("a value is no text")
        for name in NUMBERS:
            float(row[name])
    except (KeyError, ValueError) as error:
        raise UserError(
            f"{path} is no row of measures ({error}); remove it to measure it again"
        ) from error
    return row

"""cluster=local: the runs of a sweep as processes on this machine.

A run starts when a slot is free and the run that it needs is finished.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from experiment.board import Board, Row, show_once
from experiment.definition import Experiment
from experiment.graph import (
    command,
    damage,
    finished,
    home,
    in_use,
    last_line,
    log_of,
    only_one,
    point_by_point,
    runs_of,
)
from experiment.job import start
from experiment.runs import Run
from run.pool import POLL_SECONDS, Pool, default_workers
from utils import UserError

TAKEN = "is in use by another process"  # how a run says that it came second (run/directory.py)


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them, for a process that narrows it further."""
    if not torch.cuda.is_available():
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]


def make_slots(run: Run, settings: dict[str, Any]) -> list[str | None]:
    """The GPU of each run that has room beside the others; every GPU gets one before any has a
    second. None: wherever the run's own device= says."""
    gpus = visible_gpus() if settings["gpus"] is None else [str(gpu) for gpu in settings["gpus"]]
    shares, workers = gpus * settings["runs_per_gpu"], settings["workers"]
    if shares and run.device.type != "cpu":
        return list(shares[:workers])
    return [None] * (workers or default_workers(run.config, torch.device("cpu")))


def check(settings: dict[str, Any]) -> None:
    for key, low in (("workers", 1), ("runs_per_gpu", 1)):
        value = settings[key]
        if not (value is None and key == "workers") and (type(value) is not int or value < low):
            raise UserError(f"cluster.{key}={value} is not valid: a whole number of {low} or more")
    gpus = settings["gpus"]
    if gpus is not None and not (
        isinstance(gpus, list) and all(type(gpu) is int and gpu >= 0 for gpu in gpus)
    ):
        raise UserError(f"cluster.gpus={gpus} is not valid: a list such as [0,1]")


class RunPool(Pool[Run]):
    """The runs of a sweep, each as a command of its own once the run that it needs is there. Each
    is in one of: done, failed, going, waiting. One that fails stops nothing but what needs it."""

    def __init__(self, runs: list[Run], slots: list[str | None], board: Board):
        there = {run.path: damage(run.path) for run in runs if finished(run.path)}
        missing = [run for run in runs if run.path not in there]
        super().__init__(missing, slots, "each run is saved where it was")
        self.runs, self.board = runs, board
        # cores for each run, unless its own settings say how many threads it has
        self.share = (os.cpu_count() or 1) // len(slots)
        self.done = {path for path, line in there.items() if not line}
        self.failed = {path: line for path, line in there.items() if line}  # run directory -> why
        self.elsewhere: set[Path] = set()  # in use by a process that is not ours

    def blocked(self, item: Run) -> bool:
        return item.after in self.failed

    def ready(self, item: Run) -> bool:
        if item.after is not None and item.after not in self.done:
            return False
        if in_use(item.path):  # somebody started it by hand, or another sweep did
            self.elsewhere.add(item.path)
            return False
        self.elsewhere.discard(item.path)
        return True

    def begin(self, item: Run, gpu: str | None) -> subprocess.Popen | None:
        if finished(item.path):  # by somebody else, meanwhile
            self.done.add(item.path)
            return None
        where = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        return start(command(item, self.share), **where)

    def ended(self, item: Run, code: int) -> None:
        if finished(item.path):
            self.done.add(item.path)
            return
        line = last_line(log_of(item)) or f"exit code {code}, {log_of(item)}"
        if TAKEN in line:
            self.waiting.insert(0, item)
        else:
            self.failed[item.path] = line

    def show(self) -> None:
        self.board.show(self.rows())

    def rows(self) -> list[Row]:
        gpus = {each.item.path: each.gpu for each in self.going}
        return [self._row(run, gpus) for run in self.runs]

    def _row(self, run: Run, gpus: dict[Path, str | None]) -> Row:
        """`gpus`: where the runs that are going have their process."""
        if run.path in self.done:
            return Row(run, "finished")
        if run.path in gpus:
            gpu = gpus[run.path]
            return Row(run, "running", "" if gpu is None else f"GPU {gpu}")
        if run.path in self.failed:
            return Row(run, "failed", self.failed[run.path])
        if self.blocked(run):
            return Row(run, "blocked")
        return Row(run, "elsewhere" if run.path in self.elsewhere else "waiting")


# ------------------------------------------------------------------------------------------ actions


def lock_of(experiment: Experiment) -> Path:
    return home(runs_of(experiment)[0]) / f"{experiment.name}.running"


def run(experiment: Experiment, settings: dict[str, Any]) -> None:
    runs = point_by_point(experiment)
    slots = make_slots(runs[0], settings)
    with only_one(lock_of(experiment)):
        with Board(f"{experiment.name}: {experiment.title}, {len(slots)} at a time") as board:
            pool = RunPool(runs, slots, board)
            pool.run()
    if pool.failed:
        blocked = sum(pool.blocked(run) for run in pool.waiting)
        raise UserError(
            f"{len(pool.failed)} of {len(runs)} runs failed{f', {blocked} wait for them' if blocked else ''}"
            f"; what they said is below {home(runs[0])}; the same command tries them again"
        )


def status(experiment: Experiment, settings: dict[str, Any]) -> None:
    rows = []
    for each in runs_of(experiment):
        going = not finished(each.path) and in_use(each.path)
        state = "running" if going else each.state.partition(" ")[0]
        line = last_line(log_of(each)) if state == "unfinished" else ""
        rows.append(Row(each, state, line))
    show_once(f"{experiment.name}: {experiment.title}", rows)


def cancel(experiment: Experiment, settings: dict[str, Any]) -> None:
    """A SIGTERM for the process that runs the sweep, on this machine."""
    lock = lock_of(experiment)
    if not in_use(lock):
        return print("nothing of it is running")
    _, number, _, node = lock.read_text().split()
    if node != os.uname().nodename:
        raise UserError(f"the sweep runs on {node}; cancel it there")
    os.kill(int(number), signal.SIGTERM)
    while in_use(lock):
        time.sleep(POLL_SECONDS)
    print(f"cancelled: process {number}; each run is saved where it was")

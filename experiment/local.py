"""cluster=local: a pool of processes that starts a run when a slot and the run it needs are
free."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

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
    runs_of,
)
from experiment.job import start
from experiment.runs import Run
from run.pool import default_workers
from utils import STOPS, Interrupted, UserError

POLL_SECONDS = 0.5
TAKEN = "is in use by another process"  # how a run says that it came second (agent/rundir.py)


class Slot(NamedTuple):
    """Room for one run: a GPU or a share of it; None: wherever the run's own device= says."""

    number: int
    gpu: str | None


class Going(NamedTuple):
    run: Run
    slot: Slot
    process: subprocess.Popen


def visible_gpus() -> list[str]:
    """As CUDA_VISIBLE_DEVICES names them, for a process that narrows it further."""
    if not torch.cuda.is_available():
        return []
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]


def make_slots(run: Run, settings: dict[str, Any]) -> list[Slot]:
    """A run on each GPU before any has a second one."""
    gpus = visible_gpus() if settings["gpus"] is None else [str(gpu) for gpu in settings["gpus"]]
    shares, workers = gpus * settings["runs_per_gpu"], settings["workers"]
    if shares and run.device.type != "cpu":
        return [Slot(n, gpu) for n, gpu in enumerate(shares[:workers])]
    return [
        Slot(n, None) for n in range(workers or default_workers(run.config, torch.device("cpu")))
    ]


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


class Pool:
    """Each run is in one of: done, failed, going, waiting. One that fails stops nothing but what
    needs it."""

    def __init__(self, runs: list[Run], slots: list[Slot]):
        self.runs, self.free = runs, list(slots)
        self.share = (os.cpu_count() or 1) // len(
            slots
        )  # cores for each, where a run may take what it likes
        there = {run.path: damage(run.path) for run in runs if finished(run.path)}
        self.done = {path for path, line in there.items() if not line}
        self.failed = {path: line for path, line in there.items() if line}  # run directory -> why
        self.waiting = [run for run in runs if run.path not in there]
        self.going: list[Going] = []
        self.elsewhere: set[Path] = set()
        self.signum: int | None = None

    def _on_signal(self, signum: int, _) -> None:
        self.signum = signum

    def run(self, board: Board) -> None:
        """Until nothing is left that could run; a signal lets every run save first."""
        handlers = {s: signal.signal(s, self._on_signal) for s in STOPS}
        try:
            while True:
                self._reap()
                if self.signum:
                    self._stop()
                self._fill()
                board.show(self.rows())
                if not self.going and all(self.blocked(run) for run in self.waiting):
                    return
                time.sleep(POLL_SECONDS)
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def blocked(self, run: Run) -> bool:
        return run.after in self.failed

    def _fill(self) -> None:
        for run in list(self.waiting):
            if not self.free:
                return
            if run.after is not None and run.after not in self.done:
                continue
            if in_use(run.path):  # a run that somebody started by hand, or another sweep
                self.elsewhere.add(run.path)
                continue
            self.waiting.remove(run)
            self.elsewhere.discard(run.path)
            if finished(run.path):  # there, meanwhile
                self.done.add(run.path)
                continue
            slot = self.free.pop(0)
            gpu = {} if slot.gpu is None else {"CUDA_VISIBLE_DEVICES": slot.gpu}
            self.going.append(Going(run, slot, start(command(run, self.share), **gpu)))

    def _reap(self) -> None:
        for going in [each for each in self.going if each.process.poll() is not None]:
            self.going.remove(going)
            self.free.append(going.slot)
            run = going.run
            if finished(run.path):
                self.done.add(run.path)
                continue
            line = last_line(log_of(run)) or f"exit code {going.process.returncode}, {log_of(run)}"
            if TAKEN in line:
                self.waiting.insert(0, run)
            else:
                self.failed[run.path] = line

    def _stop(self) -> None:
        for going in self.going:
            going.process.terminate()
        for going in self.going:
            going.process.wait()
        raise Interrupted(self.signum, "each run is saved where it was")

    def rows(self) -> list[Row]:
        going = {each.run.path: each.slot for each in self.going}
        return [self._row(run, going.get(run.path)) for run in self.runs]

    def _row(self, run: Run, slot: Slot | None) -> Row:
        if run.path in self.done:
            return Row(run, "finished")
        if slot is not None:
            return Row(run, "running", f"GPU {slot.gpu}" if slot.gpu is not None else "")
        if run.path in self.failed:
            return Row(run, "failed", self.failed[run.path])
        return Row(
            run,
            "blocked"
            if self.blocked(run)
            else "elsewhere"
            if run.path in self.elsewhere
            else "waiting",
        )


# ------------------------------------------------------------------------------------------ actions


def lock_of(experiment: Experiment) -> Path:
    return home(runs_of(experiment)[0]) / f"{experiment.name}.running"


def run(experiment: Experiment, settings: dict[str, Any]) -> None:
    runs = runs_of(experiment)
    slots = make_slots(runs[0], settings)
    with only_one(lock_of(experiment)):
        pool = Pool(runs, slots)
        with Board(f"{experiment.name}: {experiment.title}, {len(slots)} at a time") as board:
            pool.run(board)
    if pool.failed:
        blocked = sum(pool.blocked(run) for run in pool.waiting)
        raise UserError(
            f"{len(pool.failed)} of {len(runs)} runs failed"
            + f", {blocked} wait for them" * bool(blocked)
            + f"; what they said is below {home(runs[0])}; the same command tries them again"
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

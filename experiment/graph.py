"""The runs of an experiment as a graph: what each waits for, what is there of it, how it starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from experiment import definition as experiment
from experiment.definition import Experiment
from experiment.job import Command
from experiment.runs import Run
from run.cli import own
from run.cli.console import printable
from run.cli.words import parse_value
from run.files import Damaged, read_config, read_result
from utils import CONFIGS, ROOT, UserError, choose

CLUSTERS = CONFIGS / "cluster"


# ------------------------------------------------------------------------------------ what is asked


def load(words: list[str]) -> Experiment:
    """The experiment as other processes will run it, perhaps on other machines. So what is
    unfinished is not checked against the device of this one."""
    return experiment.load(words, run_here=False)


def settings(cluster: str, given: dict[str, str]) -> dict[str, Any]:
    """configs/cluster/<cluster>.yaml, changed by cluster.KEY=VALUE of the command line; KEY.KEY
    reaches one level deeper."""
    choose("cluster", cluster, tuple(sorted(path.stem for path in CLUSTERS.glob("*.yaml"))))
    found = yaml.safe_load((CLUSTERS / f"{cluster}.yaml").read_text())
    for key, word in given.items():
        first, dot, second = key.partition(".")
        deeper = isinstance(found.get(first), dict)
        if first not in found or (bool(dot) and not deeper):
            raise UserError(
                f"cluster.{key} is not a key of configs/cluster/{cluster}.yaml; it has {', '.join(found)}"
            )
        value = parse_value(f"cluster.{key}", word)
        if not dot and found[first] is not None and not fits(value, found[first]):
            raise UserError(
                f"cluster.{key}={word} is not valid: the yaml has {found[first]!r}; "
                "give a value of that kind"
            )
        found[first] = {**found[first], second: value} if dot else value
    return found


def fits(value: Any, default: Any) -> bool:
    """Whether a value is of the same kind as the default. A number may be whole or not; ranges are
    checked where they matter."""
    numbers = [
        isinstance(each, int | float) and not isinstance(each, bool) for each in (value, default)
    ]
    return all(numbers) or type(value) is type(default)


# ------------------------------------------------------------------------------------ what there is


def runs_of(found: Experiment) -> list[Run]:
    """All runs, each after the one that it needs."""
    return [*found.runs, *found.finetunings]


def point_by_point(found: Experiment) -> list[Run]:
    """All runs in the order of the grid: a pre-training right before the first fine-tuning that
    starts from it. So a sweep that is stopped half way has finished some points of the grid, not
    the pre-trainings of all."""
    sources = {run.path: run for run in found.runs}
    ordered = []
    for run in found.finetunings:
        if run.after in sources:
            ordered.append(sources.pop(run.after))
        ordered.append(run)
    return [*ordered, *sources.values()]


def finished(path: Path) -> bool:
    return (path / "result.json").exists()


def damage(path: Path) -> str:
    """Why a run that looks finished is not: its result.json holds no result. Empty if it does. The
    file is never removed here."""
    try:
        read_result(path)
    except Damaged as error:
        return f"{path}: {error}; remove it to run that again"
    return ""


def in_use(path: Path) -> bool:
    """Whether another process has locked the run directory (run/directory.py)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    finally:
        os.close(handle)
    return False


def home(run: Run) -> Path:
    """Where sweeps write their logs and records: below run_root, like everything."""
    return Path(run.config["run_root"]) / "sweep"


def key(run: Run) -> str:
    """A run's name in the records of a sweep: its directory below run_root."""
    return run.path.relative_to(run.config["run_root"]).as_posix()


def log_of(run: Run) -> Path:
    return home(run) / f"{key(run)}.log"


def last_line(path: Path) -> str:
    """The last line of a log, which may be long; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return printable(next((line.strip() for line in reversed(lines) if line.strip()), ""))


# ------------------------------------------------------------------------------------- how to start


def threads(run: Run, share: int) -> int:
    """The threads of a run: what its own settings say, else what an earlier start of it had
    (another count would move bits), else a share of the cores."""
    preset = run.config["preset"].get(run.config["learner"]["name"], {})
    if preset.get("num_threads") or any(word.startswith("num_threads=") for word in run.words):
        return run.config["num_threads"]
    try:
        before = read_config(run.path)
    except Damaged:
        before = None  # the run itself will say so
    return (before or {}).get("num_threads") or max(1, share)


def command(run: Run, share: int) -> Command:
    return Command(
        [sys.executable, str(ROOT / f"{run.phase}.py"), *own.options(), *run.words],
        str(log_of(run).absolute()),
        threads(run, share),
    )


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a file that names this process, so that a second sweep is refused. The lock goes away
    with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UserError(
            f"this sweep is running already ({path.read_text().strip()}); action=status shows it, "
            "action=cancel stops it"
        ) from None
    try:
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        yield
    finally:
        os.close(handle)

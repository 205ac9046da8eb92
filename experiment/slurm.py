"""cluster=slurm: the missing runs as job arrays by submitit, fine-tunings after their pre-training.

What a job holds is written before it is submitted, under a name that the job carries: squeue then
says which runs are queued or running, whatever became of the process that submitted them.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import submitit

from experiment.board import Board, Row, show_once
from experiment.definition import Experiment
from experiment.graph import (
    ROOT,
    command,
    damage,
    finished,
    home,
    key,
    last_line,
    log_of,
    only_one,
    runs_of,
)
from experiment.job import Pack
from experiment.runs import Run
from utils import UserError, read_json, write_text

POLL_SECONDS = 5
# How submitit starts Python in a job: signals are taken before its own imports.
PYTHON = f"{shlex.quote(sys.executable)} -u -m experiment.entry"
ENDED = {
    "COMPLETED",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "BOOT_FAIL",
    "DEADLINE",
    "OUT_OF_MEMORY",
}
ASKED = ("partition", "account", "qos", "constraint")
PER_PHASE = (
    *ASKED,
    "gpus",
    "cpus",
    "mem_gb",
    "hours",
    "parallel",
    "warning_seconds",
    "setup",
    "extra",
)


class Task(NamedTuple):
    """A job, or an element of an array, as squeue shows it."""

    id: str  # 12, or 12_3
    state: str
    reason: str

    @property
    def live(self) -> bool:
        return self.state not in ENDED and self.reason != "DependencyNeverSatisfied"


def call(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise UserError(
            f"no {words[0]} here: cluster=slurm runs where jobs can be submitted; cluster=local needs "
            "nothing"
        ) from None
    except subprocess.CalledProcessError as error:
        raise UserError(f"{words[0]}: {' '.join(error.stderr.split())}") from error


# ------------------------------------------------------------------------------------ what there is


def queue() -> dict[tuple[str, int], Task]:
    """What squeue shows of this user: (job name, index in its array) -> task. Slurm keeps jobs that
    have just ended for a few minutes."""
    found = {}
    for line in call(
        "squeue", "--me", "-h", "-r", "-t", "all", "-o", "%F|%K|%j|%T|%r"
    ).splitlines():
        number, index, name, state, reason = line.split("|", 4)
        single = not index.isdigit()
        found[name, 0 if single else int(index)] = Task(
            number if single else f"{number}_{index}", state, reason
        )
    return found


def records(folder: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Job name, index in its array and the runs inside, for everything that was ever submitted,
    oldest first."""
    for path in sorted(folder.glob("*.json")):
        arrays: Any = read_json(path).get("arrays")
        try:
            found = [
                (f"{path.stem}.{number}", index, [str(run) for run in runs])
                for number, packs in enumerate(arrays)
                for index, runs in enumerate(packs)
            ]
        except TypeError as error:
            raise UserError(f"{path} is no record of a sweep; move it away") from error
        yield from found


def tasks(runs: list[Run]) -> dict[str, Task | None]:
    """The job of each run: a live one if there is any, else the last one; None where Slurm has
    forgotten it."""
    found: dict[str, Task | None] = {}
    shown = queue()
    for name, index, inside in records(home(runs[0]) / "slurm"):
        task = shown.get((name, index))
        for each in inside:
            known = found.get(each)
            if known is None or not known.live:
                found[each] = task
    return found


def rows(runs: list[Run]) -> list[Row]:
    known = tasks(runs)
    return [row(run, key(run) in known, known.get(key(run))) for run in runs]


def row(run: Run, submitted: bool, task: Task | None) -> Row:
    if finished(run.path):
        line = damage(run.path)
        return Row(run, "failed" if line else "finished", line)
    if task and task.live:
        if task.state in ("RUNNING", "COMPLETING"):
            return Row(run, "running", f"job {task.id}")
        return Row(run, "queued", f"job {task.id}, {task.reason}")
    if submitted:
        ended = f"job {task.id} {task.state.lower()}" if task else "its job has ended"
        return Row(run, "failed", f"{ended}: {last_line(log_of(run)) or 'it never began'}")
    return Row(run, run.state.partition(" ")[0])


# --------------------------------------------------------------------------------------- submitting


class Array(NamedTuple):
    """Tasks with the same resources and the same dependency; each a pack of runs that share an
    allocation."""

    phase: str
    packs: list[list[Run]]
    # A job id, or the position of a pack among all new pre-trainings; None: free.
    after: str | int | None


def chunks(items: list, size: int) -> list[list]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def make_arrays(todo: list[Run], live: dict[Path, str], settings: dict[str, Any]) -> list[Array]:
    """The missing runs as job arrays, pre-trainings first. Fine-tunings are grouped by the job that
    they wait for: one that is live already, or a new pack of pre-trainings."""
    size = settings["runs_per_gpu"] if settings["gpus"] else 1
    before = chunks([run for run in todo if run.phase == "pretrain"], size)
    place = {run.path: number for number, pack in enumerate(before) for run in pack}
    groups: dict[str | int | None, list[Run]] = {}
    for run in todo:
        if run.phase == "finetune":
            needed = (
                None
                if run.after is None or finished(run.after)
                else live.get(run.after, place.get(run.after, ""))
            )
            if needed != "":  # "": its pre-training cannot be started (damaged)
                groups.setdefault(needed, []).append(run)
    arrays = [Array("pretrain", packs, None) for packs in chunks(before, settings["max_array"])]
    for needed, runs in groups.items():
        arrays += [
            Array("finetune", packs, needed)
            for packs in chunks(chunks(runs, size), settings["max_array"])
        ]
    return arrays


def of_phase(phase: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, **settings["finetune"]} if phase == "finetune" else settings


def parameters(array: Array, settings: dict[str, Any]) -> dict[str, Any]:
    """What one pack needs, in the words of submitit."""
    own, most = of_phase(array.phase, settings), max(len(pack) for pack in array.packs)
    cpus = own["cpus"] * most
    asked = {name: own[name] for name in ASKED if own[name] is not None}
    return {
        **asked,
        **({"gres": f"gpu:{own['gpus']}"} if own["gpus"] else {}),
        "cpus_per_task": cpus,
        "srun_args": [f"--cpus-per-task={cpus}"],  # since 22.05 srun does not take it from sbatch
        "mem": own["mem_gb"] * most,
        "time": math.ceil(own["hours"] * 60),
        "array_parallelism": own["parallel"],
        "setup": [
            f"export PYTHONPATH={shlex.quote(str(ROOT))}${{PYTHONPATH:+:$PYTHONPATH}}",
            *own["setup"],
        ],
        "stderr_to_stdout": True,
        # a fine-tuning whose pre-training failed leaves the queue, and is submitted with it the
        # next time
        "additional_parameters": {
            "signal": f"USR1@{own['warning_seconds']}",
            "requeue": True,
            "kill-on-invalid-dep": "yes",
            **own["extra"],
        },
    }


def submit(arrays: list[Array], folder: Path, name: str, settings: dict[str, Any]) -> Iterator[str]:
    """Submit the arrays and yield a line about each. The record of what they hold is written
    before."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}-{uuid.uuid4().hex[:6]}"
    content = {"arrays": [[[key(run) for run in pack] for pack in array.packs] for array in arrays]}
    write_text(folder / f"{name}.json", json.dumps(content) + "\n")
    started: list[str] = []  # job ids of the packs of pre-trainings
    for number, array in enumerate(arrays):
        executor = submitit.SlurmExecutor(folder / name, python=PYTHON)
        after = (
            {}
            if array.after is None
            else {
                "dependency": f"afterok:{started[array.after] if isinstance(array.after, int) else array.after}"
            }
        )
        executor.update_parameters(
            job_name=f"{name}.{number}", **parameters(array, settings), **after
        )
        calls = [
            Pack([command(run, of_phase(array.phase, settings)["cpus"]) for run in pack])
            for pack in array.packs
        ]
        try:
            with contextlib.redirect_stderr(io.StringIO()):  # it repeats what sbatch says
                jobs = executor.submit_array(calls)
        except (
            submitit.core.utils.FailedJobError,
            submitit.core.utils.FailedSubmissionError,
        ) as error:
            said = " ".join(str(error).replace("sbatch: error: ", "").split())
            raise UserError(
                f"sbatch refused: {said}; {number} of {len(arrays)} arrays are submitted, the same command "
                "goes on"
            ) from error
        if array.phase == "pretrain":
            started += [job.job_id for job in jobs]
        ids = (
            jobs[0].job_id
            if len(jobs) == 1
            else f"{jobs[0].job_id.partition('_')[0]}_[0-{len(jobs) - 1}]"
        )
        said = f"submitted {ids}: {sum(map(len, array.packs))} x {array.phase}"
        yield f"{said}, {after['dependency']}" if after else said


# ------------------------------------------------------------------------------------------ actions


def check(settings: dict[str, Any]) -> None:
    if unknown := sorted(set(settings["finetune"]) - set(PER_PHASE)):
        raise UserError(
            f"cluster.finetune.{unknown[0]} is not known; choose from {', '.join(PER_PHASE)}"
        )
    for phase in ("pretrain", "finetune"):
        own = of_phase(phase, settings)
        for name, low in (
            ("gpus", 0),
            ("runs_per_gpu", 1),
            ("cpus", 1),
            ("parallel", 1),
            ("max_array", 1),
            ("warning_seconds", 0),
        ):
            if type(own[name]) is not int or own[name] < low:
                raise UserError(
                    f"cluster.{name}={own[name]} is not valid: a whole number of {low} or more"
                )
        for name in ("hours", "mem_gb"):
            if type(own[name]) not in (int, float) or not 0 < own[name] <= 10**6:
                raise UserError(
                    f"cluster.{name}={own[name]} is not valid: a number above 0, to 1e+06"
                )
        for name in ASKED:
            if own[name] is not None and not isinstance(own[name], str):
                raise UserError(f"cluster.{name}={own[name]} is not valid: a name, or null")
        if not (
            isinstance(own["setup"], list) and all(isinstance(line, str) for line in own["setup"])
        ):
            raise UserError(
                f"cluster.setup={own['setup']} is not valid: a list of lines, such as [module load cuda]"
            )
        if not isinstance(own["extra"], dict):
            raise UserError(
                f"cluster.extra={own['extra']} is not valid: options of sbatch, such as {{exclude: node7}}"
            )


def run(experiment: Experiment, settings: dict[str, Any]) -> None:
    runs = runs_of(experiment)
    title = f"{experiment.name}: {experiment.title}, on Slurm"
    with only_one(home(runs[0]) / "slurm.submitting"):
        known = tasks(runs)
        live = {run.path: task.id for run in runs if (task := known.get(key(run))) and task.live}
        todo = [run for run in runs if not finished(run.path) and run.path not in live]
        for line in (
            submit(
                make_arrays(todo, live, settings),
                home(runs[0]) / "slurm",
                experiment.name,
                settings,
            )
            if todo
            else ["nothing to submit"]
        ):
            print(line, flush=True)
    if not settings["follow"]:
        return show_once(title, rows(runs))
    with Board(title) as board:
        while True:
            now = rows(runs)
            board.show(now)
            if not any(each.state in ("queued", "running") for each in now):
                break
            time.sleep(POLL_SECONDS)
    if failed := sum(each.state != "finished" for each in now):
        raise UserError(
            f"{failed} of {len(runs)} runs are not finished; the same command submits them again"
        )


def status(experiment: Experiment, settings: dict[str, Any]) -> None:
    show_once(f"{experiment.name}: {experiment.title}, on Slurm", rows(runs_of(experiment)))


def cancel(experiment: Experiment, settings: dict[str, Any]) -> None:
    """Cancel the queued and running jobs of the experiment. A job may hold runs of another
    experiment too, which go with it."""
    runs = runs_of(experiment)
    known = tasks(runs)
    ids = sorted({task.id for run in runs if (task := known.get(key(run))) and task.live})
    for some in chunks(ids, 500):
        call("scancel", *some)
    print(f"cancelled: {len(ids)} jobs" if ids else "nothing of it is queued or running")

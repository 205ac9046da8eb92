"""Runs as processes: `start` makes one, a `Pack` is several inside a Slurm job.

Imported by every job before anything else, so that it needs no more than Python.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from run.signals import deaf_children

POLL_SECONDS = 0.2
# Slurm signals every process of a step: runs save by themselves, and are told only if they go on
FORWARD_SECONDS = 2
WARNINGS = (signal.SIGUSR1, signal.SIGTERM)
DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # of torch and numpy
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Command(NamedTuple):
    argv: list[str]
    log: str  # what it prints is added to this file
    threads: int


def follow_parent() -> None:
    """In the new process: a SIGTERM of its own, on which it saves, when its parent is gone."""
    if LIBC:
        LIBC.prctl(DEATH_SIGNAL, signal.SIGTERM)


def start(command: Command, **environment: str) -> subprocess.Popen:
    """The script as a user starts it, with as many threads as it may have."""
    Path(command.log).parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        **dict.fromkeys(POOLS, str(command.threads)),
        "TQDM_DISABLE": "1",
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    with open(command.log, "ab") as log, deaf_children():
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            preexec_fn=follow_parent,
        )


def requeue(signum: int, said: str) -> None:
    """Send this job back into the queue, if Slurm still calls it running: one that was cancelled
    must not come back."""
    number, index = os.environ["SLURM_JOB_ID"], os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{index}" if index else number
    state = subprocess.run(
        ["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True
    ).stdout.strip()
    print(f"{signal.Signals(signum).name}: {said}; job {job} is {state}", flush=True)
    if state == "RUNNING":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which the requeue itself brings
        subprocess.run(["scontrol", "requeue", job], check=True)
        print(f"job {job} is requeued", flush=True)


def requeue_when_warned() -> None:
    """Until the runs are started: a warned job goes back into the queue, and its process ends, in the
    middle of whatever import it is at."""

    def leave(signum: int, _) -> None:
        for each in WARNINGS:  # once is enough
            signal.signal(each, signal.SIG_IGN)
        try:
            requeue(signum, "nothing was started yet")
        finally:
            os._exit(128 + signum)

    for signum in WARNINGS:
        signal.signal(signum, leave)


class Pack:
    """Runs that share an allocation, as one call for submitit. SIGUSR1 (--signal) and SIGTERM let
    each of them save; the job then goes back into the queue, and its next start continues them."""

    def __init__(self, commands: list[Command]):
        self.commands = commands
        self.signum: int | None = None

    def _on_signal(self, signum: int, _) -> None:
        self.signum = self.signum or signum

    def __call__(self) -> None:
        # in place of submitit's own handlers, which would not wait for the runs
        for signum in WARNINGS:
            signal.signal(signum, self._on_signal)
        processes, deadline = [start(command) for command in self.commands], None
        while any(process.poll() is None for process in processes):
            if self.signum and deadline is None:
                deadline = time.monotonic() + FORWARD_SECONDS
            if deadline and time.monotonic() > deadline:
                deadline = float("inf")
                for process in processes:
                    process.terminate()
            time.sleep(POLL_SECONDS)
        codes = [process.returncode for process in processes]
        if self.signum and any(codes):
            requeue(self.signum, "the runs are saved")
            sys.exit(128 + self.signum)
        if any(codes):
            raise RuntimeError(
                f"exit codes {codes}; what the runs said: {[c.log for c in self.commands]}"
            )

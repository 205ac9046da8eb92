"""Jobs in processes of their own, several at a time: quiet, stopped in order by a signal, gone with
their parent."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm

from utils import STOPS, Interrupted, UserError

POLL_SECONDS = 0.5


class Job(NamedTuple):
    """A call for a process of its own. What it returns is lost: it leaves its result in a file."""

    name: str  # in messages
    call: Callable[..., Any]  # a new interpreter imports it by name
    args: tuple
    size: int = 1  # what the bar gains by it
    run: Path | None = None  # the run directory that says how far it has come


def work(name: str, call: Callable[..., Any], args: tuple) -> None:
    """A job inside its process: no output but errors, and a SIGTERM of its own when the parent
    goes."""

    def follow() -> None:
        multiprocessing.parent_process().join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    sys.stdout = open(os.devnull, "w")
    try:
        call(*args)
    except UserError as error:
        print(f"error: {name}: {error}", file=sys.stderr, flush=True)
        sys.exit(2)
    except Interrupted as stop:
        sys.exit(stop.exit_code)


class Pool:
    """Runs jobs in their order, `workers` at a time. A signal lets each of them save first, which
    `saved` then says; one that fails does not stop the others and is named in `failed`."""

    def __init__(self, jobs: list[Job], workers: int, saved: str):
        self.waiting, self.workers, self.saved = list(jobs), workers, saved
        self.running: list[tuple[Job, multiprocessing.Process]] = []
        self.failed: list[str] = []
        self.signum: int | None = None

    def run(self, bar: tqdm, report: Callable[[Job], None]) -> None:
        """To the end of all jobs; `report` is called after each that ended well."""
        handlers = {s: signal.signal(s, self._on_signal) for s in STOPS}
        finished = bar.n
        try:
            while self.waiting or self.running:
                if self.signum:
                    self._stop()
                self._fill()
                time.sleep(POLL_SECONDS)
                finished += sum(job.size for job in self._reap(report))
                bar.n = finished + sum(last_frame(job.run) for job, _ in self.running if job.run)
                bar.refresh()
            if self.signum and self.failed:  # it reached the processes before this one looked
                self._stop()
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)

    def _on_signal(self, signum: int, _) -> None:
        self.signum = signum

    def _fill(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a forked torch may hang in its thread pool
        while self.waiting and len(self.running) < self.workers:
            job = self.waiting.pop(0)
            process = spawn.Process(target=work, args=(job.name, job.call, job.args))
            self.running.append((job, process))
            with quiet():
                process.start()

    def _reap(self, report: Callable[[Job], None]) -> list[Job]:
        """Those that ended since the last look."""
        seen = [(job, process, process.is_alive()) for job, process in self.running]
        self.running = [(job, process) for job, process, alive in seen if alive]
        ended = [(job, process.exitcode) for job, process, alive in seen if not alive]
        for job, code in ended:
            if code:
                self.failed.append(f"{job.name} (exit code {code})")
            else:
                report(job)
        return [job for job, _ in ended]

    def _stop(self) -> None:
        for _, process in self.running:
            process.terminate()
        for _, process in self.running:
            process.join()
        raise Interrupted(self.signum, self.saved)


@contextlib.contextmanager
def quiet():
    """Processes started inside show no progress of their own and never see a Ctrl-C: this one stops
    them."""
    resource_tracker.ensure_running()  # its own start would unblock the signal
    os.environ["TQDM_DISABLE"] = "1"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        del os.environ["TQDM_DISABLE"]


def last_frame(path: Path) -> int:
    """How far an unfinished run has come, from the last line of its train.csv."""
    try:
        frame = (path / "train.csv").read_text().splitlines()[-1].partition(",")[0]
    except (OSError, IndexError):
        return 0
    return int(frame) if frame.isdigit() else 0


def default_workers(config: dict[str, Any], device: torch.device) -> int:
    return max(1, (os.cpu_count() or 1) // config["num_threads"]) if device.type == "cpu" else 1

"""Work in processes of its own, several at a time, that a signal stops in order.

`Pool` is the loop that starts, watches and stops processes. `JobPool` fills it with calls of Python
functions; experiment/local.py fills it with the runs of a sweep, as commands.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from tqdm import tqdm

from run.cli.console import printable
from run.signals import deaf_children, stops_go_to, was_stopped
from utils import Interrupted, UserError

POLL_SECONDS = 0.5

Item = TypeVar("Item")


class Process(Protocol):
    """What a pool asks of a process, in the words of subprocess.Popen."""

    def poll(self) -> int | None:
        """The exit code; None while it runs."""

    def terminate(self) -> None: ...

    def wait(self) -> Any: ...


@dataclass(frozen=True)
class Going(Generic[Item]):
    """An item whose process runs."""

    item: Item
    gpu: str | None
    process: Process


class Pool(ABC, Generic[Item]):
    """Processes for items, in their order, as many at a time as there are slots.

    A slot is the name of a GPU that its process has to use, or None where the process may choose.
    A signal lets each process save before `run` raises Interrupted, which then says `saved`. An
    item that fails does not stop the others.
    """

    def __init__(self, items: list[Item], slots: list[str | None], saved: str):
        self.waiting, self.free, self.saved = list(items), list(slots), saved
        self.going: list[Going[Item]] = []
        self.signum: int | None = None

    @abstractmethod
    def begin(self, item: Item, gpu: str | None) -> Process | None:
        """Start its process; None where it turns out that nothing is left to do for it."""

    @abstractmethod
    def ended(self, item: Item, code: int) -> None:
        """Its process has left with this exit code."""

    @abstractmethod
    def show(self) -> None:
        """Tell the user how far it has come; called at every look."""

    def ready(self, item: Item) -> bool:
        """It can start now, if a slot is free."""
        return True

    def blocked(self, item: Item) -> bool:
        """It will never be ready."""
        return False

    def run(self) -> None:
        """Until nothing runs and nothing is left that could."""
        with stops_go_to(self._on_signal):
            while True:
                stopped = self._reap()
                if stopped and self.signum is None:
                    # Whoever stopped them may have meant this process too (Ctrl-C and batch systems
                    # signal all at once), and its own signal may still be on its way.
                    time.sleep(POLL_SECONDS)
                if self.signum is not None:
                    self._stop(self.signum)
                self._fill()
                self.show()
                if not self.going and all(self.blocked(item) for item in self.waiting):
                    return
                time.sleep(POLL_SECONDS)

    def _on_signal(self, signum: int, _: object) -> None:
        self.signum = signum

    def _fill(self) -> None:
        for item in list(self.waiting):
            if not self.free:
                return
            if not self.ready(item):
                continue
            self.waiting.remove(item)
            if (process := self.begin(item, self.free[0])) is not None:
                self.going.append(Going(item, self.free.pop(0), process))

    def _reap(self) -> bool:
        """Take leave of the processes that have ended; whether a signal stopped one of them."""
        codes = []
        for each in list(self.going):
            if (code := each.process.poll()) is not None:
                self.going.remove(each)
                self.free.append(each.gpu)
                self.ended(each.item, code)
                codes.append(code)
        return any(was_stopped(code) for code in codes)

    def _stop(self, signum: int) -> None:
        for each in self.going:
            each.process.terminate()
        for each in self.going:
            each.process.wait()
        raise Interrupted(signum, self.saved)


# --------------------------------------------------------------------------------- jobs: calls


class Job(NamedTuple):
    """A call for a process of its own. What it returns is lost: it leaves its result in a file."""

    name: str  # in messages
    call: Callable[..., Any]  # a new interpreter imports it by name
    args: tuple
    size: int = 1  # what the bar gains by it
    run: Path | None = None  # the run directory that says how far it has come


class JobProcess(SpawnProcess):
    """A job in a new interpreter: a forked one may hang in torch's thread pool. It prints nothing
    but errors."""

    def __init__(self, job: Job):
        super().__init__()
        self.job = job

    def run(self) -> None:
        threading.Thread(target=leave_with_parent, daemon=True).start()
        sys.stdout = open(os.devnull, "w")
        try:
            self.job.call(*self.job.args)
        except UserError as error:
            print(printable(f"error: {self.job.name}: {error}"), file=sys.stderr, flush=True)
            sys.exit(2)
        except Interrupted as stop:
            sys.exit(stop.exit_code)

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> None:
        self.join()


def leave_with_parent() -> None:
    """Wait for the parent's end, however it comes, then ask this process to save and leave."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only for a process that multiprocessing started"
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


class JobPool(Pool[Job]):
    """Jobs, `workers` at a time. The bar counts their sizes, and `report` is called after each that
    ended well; the others are named in `failed`."""

    def __init__(
        self,
        jobs: list[Job],
        workers: int,
        saved: str,
        bar: tqdm,
        report: Callable[[Job], None] | None = None,
    ):
        super().__init__(jobs, [None] * workers, saved)
        self.bar, self.report, self.finished = bar, report, bar.n
        self.failed: list[str] = []

    def begin(self, item: Job, gpu: str | None) -> JobProcess:
        process = JobProcess(item)
        with quiet_children():
            process.start()
        return process

    def ended(self, item: Job, code: int) -> None:
        self.finished += item.size
        if code:
            self.failed.append(f"{item.name} (exit code {code})")
        elif self.report:
            self.report(item)

    def show(self) -> None:
        runs = [each.item.run for each in self.going if each.item.run]
        self.bar.n = self.finished + sum(map(last_frame, runs))
        self.bar.refresh()


@contextlib.contextmanager
def quiet_children() -> Iterator[None]:
    """Processes started inside show no progress of their own and never see a Ctrl-C."""
    resource_tracker.ensure_running()  # its own start would unblock the signal
    os.environ["TQDM_DISABLE"] = "1"
    try:
        with deaf_children():
            yield
    finally:
        del os.environ["TQDM_DISABLE"]


def last_frame(path: Path) -> int:
    """How far an unfinished run has come, from the last line of its train.csv."""
    try:
        frame = (path / "train.csv").read_text().splitlines()[-1].partition(",")[0]
    except (OSError, IndexError):
        return 0
    return int(frame) if frame.isdigit() else 0


def default_workers(config: dict[str, Any], device: torch.device) -> int:
    """As many as the cores have room for; one on a GPU."""
    return max(1, (os.cpu_count() or 1) // config["num_threads"]) if device.type == "cpu" else 1

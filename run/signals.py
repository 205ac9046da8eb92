"""The signals that stop a run, and how they are heard.

Jobs of a cluster import this before anything else, so it needs no more than Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

# A run saves and leaves on any of these. SIGUSR1 is what Slurm's --signal sends before time is up.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def was_stopped(code: int) -> bool:
    """Whether a process with this exit code was ended by such a signal, or left because of it (as a
    shell says it: 128 and the signal's number)."""
    return any(code in (-signum, 128 + signum) for signum in STOPS)


@contextlib.contextmanager
def stops_go_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, `handler` gets every signal of STOPS; afterwards whoever had them before."""
    before = {signum: signal.signal(signum, handler) for signum in STOPS}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


class BrokenOff(BaseException):
    """Raised by a handler out of a computation that takes minutes and that moves nothing until it
    is done. No `except Exception` of a library on the way takes it for a failure of its own."""


def hear_early() -> None:
    """Take the signals before the slow imports. Until a run has handlers of its own there is nothing
    to save, so one line is said and the process ends; whoever started it reads from the exit code
    that it was stopped, and starts it again (experiment/job.py requeues its job). Without this,
    SIGUSR1 would kill it without a word, and Ctrl-C print where the import was."""

    def stop(signum: int, _: FrameType | None) -> None:
        name = signal.Signals(signum).name
        line = f"{name}: stopped before anything was trained; the same command starts it again\n"
        os.write(2, line.encode())
        os._exit(128 + signum)  # in the middle of an import nothing can be tidied up

    for signum in STOPS:
        signal.signal(signum, stop)


def hear_plainly() -> None:
    """What Python does by itself, for a script whose imports are done and that has no handlers of its
    own: Ctrl-C raises KeyboardInterrupt, the others end the process."""
    for signum in STOPS:
        own = signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL
        signal.signal(signum, own)


def started_as(name: str) -> bool:
    """Whether this process is the script `name`.py or its command amped-`name`, which both end with
    it. A module that is imported by others leaves their handlers alone, and so does a process of a
    pool, which has its parent's arguments: that one is told by what has started it."""
    if "multiprocessing.spawn" in sys.modules:
        return False
    return os.path.basename(sys.argv[0]) in (f"{name}.py", f"amped-{name}")


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started inside never see a Ctrl-C, which a terminal sends to all of them at once:
    the one that started them stops them in order, by SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

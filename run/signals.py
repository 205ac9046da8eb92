"""The signals that stop a run, and how they are heard.

Jobs of a cluster import this before anything else, so it needs no more than Python.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

# A run saves and leaves on any of these. SIGUSR1 is what Slurm's --signal sends before time is up.
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


@contextlib.contextmanager
def stops_go_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, `handler` gets every signal of STOPS; afterwards whoever had them before."""
    before = {signum: signal.signal(signum, handler) for signum in STOPS}
    try:
        yield
    finally:
        for signum, old in before.items():
            signal.signal(signum, old)


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes started inside never see a Ctrl-C, which a terminal sends to all of them at once:
    the one that started them stops them in order, by SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

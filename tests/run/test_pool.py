"""A pool of processes tells a signal that was meant for all from a process that died alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from run.pool import POLL_SECONDS, Pool
from run.signals import STOPS, stops_go_to, was_stopped
from utils import Interrupted


class Sleepers(Pool[str]):
    """Processes that would sleep for a minute, if the signal that they get at once did not end them."""

    def __init__(self, signum: int):
        super().__init__(["a", "b"], [None, None], "all is saved")
        self.signal, self.codes = signum, []

    def begin(self, item: str, gpu: str | None) -> subprocess.Popen:
        sleep = "import time; time.sleep(60)"
        process = subprocess.Popen([sys.executable, "-S", "-c", sleep], stderr=subprocess.DEVNULL)
        process.send_signal(self.signal)
        return process

    def ended(self, item: str, code: int) -> None:
        self.codes.append(code)

    def show(self) -> None:
        """Nothing: a test has no screen."""


def signal_later(signum: int, pool: Sleepers) -> threading.Thread:
    """Send this process its own signal when the pool has seen the last of the others end."""

    def send() -> None:
        while len(pool.codes) < 2:
            time.sleep(0.001)
        time.sleep(POLL_SECONDS / 4)
        os.kill(os.getpid(), signum)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def test_a_signal_that_comes_after_it_has_ended_the_processes_is_still_a_signal():
    pool = Sleepers(signal.SIGTERM)
    later = signal_later(signal.SIGTERM, pool)
    with stops_go_to(lambda *_: None):  # where the pool does not hear it, the test still ends
        with pytest.raises(Interrupted, match="all is saved") as stop:
            pool.run()
        later.join()
    assert stop.value.exit_code == 143 and pool.codes == [-signal.SIGTERM] * 2


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_processes_that_were_ended_alone_are_failures_and_the_pool_goes_on(signum):
    pool = Sleepers(signum)
    pool.run()
    assert pool.codes == [-signum] * 2 and not pool.going and not pool.waiting


def test_which_exit_codes_mean_that_a_signal_stopped_a_process():
    assert all(was_stopped(-s) and was_stopped(128 + s) for s in STOPS)
    assert not any(map(was_stopped, (0, 1, 2, 3, -signal.SIGKILL, 128 + signal.SIGKILL)))

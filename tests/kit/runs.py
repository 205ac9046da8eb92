"""Runs that are stopped, killed and waited for, and what they leave behind."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from analysis import metrics
from run.loop import Runner


def stop_at(monkeypatch, frame: int) -> None:
    """The next run gets a SIGTERM at this frame; a run that continues there goes on."""
    border = Runner._at_border

    def interrupt(self):
        if self.frame == frame and self.step > self.resumed_at:
            self.signum = signal.SIGTERM
        return border(self)

    monkeypatch.setattr(Runner, "_at_border", interrupt)


def has_checkpoint(run: Path, frame: int) -> bool:
    """The run has saved a checkpoint at `frame` or later."""
    return any(int(path.stem.split("_")[1]) >= frame for path in run.glob("checkpoint_*.pt"))


def kill_after_checkpoint(
    started: subprocess.Popen, run: Path, frame: int, signum: signal.Signals
) -> None:
    """Send a signal once the run has saved a checkpoint at `frame` or later."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and started.poll() is None:
        if has_checkpoint(run, frame):
            started.send_signal(signum)
            return
        time.sleep(0.01)
    raise AssertionError(f"the run ended before frame {frame}: {started.communicate()}")


def continued_from(out: str) -> int:
    """The frame at which a run says that it continues."""
    return int(re.search(r"continuing at frame ([\d,]+)", out)[1].replace(",", ""))


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds; after a minute, fail and say `what` went wrong."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def group_is_gone(group: int) -> bool:
    """No process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def is_free(directory: Path) -> bool:
    """No process holds the lock of a run directory."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def stamps(root: Path) -> dict[Path, int]:
    """When each file below a directory was last written."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}


def undocumented(columns: Iterable[str]) -> list[str]:
    """Metrics without a line in the docstring of whoever makes them; `reward/<stream>` there stands
    for all of its columns."""
    named = {"frame", "episodes"} | metrics.names()
    groups = {name.partition("<")[0] for name in named if "<" in name}
    return [c for c in columns if c not in named and not c.startswith(tuple(groups))]


def result_text(**changes) -> str:
    """A result.json with all that one must hold, and no more."""
    return json.dumps(
        {
            **{"phase": "pretrain", "agent": "amped", "variant": "smoke", "domain": "walker"},
            **{"task": None, "skills": None, "seed": 1, "frame": 0, "score": 0.0},
            **{"final": {"return_mean": 0.0, "return_std": 0.0}, "curve": [], "wall_seconds": 1.0},
            **changes,
        }
    )

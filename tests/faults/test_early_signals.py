"""Signals at moments when a run has nothing to save, and files that cannot be removed."""

import errno
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from run.directory import RunDirectory
from tests.kit.cli import finish, process
from tests.kit.runs import wait_for
from utils import ROOT


def wait_until_heard(started):
    """Python itself takes SIGINT; SIGUSR1 is taken by us, and the others with it."""
    status, bit = Path(f"/proc/{started.pid}/status"), 1 << (signal.SIGUSR1 - 1)

    def caught() -> bool:
        lines = status.read_text().splitlines()
        masks = dict(line.split(":\t") for line in lines if ":\t" in line)
        return bool(int(masks["SigCgt"], 16) & bit)

    wait_for(caught, "the signal is never taken")


@pytest.mark.parametrize(
    "script, words",
    [
        ("pretrain", ["agent=amped", "preset=smoke", "domain=walker"]),
        ("finetune", ["agent=amped", "preset=smoke", "task=walker_run"]),
        ("sweep", ["experiment=smoke"]),
    ],
)
@pytest.mark.parametrize("signum", [signal.SIGUSR1, signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_is_one_line_and_an_exit_code(script, words, signum, tmp_path):
    """Slurm warns by SIGUSR1, whose default action ends a process without a word."""
    started = process(script, f"run_root={tmp_path}", *words)
    wait_until_heard(started)
    time.sleep(0.3)
    started.send_signal(signum)
    done = finish(started)
    assert done.code == 128 + signum and "Traceback" not in done.err, done
    assert done.err == (
        f"{signum.name}: stopped before anything was trained; the same command starts it again\n"
    )
    assert not any(tmp_path.iterdir())


def test_the_signals_are_taken_before_anything_slow_is_imported():
    for script in ("pretrain", "finetune", "sweep"):
        text = (ROOT / f"{script}.py").read_text().replace("from __future__ import annotations", "")
        lines = [line for line in text.splitlines() if "import " in line]
        assert lines[0].startswith("from run.signals import hear_early, ")
    slow = ("torch", "numpy", "hydra", "utils")
    assert not [name for name in slow if f"import {name}" in (ROOT / "run/signals.py").read_text()]


@pytest.fixture
def queue(tmp_path):
    """A stand-in for Slurm's two commands: `squeue` tells a state, `scontrol` notes what it is asked."""

    def make(state):
        for name, line in (("squeue", f"echo {state}"), ("scontrol", 'echo "$@" >> "$0.asked"')):
            (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
            (tmp_path / name).chmod(0o755)
        return {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "7",
            "SLURM_ARRAY_JOB_ID": "5",
            "SLURM_ARRAY_TASK_ID": "2",
            "SUBMITIT_EXECUTOR": "slurm",
        }

    return make


@pytest.mark.parametrize("wait", [0, 0.5, 3])
@pytest.mark.parametrize(
    "signum, state, asked",
    [(signal.SIGUSR1, "RUNNING", "requeue 5_2\n"), (signal.SIGTERM, "CANCELLED", None)],
)
def test_a_job_warned_while_submitit_is_imported_goes_back_into_the_queue(
    wait, signum, state, asked, queue, tmp_path
):
    """At once, and while it still waits for its pickle. The command is the one that sbatch gets."""
    pytest.importorskip("submitit", reason="submitit is not installed")
    from experiment.slurm import PYTHON

    started = subprocess.Popen(
        [*shlex.split(PYTHON), "-u", "-m", "submitit.core._submit", str(tmp_path / "jobs")],
        cwd=ROOT,
        env={**os.environ, **queue(state)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until_heard(started)
    time.sleep(wait)
    started.send_signal(signum)
    done = finish(started)
    assert done.code == 128 + signum and "Traceback" not in done.err, done
    assert f"{signum.name}: nothing was started yet; job 5_2 is {state}" in done.out
    found = tmp_path / "scontrol.asked"
    assert (found.read_text() if found.exists() else None) == asked


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler here")
def test_a_signal_while_the_update_is_compiled_ends_the_run_within_seconds(tmp_path):
    started = process(
        "pretrain",
        *("agent=amped", "domain=walker", "preset=smoke", "compile=true", f"run_root={tmp_path}"),
        env={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
    )
    run = tmp_path / "pretrain/walker/amped/smoke/seed_1"
    try:  # the first update comes five steps after that checkpoint
        wait_for((run / "checkpoint_15.pt").exists, "the run does not begin")
        time.sleep(4)
        assert not (run / "train.csv").exists(), "the update is compiled already"
    except BaseException:
        started.kill()
        raise
    began = time.monotonic()
    started.send_signal(signal.SIGTERM)
    done = finish(started)
    assert time.monotonic() - began < 60 and done.code == 143, done
    assert "SIGTERM: compiling was broken off; " in done.err and "Traceback" not in done.err
    assert "is from before that; the same command continues there" in done.err


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_checkpoint_that_cannot_be_removed_is_a_warning_and_the_next_start_removes_it(
    number, cli, monkeypatch
):
    unlink = Path.unlink

    def refuse(self, missing_ok=False):
        if self.name.startswith("checkpoint_"):
            raise OSError(number, "an unlucky file system", str(self))
        return unlink(self, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        done = cli("pretrain", "num_train_frames=40", "snapshots=[]", "variant=v")
    run = cli.root / "pretrain/walker/amped/v/seed_1"
    assert done.code == 0 and (run / "result.json").exists(), done.err
    assert done.err.count("cannot be removed (an unlucky file system)") >= 1
    assert "Traceback" not in done.err
    left = RunDirectory(run, {}).checkpoints()
    assert left
    again = cli("pretrain", "num_train_frames=40", "snapshots=[]", "variant=v")
    assert again.code == 0 and "is finished; nothing to do" in again.out and not again.err
    assert not RunDirectory(run, {}).checkpoints()

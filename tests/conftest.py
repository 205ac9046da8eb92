"""Helpers: the command line in this warmed process, and as true subprocesses."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import finetune
import pretrain
from agent.cli import guard
from utils import load_snapshot

ROOT = Path(__file__).parent.parent
SCRIPTS = {"pretrain": pretrain, "finetune": finetune}
MADE: dict[tuple[str, ...], Path] = {}  # see `whole`
CLOCK = {"seconds", "fps"}  # columns that no seed decides


class Output(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def absl_closes_no_stream_of_pytest():
    """dm_control loads absl, whose handler keeps the stderr of that moment and closes it when Hydra sets up logging."""
    if logging := sys.modules.get("absl.logging"):
        logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """cli("pretrain", "agent=amped", ...) as on the command line, at preset=smoke, without a new process."""

    def call(script: str, *args: str) -> Output:
        given = {a.partition("=")[0] for a in args}
        defaults = [f"{k}={v}" for k, v in (("preset", "smoke"), ("run_root", tmp_path / "runs")) if k not in given]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *args, *defaults])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        capsys.readouterr()
        code = 0
        try:
            guard.started = False
            guard.launch(SCRIPTS[script].main)
        except SystemExit as stop:
            code = stop.code or 0
        return Output(code, *capsys.readouterr())

    call.root = tmp_path / "runs"
    return call


@pytest.fixture
def whole(cli, tmp_path_factory):
    """whole("domain=jaco"): run_root of a pre-training that nothing disturbed, made once for all tests of a process."""

    def call(*args: str) -> Path:
        if args not in MADE:
            root = tmp_path_factory.mktemp("whole")
            assert cli("pretrain", *args, f"run_root={root}").code == 0
            MADE[args] = root
        return MADE[args]

    return call


@pytest.fixture
def run_main(monkeypatch, capsys):
    """run_main(module.main, "key=value", ...): a command without Hydra as a user calls it, without a new process."""

    def call(main, *args) -> Output:
        monkeypatch.setattr(sys, "argv", ["command", *map(str, args)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return Output(code, *capsys.readouterr())

    return call


def process(script: str, *args: str, **kwargs) -> subprocess.Popen:
    """The script as a user starts it."""
    environment = {k: v for k, v in os.environ.items() if k != "HYDRA_FULL_ERROR"}
    return subprocess.Popen([sys.executable, str(ROOT / f"{script}.py"), *args], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, env=environment, **kwargs)


def finish(started: subprocess.Popen) -> Output:
    out, err = started.communicate(timeout=300)
    return Output(started.returncode, out, err)


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV without the columns that a clock decides."""
    with path.open() as file:
        return [{k: v for k, v in row.items() if k not in CLOCK} for row in csv.DictReader(file)]


def assert_same_run(a: Path, b: Path) -> None:
    """Two run directories hold the same numbers, bit for bit."""
    assert rows(a / "train.csv") == rows(b / "train.csv")
    assert rows(a / "eval.csv") == rows(b / "eval.csv")
    names = sorted(p.name for p in (a / "snapshots").iterdir())
    assert names and names == sorted(p.name for p in (b / "snapshots").iterdir())
    for name in names:
        ours, theirs = load_snapshot(a / "snapshots" / name), load_snapshot(b / "snapshots" / name)
        for part in ("learner", "objective"):
            assert ours[part].keys() == theirs[part].keys()
            for key, value in ours[part].items():
                assert torch.equal(value, theirs[part][key]), (name, part, key)

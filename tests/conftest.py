"""Fixtures: the command line in this warmed process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

pytest.register_assert_rewrite("tests.kit")

from run.cli.guard import guard  # noqa: E402
from tests.kit.cli import SCRIPTS, Output  # noqa: E402

MADE: dict[tuple[str, ...], Path] = {}  # see `whole`


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def absl_closes_no_stream_of_pytest():
    """dm_control loads absl, whose handler keeps the stderr of that moment and closes it when Hydra
    sets up logging."""
    if logging := sys.modules.get("absl.logging"):
        logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture
def cli(monkeypatch, capsys, tmp_path):
    """cli("pretrain", "agent=amped", ...) as on the command line, at preset=smoke, without a new
    process."""

    def call(script: str, *args: str) -> Output:
        given = {a.partition("=")[0] for a in args}
        defaults = [
            f"{k}={v}"
            for k, v in (("preset", "smoke"), ("run_root", tmp_path / "runs"))
            if k not in given
        ]
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *args, *defaults])
        monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
        capsys.readouterr()
        code = 0
        try:
            guard.started = False
            SCRIPTS[script].main()
        except SystemExit as stop:
            code = stop.code or 0
        return Output(code, *capsys.readouterr())

    call.root = tmp_path / "runs"
    return call


@pytest.fixture
def whole(cli, tmp_path_factory):
    """whole("domain=jaco"): run_root of a pre-training that nothing disturbed, made once for all
    tests of a process."""

    def call(*args: str) -> Path:
        if args not in MADE:
            root = tmp_path_factory.mktemp("whole")
            assert cli("pretrain", *args, f"run_root={root}").code == 0
            MADE[args] = root
        return MADE[args]

    return call


@pytest.fixture
def run_main(monkeypatch, capsys):
    """run_main(module.main, "key=value", ...): a command without Hydra as a user calls it, without
    a new process."""

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

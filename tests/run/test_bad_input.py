"""Bad input, tried by the hundred: one clear line that names the key and what would work, exit code
2, nothing left.

Generated from the configs (bad_input.py, bad_commands.py), derandomised: every machine tries the
same cases.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hydra._internal.hydra import Hydra
from hydra.types import RunMode
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from analysis import figure
from experiment import local, slurm
from run import build
from run.cli.guard import guard
from tests.kit import bad_commands, bad_input
from tests.kit.cli import SCRIPTS, Output
from utils import ROOT

FAMILIES = {  # strategy -> cases; with the true processes below 300 or more
    "values": (bad_input.values(), 65),
    "typos": (bad_input.typos(), 20),
    "options": (bad_input.unknown_options(), 30),
    "names": (bad_input.names(), 30),
    "grammar": (bad_input.grammar(), 25),
    "words": (bad_commands.words(), 25),
    "commands": (st.sampled_from(bad_commands.COMMANDS), 60),
}
YAMLS = 25
HELPS = re.compile(
    r"choose|must be|\bgive\b|\buse\b|did you mean|such as|--help|is not valid: a |it has|has the keys|"
    r"must have|and nothing else|not one of ours|python -m|add --multirun|requires --multirun|leave it|"
    r"no snapshot at"
)


class Started(BaseException):
    """Something slow began: no bad input may get so far."""


def start(*_, **__):
    raise Started


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A working directory that must stay as it is, in a process where nothing slow may start."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "folder").mkdir()
    (folder / "text.pt").write_text("not a snapshot")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for module, names in (
            (build, ("make_env", "make_lanes")),
            (figure, ("make",)),
            (local, ("run", "status", "cancel")),
            (slurm, ("run", "status", "cancel")),
        ):
            for name in names:
                patch.setattr(module, name, start)
        # Hydra composes once more to learn whether this is a multirun: half of the time of every
        # case.
        patch.setattr(Hydra, "get_mode", lambda *_, **__: RunMode.RUN)
        patch.setenv("HYDRA_FULL_ERROR", "0")
        yield folder


def call(case) -> Output:
    """The command in this process; in a thread, whose stack is shallow: deep in pytest's and
    Hypothesis's, CPython 3.11 may map and unmap a piece of it at every call."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run_here, case).result()


def run_here(case) -> Output:
    out, err, code, before = io.StringIO(), io.StringIO(), 0, sys.argv
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            if case.command in SCRIPTS:
                sized = any(word.startswith(("preset", "-")) for word in case.words)
                sys.argv = [f"{case.command}.py", *case.words]
                if not sized:
                    sys.argv.append("preset=smoke")
                guard.started = False
                SCRIPTS[case.command].main()
            else:
                sys.argv = [case.command, *case.words]
                found = importlib.util.find_spec(case.command)
                own = (
                    f"{case.command}.__main__" if found.submodule_search_locations else case.command
                )
                module = importlib.import_module(own)
                module.main()
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.argv = before
    return Output(code, out.getvalue(), err.getvalue())


def check(case, output: Output, folder, before: list) -> None:
    assert output.code == 2, (case, output)
    assert re.fullmatch(r"error: [^\n]*\n", output.err), (case, output.err)
    assert output.out == "" and "Traceback" not in output.err, (case, output)
    assert any(named in output.err for named in case.named), (case, output.err)
    assert HELPS.search(output.err), (case, output.err)
    assert sorted(folder.rglob("*")) == before, case


@pytest.mark.parametrize("family", FAMILIES)
def test_every_bad_word_gets_one_line_that_names_it_and_leaves_nothing(place, family):
    strategy, count = FAMILIES[family]
    tried, before = [], sorted(place.rglob("*"))

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def holds(case):
        tried.append(case)
        check(case, call(case), place, before)

    holds()
    assert len(tried) == count


def test_every_bad_experiment_file_is_refused_and_never_executed(place):
    tried, path = [], place / "own.yaml"
    path.write_text("")
    before = sorted(place.rglob("*"))

    @settings(
        max_examples=YAMLS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(bad_commands.yamls())
    def holds(drawn):
        case, text = drawn
        path.write_text(text)
        tried.append(text)
        check(case, call(case), place, before)

    try:
        holds()
    finally:
        path.unlink()
    assert len(tried) == YAMLS and not (place / "sprung").exists()


PROCESSES = [  # as a user starts them
    (("pretrain.py", "preset=smoke", "learner.batch_sise=3"), "(did you mean learner.batch_size?)"),
    (("finetune.py", "task=walker_run", "preset=smoke", "snapshot=folder"), "folder"),
    (
        ("pretrain.py", "-m", "preset=smoke", "seed=1,x"),
        "seed='x'",
    ),  # before the first run of the sweep
    (("sweep.py", "experiment=own.yaml"), "own.yaml cannot be read"),
    (("-m", "analysis.curves", "nowhere", "--out", "x.png"), "nowhere"),
    (("-m", "analysis.curves", "--nothing"), "required: runs, --out"),
    (("-m", "analysis.curves", "folder", "--out", "x.gif"), "folder"),
    (("-m", "analysis.choices", "nowhere\nelse"), "nowhere\\nelse"),
    (("-m", "analysis.choices", b"\xff\xfe"), "choices.npz"),
    (("-m", "analysis.choices"), "required: runs"),
    (("-m", "analysis.paper", "urlb"), "urlb"),
    (("-m", "analysis.paper", "--nothing"), "--nothing"),
    *((("-m", "benchmarks.parallel", word), word) for word in ("-1", "0", "many", "٣x", "9" * 40)),
]
TRACED = [
    ("pretrain.py", "agent=ampedd"),
    ("pretrain.py", "preset=smoke", "seed=many"),
    ("-m", "analysis.plan", "experiment=nothing"),
]


def test_three_hundred_cases_are_tried_and_twenty_of_them_as_processes():
    processes = len(PROCESSES) + len(TRACED)
    assert (
        processes == 20 and sum(count for _, count in FAMILIES.values()) + YAMLS + processes >= 300
    )


@pytest.fixture
def shell(tmp_path):
    """shell(words): python with these words in a directory that must stay as it is."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "own.yaml").write_text("title: !!python/object/apply:os.mkdir [sprung]")
    before = sorted(tmp_path.rglob("*"))

    def run(words, **environment: str) -> Output:
        words = [ROOT / words[0] if words[0].endswith(".py") else words[0], *words[1:]]
        kept = {key: value for key, value in os.environ.items() if key != "HYDRA_FULL_ERROR"}
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=300,
            env={**kept, "PYTHONPATH": str(ROOT), **environment},
        )
        assert sorted(tmp_path.rglob("*")) == before
        return Output(done.returncode, done.stdout, done.stderr)

    return run


@pytest.mark.parametrize(("words", "expected"), PROCESSES, ids=lambda value: str(value)[:60])
def test_a_true_process_says_the_same(shell, words, expected):
    output = shell(words)
    assert output.code == 2 and output.out == "" and expected in output.err, output
    assert re.fullmatch(r"error: [^\n]*\n", output.err) and HELPS.search(output.err), output.err


@pytest.mark.parametrize("words", TRACED, ids=" ".join)
def test_a_traceback_is_shown_to_who_asks_for_it(shell, words):
    output = shell(words, HYDRA_FULL_ERROR="1")
    assert output.code == 1 and "Traceback (most recent call last)" in output.err, output

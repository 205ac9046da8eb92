"""The method that docs/extending.md prints, exactly as printed, is an agent in either place."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.kit.pages import named_files, section, write
from utils import ROOT

FILES = named_files(section("Add a method"))


def python(*words: str, cwd, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environment},
    )


def test_the_printed_method_runs_from_a_directory_of_its_own(tmp_path):
    assert set(FILES) == {"surprise.py", "agent/surprise.yaml"}
    write(FILES, tmp_path / "my_method")
    commands = [line for line in section("Add a method").splitlines() if line.startswith("python ")]
    assert len(commands) == 2
    for command in commands:
        _, script, *words = shlex.split(command)
        done = python(str(ROOT / script), *words, cwd=tmp_path, PYTHONPATH="")
        assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/pretrain/walker/surprise/smoke/seed_1/result.json"))
    assert list(
        tmp_path.glob("runs/finetune/walker_walk/surprise/smoke/switching/seed_1/result.json")
    )


@pytest.fixture
def copy(tmp_path):
    """The tracked files of this repository in a directory of their own, with the method in it."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    write({"agent/surprise.py": FILES["surprise.py"]}, tmp_path)
    write({"configs/agent/surprise.yaml": FILES["agent/surprise.yaml"]}, tmp_path)
    return tmp_path


def test_the_printed_method_is_an_agent_of_the_repository_that_its_tests_pick_up(copy):
    done = python("pretrain.py", "agent=surprise", "preset=smoke", cwd=copy, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    words = ("-m", "pytest", "-n", "0", "tests/agent/test_agents.py", "-k", "surprise")
    tested = python(*words, cwd=copy, PYTHONPATH="")
    assert tested.returncode == 0 and "5 passed" in tested.stdout, tested.stdout


def test_the_printed_methods_wrong_values_are_refused_by_its_annotations(tmp_path):
    write(FILES, tmp_path / "my_method")
    words = ("--config-dir", "my_method", "agent=surprise", "preset=smoke")
    for word, line in (
        (
            "agent.objective.lr=-1",
            "agent.objective.lr=-1 is not valid; it must be a number above 0",
        ),
        ("agent.objective.hidden_dim=x", "it must be a whole number from 1 to 65536"),
    ):
        done = python(str(ROOT / "pretrain.py"), *words, word, cwd=tmp_path, PYTHONPATH="")
        assert done.returncode == 2 and line in done.stderr, done.stderr

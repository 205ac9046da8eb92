"""docs/your-table.md, run as it stands: a method, a task and a table of a user's own."""

import re
import shlex
import subprocess
import sys

import pandas as pd
import pytest

from tests.kit.pages import named_files, write
from utils import ROOT

PAGE = (ROOT / "docs/your-table.md").read_text()


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The directory in which the commands were run, and what each printed."""
    place = tmp_path_factory.mktemp("mine")
    write(named_files(PAGE), place / "mine")
    (block,) = re.findall(r"^```\n(python -m analysis\.plan.*?)^```", PAGE, re.M | re.S)
    printed = []
    for line in block.splitlines():
        _, *words = shlex.split(line)
        if words[0].endswith(".py"):
            words[0] = str(ROOT / words[0])
        done = subprocess.run(
            [sys.executable, *words], cwd=place, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    return place, printed


def test_the_plan_names_the_directory_in_every_command(told):
    place, (plan, *_) = told
    assert "2 pre-trainings: 0 finished, 0 unfinished, 2 missing" in plan
    commands = re.findall(r"^missing +(python .*)$", plan, re.M)
    assert len(commands) == 2 + 8
    assert all(f"--config-dir {place}/mine" in command for command in commands)


def test_the_table_has_the_tasks_that_were_run_and_the_experts_of_the_user(told):
    place, (_, _, table, _) = told
    assert "| pendulum swingup | ours |" in table and "| pendulum effort | ours |" in table
    assert "Spread" in table and "paper" not in table.replace("paper's", "")
    normalised = pd.read_csv(place / "runs/tables/mine_normalised.csv")
    returns = pd.read_csv(place / "runs/tables/mine_returns.csv")
    assert set(normalised["task"]) == {"pendulum_effort"}
    ours = returns[returns["task"] == "pendulum_effort"].set_index("method")["mean"]
    shares = normalised.set_index("method")["mean"]
    pd.testing.assert_series_equal(shares, ours / 150, check_names=False)
    assert set(returns["seeds"]) == {2}


def test_curves_have_intervals_over_seeds(told):
    place, _ = told
    for name in ("curves", "returns_over_frames"):
        curves = pd.read_csv(place / f"runs/tables/mine_{name}.csv")
        assert (curves["runs"] == 2).all() and (curves["high"] >= curves["low"]).all()
        assert (place / f"runs/tables/mine_{name}.png").stat().st_size > 5000


def test_the_report_has_a_section_of_the_experiment(told):
    place, _ = told
    page = (place / "report/index.html").read_text()
    assert "Spread and DDPG on the pendulum" in page

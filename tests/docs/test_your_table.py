"""docs/your-table.md, run as it stands: a method, a task and a table of a user's own."""

import re
import shlex

import pandas as pd
import pytest

import sweep
from analysis import plan, report, table
from run.cli import own
from tests.kit.pages import named_files, write
from utils import ROOT

PAGE = (ROOT / "docs/your-table.md").read_text()
MAINS = {"plan": plan.main, "table": table.main, "report": report.main, "sweep.py": sweep.main}


@pytest.fixture
def told(tmp_path, monkeypatch, cli, run_main):
    """What each command of the page printed. The sweep makes only the last run, in a process of its
    own; the others are made by the commands that the plan prints, in this one."""
    write(named_files(PAGE), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```\n(python -m analysis\.plan.*?)^```", PAGE, re.M | re.S)
    printed = {}
    for line in block.splitlines():
        _, *words = shlex.split(line)
        name, *words = words if words[0] == "sweep.py" else words[1:]
        name = name.removeprefix("analysis.")
        done = run_main(MAINS[name], *words)
        assert not done.code, done.err
        printed[name] = done.out
        if name == "plan":
            for command in re.findall(r"^missing +python (.*)$", done.out, re.M)[:-1]:
                script, *rest = shlex.split(command)
                made = cli(script.removesuffix(".py"), *rest)
                assert made.code == 0, made.err
    own.use(None)
    return printed


def test_the_page_gives_a_plan_a_sweep_a_table_curves_and_a_section_of_the_report(told, tmp_path):
    commands = re.findall(r"^missing +(python .*)$", told["plan"], re.M)
    assert "2 pre-trainings: 0 finished, 0 unfinished, 2 missing" in told["plan"]
    assert len(commands) == 2 + 8
    assert all(f"--config-dir {tmp_path}/mine" in command for command in commands)
    hint = f"all finished; python -m analysis.table --config-dir {tmp_path}/mine experiment=mine"
    assert hint in told["sweep.py"]

    shown = told["table"]
    assert "| pendulum swingup | ours |" in shown and "| pendulum effort | ours |" in shown
    assert "Spread" in shown and "| paper |" not in shown and "difference" not in shown
    tables = tmp_path / "runs/tables"
    normalised, returns = (
        pd.read_csv(tables / f"mine_{name}.csv") for name in ("normalised", "returns")
    )
    assert set(normalised["task"]) == {"pendulum_effort"} and set(returns["seeds"]) == {2}
    ours = returns[returns["task"] == "pendulum_effort"].set_index("method")["mean"]
    shares = normalised.set_index("method")["mean"]
    pd.testing.assert_series_equal(shares, ours / 150, check_names=False)

    for name in ("curves", "returns_over_frames"):
        curves = pd.read_csv(tables / f"mine_{name}.csv")
        assert (curves["runs"] == 2).all() and (curves["high"] >= curves["low"]).all()
        assert (tables / f"mine_{name}.png").stat().st_size > 5000
    page = (tmp_path / "report/index.html").read_text()
    assert "mine: Spread and DDPG on the pendulum" in page and "pendulum effort" in page

"""Shipped rows are rerun and judged: equal, equal up to rounding, different."""

import re

import pandas as pd
import pytest

from analysis import contextual, verify
from analysis.frames.gathered import gather
from analysis.maze.measure import put_row
from analysis.verify import Pair
from experiment.definition import load

SMALL = ("experiment=smoke", "methods=amped", "seed=1", "task=walker_run")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table as results/runs ships them: AMPED's smoke pre-training, and a fine-tuning after it."""
    root = tmp_path_factory.mktemp("verify")
    experiment = load([*SMALL, f"run_root={root / 'runs'}"])
    for run in [*experiment.runs, *experiment.finetunings]:
        verify.rerun(run.command, root / "runs")
    path, _ = gather(experiment).save(root, "small")
    return path


def test_numbers_are_judged_by_their_printed_digits():
    judged = {
        ("0.7863", "0.7863"): "equal",
        ("264.611", "264.6110"): "equal",
        ("0.7863", "0.7864"): "equal up to rounding",
        ("264.611", "264.63"): "equal up to rounding",
        ("0.7863", "0.7865"): "different",
        ("264.611", "205.119"): "different",
        ("1e-05", "3e-05"): "different",
        ("True", "False"): "different",
        ("nan", "nan"): "equal",
        ("", "1"): "different",
    }
    assert {pair: Pair("x", *pair).verdict for pair in judged} == judged


def test_a_table_of_runs_is_made_again_with_both_commits(table, run_main, tmp_path):
    done = run_main(verify.main, str(table), "--run-root", tmp_path)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("1/2 python pretrain.py agent=amped")
    assert re.fullmatch(
        r"  equal in 4 numbers; shipped from \w+, rerun at \w+( \(changed\))?", lines[1]
    )
    assert lines[-1] == "small: 2 equal"


def test_a_fine_tuning_alone_brings_its_pre_training_and_a_changed_number_is_named(
    table, run_main, tmp_path
):
    rows = pd.read_csv(table)
    final = rows["final"] & (rows["phase"] == "finetune")
    rows.loc[final, "score"] *= 1 + 3e-5
    rows.to_csv(tmp_path / "close.csv", index=False)
    done = run_main(verify.main, str(tmp_path / "close.csv"), "--row", "2", "--run-root", tmp_path)
    assert done.code == 0 and done.out.splitlines()[-1] == "close: 1 equal up to rounding"
    rows.loc[final, "score"] += 5
    rows.to_csv(tmp_path / "far.csv", index=False)
    done = run_main(verify.main, str(tmp_path / "far.csv"), "--row", "2", "--run-root", tmp_path)
    assert done.code == 1 and done.out.splitlines()[-1] == "far: 1 different"
    assert "score at 80: " in done.out and " shipped, " in done.out


def test_columns_of_the_log_are_compared_too_and_a_row_without_numbers_does_not_pass(table):
    rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    made = verify.rerun(rows["command"][0], table.parent / "runs")
    log = verify.read_log(made / "train.csv")
    last = pd.Series({"frame": log[-1]["frame"], "surgery/dot": log[-1]["surgery/dot"]})
    (pair,) = verify.of_run(last, made)
    assert pair.where.startswith("surgery/dot at ") and pair.verdict == "equal"
    assert verify.worst(verify.of_run(pd.Series({"frame": "1"}), made)) == "different"


def test_a_row_of_measures_is_that_of_the_retrained_snapshot(run_main, tmp_path):
    command = "python pretrain.py agent=diayn domain=tree_maze preset=smoke skill_dim=4 seed=1"
    made = verify.rerun(command, tmp_path / "first")
    snapshot = sorted((made / "snapshots").glob("*.pt"))[0]
    options = verify.argparse.Namespace(episodes=verify.EPISODES, mine_steps=1)
    put_row(tmp_path / "maze.csv", verify.measure_snapshot(verify.load_trained(snapshot), options))
    done = run_main(verify.main, str(tmp_path / "maze.csv"), "--run-root", tmp_path / "second")
    assert done.code == 0 and "maze: 1 equal\n" in done.out, done.err


def test_the_contextual_task_is_made_again(run_main, tmp_path, monkeypatch):
    monkeypatch.setattr(contextual, "REGIMES", {"switching": ("switching", {})})
    rows = contextual.records(contextual.options(["--steps", "200", "--seeds", "1"]))
    pd.DataFrame(rows).to_csv(tmp_path / "contextual.csv", index=False)
    done = run_main(verify.main, str(tmp_path / "contextual.csv"))
    assert done.code == 0 and "equal in 3 numbers" in done.out, done.err


def test_a_study_of_theory_is_compared_cell_by_cell(tmp_path):
    shipped = verify.names()["toy"]
    pairs = verify.cells(shipped, shipped)
    assert len(pairs) == 445 * 5 and verify.worst(pairs) == "equal"
    text = shipped.read_text()
    (tmp_path / "toy.csv").write_text(text.replace("4.17093", "5.17093", 1))
    (pair,) = [p for p in verify.cells(shipped, tmp_path / "toy.csv") if p.verdict == "different"]
    assert pair == ("distance, line 2", "4.17093", "5.17093")
    (tmp_path / "toy.csv").write_text(text[: text.rindex("\n", 0, -1) + 1])
    assert verify.worst(verify.cells(shipped, tmp_path / "toy.csv")) == "different"


def test_names_are_the_tables_with_commands_and_a_wrong_one_is_a_line(run_main):
    known = verify.names()
    assert {"walker_small", "toy", "fig_evolution"} <= set(known)
    assert "expert_scores" not in known and "urlb" not in known  # nothing to rerun
    done = run_main(verify.main, "walker_smal")
    assert done.code == 2 and done.err.count("\n") == 1 and "did you mean walker_small?" in done.err

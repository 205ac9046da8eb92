"""Run directories as data: real runs at preset=smoke, and copies of them damaged by hand."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.frames import runs
from analysis.frames.runs import read_curves, read_runs, read_train
from tests.kit.cli import rows
from utils import UserError, read_json

PRETRAIN, FINETUNE = (
    "pretrain/walker/amped/smoke/seed_1",
    "finetune/walker_run/amped/smoke/switching/seed_1",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("smoke") / "runs"


@pytest.fixture
def root(cli, made, tmp_path):
    """A copy, to be damaged, of one pre-training and one fine-tuning."""
    if not made.exists():
        assert cli("pretrain", f"run_root={made}").code == 0
        assert cli("finetune", "task=walker_run", f"run_root={made}").code == 0
    return shutil.copytree(made, tmp_path / "copy")


def only(table, **where):
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def edit(path, **changes):
    path.write_text(json.dumps({**read_json(path), **changes}))


# --------------------------------------------------------------------------------------------- runs


def test_a_row_holds_what_result_and_config_say(root):
    table = read_runs(root)
    assert tuple(table.columns) == runs.COLUMNS and len(table) == 2
    assert set(table["state"]) == {"finished"} and set(table["problem"]) == {""}
    row, result = only(table, phase="finetune"), read_json(root / FINETUNE / "result.json")
    for name in (
        "domain",
        "task",
        "agent",
        "variant",
        "skills",
        "seed",
        "frame",
        "score",
        "expert_score",
        "normalized",
        "wall_seconds",
    ):
        assert row[name] == result[name], name
    git = result["git"] or {"commit": None, "dirty": None}
    assert (row["commit"], row["dirty"]) == (git["commit"], git["dirty"])
    assert (row["device"], row["threads"], row["path"]) == ("cpu", 1, str(root / FINETUNE))
    other = only(table, phase="pretrain")
    assert other["task"] is None and other["domain"] == "walker" and np.isnan(other["normalized"])


@pytest.mark.parametrize("below", ["finetune", "finetune/walker_run/amped", FINETUNE])
def test_any_part_of_the_tree_can_be_read(root, below):
    row = only(read_runs(root / below), task="walker_run")
    assert row["score"] == read_json(root / FINETUNE / "result.json")["score"]


def test_an_unfinished_run_has_a_frame_and_no_score(root):
    (root / FINETUNE / "result.json").unlink()
    eval_csv = root / FINETUNE / "eval.csv"
    eval_csv.write_text(eval_csv.read_text()[:-9])  # killed while it wrote the last line
    (root / FINETUNE / "train.csv").unlink()
    row = only(read_runs(root), phase="finetune")
    assert row["state"] == "unfinished" and row["frame"] == 40 and np.isnan(row["score"])
    assert read_curves([root / FINETUNE])["frame"].tolist() == [0, 40]


def test_a_run_that_has_only_begun_is_unfinished(root):
    for path in (root / FINETUNE).iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    row = only(read_runs(root), phase="finetune")
    assert row["state"] == "unfinished" and np.isnan(row["frame"]) and row["device"] is None
    assert row["domain"] == "walker" and read_curves([root / FINETUNE]).empty


DAMAGE = {
    "truncated": lambda run: (run / "result.json").write_text(
        (run / "result.json").read_text()[:200]
    ),
    "empty": lambda run: (run / "result.json").write_text(""),
    "no mapping": lambda run: (run / "result.json").write_text("[1, 2]"),
    "a word for a score": lambda run: edit(run / "result.json", score="high"),
    "no score": lambda run: edit(run / "result.json", score=None),
    "NaN": lambda run: edit(run / "result.json", score=float("nan")),
    "true for seconds": lambda run: edit(run / "result.json", wall_seconds=True),
    "git is a word": lambda run: edit(run / "result.json", git="abc"),
    "copied to another seed": lambda run: edit(run / "result.json", seed=7),
    "another agent's": lambda run: edit(run / "result.json", agent="cic"),
    "bytes": lambda run: (run / "result.json").write_bytes(b"\xff\xfe\x00"),
    "a directory": lambda run: ((run / "result.json").unlink(), (run / "result.json").mkdir()),
    "config": lambda run: (run / "config.yaml").write_text("device: [cpu"),
    "config of another kind": lambda run: (run / "config.yaml").write_text("- 1\n"),
    "curve cut": lambda run: (run / "eval.csv").write_text("frame,return_mean\n0,1\n40,1\n"),
    "curve overwritten": lambda run: (run / "eval.csv").write_bytes(b"\xff\x00" * 50),
    "curve with a short line": lambda run: (run / "eval.csv").write_text(
        "frame,return_mean\n0,1\n40\n80,1\n"
    ),
    "curve of words": lambda run: (run / "eval.csv").write_text(
        "frame,return_mean\n0,1\n80,high\n"
    ),
    "curve in the result": lambda run: (
        (run / "eval.csv").unlink(),
        edit(run / "result.json", curve=[{"at": 80}]),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_run_is_a_row_that_says_so_and_has_no_score(root, damage):
    damage(root / FINETUNE)
    table = read_runs(root)
    row = only(table, phase="finetune")
    assert row["state"] == "unreadable" and row["problem"] and np.isnan(row["score"]), row
    assert (row["task"], row["agent"], row["seed"], row["domain"]) == (
        "walker_run",
        "amped",
        1,
        "walker",
    )
    assert only(table, phase="pretrain")["state"] == "finished"


def test_a_run_outside_of_the_layout_is_not_dropped(root):
    shutil.move(root / FINETUNE, root / "seed_3")
    row = only(read_runs(root), seed=3)
    assert row["state"] == "unreadable" and row["problem"].startswith("not at pretrain/DOMAIN")


def test_skills_are_named_by_the_directory_so_that_fixed_skills_stay_apart(root):
    for skills in ("fixed_0", "fixed_3"):
        shutil.copytree(root / FINETUNE, root / f"finetune/walker_run/amped/smoke/{skills}/seed_1")
    assert set(read_runs(root / "finetune")["skills"]) == {"switching", "fixed_0", "fixed_3"}


def test_an_oracle_has_no_eval_csv_but_a_curve_and_a_best_skill(root):
    run = root / FINETUNE
    (run / "eval.csv").unlink()
    best = {"skill": 1, "return_mean": 5.5, "return_std": 0.5, "zero_shot": 1.0}
    edit(run / "result.json", best=best)
    row = only(read_runs(root), phase="finetune")
    assert row["state"] == "finished" and row["best_score"] == 5.5
    curve = read_json(run / "result.json")["curve"]
    assert read_curves([run])["return_mean"].tolist() == [point["return_mean"] for point in curve]


def test_no_runs_and_no_directory(tmp_path):
    assert read_runs(tmp_path).empty and tuple(read_runs(tmp_path).columns) == runs.COLUMNS
    with pytest.raises(UserError, match=r"no directory .*nothing"):
        read_runs(tmp_path / "nothing")


# ------------------------------------------------------------------------------------------- curves


def test_curves_are_those_of_eval_csv(root):
    table = read_curves([root / PRETRAIN, root / FINETUNE])
    for run in (PRETRAIN, FINETUNE):
        mine, wanted = table[table["path"] == str(root / run)], rows(root / run / "eval.csv")
        assert mine["frame"].tolist() == [int(row["frame"]) for row in wanted]
        for column in ("return_mean", "return_std", "episodes"):
            assert mine[column].tolist() == [float(row[column]) for row in wanted]
        assert mine["skills"].tolist() == [row["skills"] for row in wanted]
    assert table["skill_variance"].isna().sum() == 3  # of the fine-tuning, which has none


def test_metrics_are_those_of_train_csv_with_gaps_as_nan(root):
    names = ["surgery/conflict", "surgery/sample_conflict", "surgery/cosine", "surgery/dot"]
    table, wanted = read_train([root / PRETRAIN], names), rows(root / PRETRAIN / "train.csv")
    assert list(table.columns) == ["path", "frame", *names] and table["frame"].dtype == int
    for name in names:
        assert table[name].tolist() == pytest.approx(
            [float(row[name] or "nan") for row in wanted], nan_ok=True
        )
    assert table["surgery/sample_conflict"].isna().any()
    with pytest.raises(
        UserError, match=r"train.csv has no surgery/none; it has frame, .*surgery/dot"
    ):
        read_train([root / PRETRAIN], ["surgery/none"])
    assert read_train([], names).empty


def test_a_damaged_curve_is_an_error_that_names_the_run(root):
    (root / FINETUNE / "eval.csv").write_text("frame,return_mean\n0,1\n40\n80,1\n")
    (root / PRETRAIN / "train.csv").write_text("frame,fps\n10,1\nten,1\n")
    with pytest.raises(
        UserError, match=r"switching/seed_1: eval.csv, line 3, is not a row of a run"
    ):
        read_curves([root / FINETUNE])
    with pytest.raises(UserError, match=r"smoke/seed_1: train.csv, line 3"):
        read_train([root / PRETRAIN], ["fps"])


def test_types_do_not_depend_on_which_runs_there_are(root):
    floats = ["frame", "score", "expert_score", "normalized", "wall_seconds", "best_score"]
    for table in (
        read_runs(root),
        read_runs(root / "pretrain"),
        read_runs(root / PRETRAIN / "snapshots"),
    ):
        assert all(pd.api.types.is_float_dtype(table[name]) for name in floats)

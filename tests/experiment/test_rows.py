"""A study goes on from its rows: what has one is not run again."""

import pandas as pd
import pytest

import sweep
from experiment import graph
from experiment.definition import listed
from experiment.rows import left_to_do, portable
from utils import UserError

WORDS = ["experiment=smoke", "methods=amped,ddpg", "seed=1,2", "task=walker_run,walker_walk"]


@pytest.fixture(scope="module")
def experiment():
    return graph.load(WORDS)


def write_rows(path, runs, frame=None):
    rows = [
        {"command": portable(run.command), "frame": each}
        for run in runs
        for each in (0, run.config["num_train_frames"] if frame is None else frame)
    ]
    pd.DataFrame(rows, columns=["command", "frame"]).to_csv(path, index=False)
    return path


def test_a_finetuning_with_a_row_of_its_last_frame_is_left_out_and_its_pretraining_if_nobody_needs_it(
    experiment, tmp_path
):
    first = [run for run in experiment.finetunings if run.config["seed"] == 1]
    rest = left_to_do(experiment, write_rows(tmp_path / "rows.csv", first))
    assert {run.config["seed"] for run in [*rest.runs, *rest.finetunings]} == {2}
    assert len(rest.finetunings) == len(experiment.finetunings) - len(first)

    one_short = write_rows(tmp_path / "most.csv", first[:-1])
    rest = left_to_do(experiment, one_short)
    assert first[-1] in rest.finetunings
    assert all(
        run.path in {r.path for r in rest.runs}
        for run in experiment.runs
        if first[-1].after == run.path
    )


def test_a_row_of_an_earlier_frame_counts_for_nothing(experiment, tmp_path):
    path = write_rows(tmp_path / "rows.csv", experiment.finetunings, frame=1)
    assert left_to_do(experiment, path) == experiment


def test_where_everything_has_its_row_one_line_says_so(run_main, experiment, tmp_path):
    path = write_rows(tmp_path / "rows.csv", experiment.finetunings)
    shown = run_main(sweep.main, *WORDS, f"rows={path}", "action=plan")
    assert shown.code == 2 and "nothing is left" in shown.err and len(shown.err.splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "frame\n1\n", "command,frame\npython x,soon\n", "command,frame\nx\n"]
)
def test_a_file_that_holds_no_rows_of_ours_is_named_in_one_line(experiment, tmp_path, text):
    path = tmp_path / "rows.csv"
    if text:
        path.write_text(text)
    with pytest.raises(UserError, match=r"rows=.*rows\.csv cannot be read"):
        left_to_do(experiment, path)


def test_runs_come_point_by_point_each_pretraining_right_before_its_first_finetuning(experiment):
    runs = graph.point_by_point(experiment)
    assert sorted(map(id, runs)) == sorted(map(id, [*experiment.runs, *experiment.finetunings]))
    places = {run.path: place for place, run in enumerate(runs)}
    for run in experiment.runs:
        users = [places[each.path] for each in experiment.finetunings if each.after == run.path]
        assert min(users) == places[run.path] + 1


def test_several_values_may_stand_in_brackets():
    assert listed("1,2,2") == listed("[1, 2]") == ["1", "2"]
    words = [word.replace("seed=1,2", "seed=[1,2]") for word in WORDS]
    assert [r.path for r in graph.load(words).runs] == [r.path for r in graph.load(WORDS).runs]

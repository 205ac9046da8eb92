"""Coverage against information: every run is a dot where its row says, under the name of its
method."""

import sys

import pandas as pd
import pytest

from analysis import maze_tradeoff
from utils import ROOT, UserError

STUDY = sorted((ROOT / "results/maze").glob("maze_study*.csv"))


def test_every_row_of_the_shipped_study_is_one_dot_at_its_place():
    rows = maze_tradeoff.read(STUDY)
    figure = maze_tradeoff.tradeoff(rows)
    drawn = [
        (x, y)
        for axis in figure.axes
        for line in axis.get_lines()
        if not line.get_label().startswith("_")
        for x, y in line.get_xydata().tolist()
    ]
    assert sorted(drawn) == sorted(zip(rows["coverage"], rows["mi_grid"], strict=True))
    assert len(figure.axes) == len(rows.groupby(["domain", "skills"]))


def test_names_tell_the_bounds_and_a_change_of_surgery_from_the_methods():
    rows = maze_tradeoff.read(STUDY)
    names = set(rows.apply(maze_tradeoff.name_of, axis=1))
    assert names == {
        "DIAYN",
        "BeCL",
        "CIC",
        "CeSD",
        "ComSD",
        "AMPED",
        "AMPED (literal)",
        "AMPED without surgery",
        "random actions",
        "uniform states",
    }
    figure = maze_tradeoff.tradeoff(rows)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(
        dict.fromkeys(rows.apply(maze_tradeoff.name_of, axis=1))
    )


def test_the_command_writes_a_picture_and_refuses_what_is_no_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", *map(str, STUDY), "--out", str(tmp_path / "p.png")])
    maze_tradeoff.main()
    assert (tmp_path / "p.png").stat().st_size > 5000
    pd.DataFrame({"a": [1]}).to_csv(tmp_path / "other.csv")
    with pytest.raises(UserError, match="has no agent, command, coverage"):
        maze_tradeoff.read([tmp_path / "other.csv"])
    monkeypatch.setattr(
        sys, "argv", ["x", str(tmp_path / "none.csv"), "--out", str(tmp_path / "p.png")]
    )
    with pytest.raises(SystemExit):
        maze_tradeoff.main()
    assert capsys.readouterr().err.count("\n") == 1

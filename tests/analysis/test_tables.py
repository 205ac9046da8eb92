"""Tables against small cases that were computed by hand, and every table of the paper by itself."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest

from analysis.frames.runs import COLUMNS
from analysis.scores import hours, tables
from analysis.scores.hours import wall_clock
from analysis.scores.tables import MARKDOWN, Entry, compare, escape, marked, spell
from analysis.table import size_warning
from experiment import paper
from experiment.definition import load
from utils import UserError

RETURNS = [
    "ablation",
    "metra",
    "projection",
    "scaling",
    "scaling_search",
    "selection",
    "skills",
    "urlb",
]
PAPER = pd.DataFrame(
    [
        ("walker", "walker_run", "score", "amped", 20, 3),
        ("walker", "walker_run", "score", "cic", 30, 1),
        ("walker", "walker_walk", "score", "amped", 50, 2),
        ("walker", "walker_walk", "score", "cic", 50, 4),
        ("walker", "sum", "sum", "amped", 70, np.nan),
        ("walker", "sum", "sum", "cic", 80, np.nan),
        ("all", "total", "total", "amped", 70, np.nan),
        ("all", "total", "total", "cic", 80, np.nan),
    ],
    columns=["domain", "task", "kind", "method", "mean", "std"],
)


def ours(*rows):
    return pd.DataFrame(rows, columns=["method", "task", "seed", "score"])


def lines(table):
    """The cells of its Markdown, without the caption and the notes."""
    found = [line for line in table.markdown().splitlines() if line.startswith("|")]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in (found[0], *found[2:])
    ]


COMPLETE = ours(
    ("amped", "walker_run", 1, 10.0),
    ("amped", "walker_run", 2, 14.0),
    ("amped", "walker_walk", 1, 60.0),
    ("amped", "walker_walk", 2, 60.0),
    ("cic", "walker_run", 1, 31.0),
    ("cic", "walker_run", 2, 33.0),
    ("cic", "walker_walk", 1, 40.0),
    ("cic", "walker_walk", 2, 50.0),
)


# ------------------------------------------------------------------------------------------ returns


def test_means_sample_deviations_sums_and_differences_by_hand():
    table = compare(COMPLETE, PAPER)
    assert lines(table) == [
        ["", "", "AMPED", "CIC"],
        ["walker run", "ours", "<u>12</u> ± 3", "**32** ± 1"],  # deviations: sqrt(8), sqrt(2)
        ["", "paper", "<u>20</u> ± 3", "**30** ± 1"],
        ["", "difference", "-8", "+2"],
        ["walker walk", "ours", "**60** ± 0", "<u>45</u> ± 7"],
        ["", "paper", "**50** ± 2", "**50** ± 4"],  # equal ones share the mark
        ["", "difference", "+10", "-5"],
        ["walker sum", "ours", "<u>72</u> ± 3", "**77** ± 8"],  # of 70, 74 and of 71, 83
        ["", "paper", "<u>70</u>", "**80**"],
        ["", "difference", "+2", "-3"],
        ["total", "ours", "<u>72</u> ± 3", "**77** ± 8"],
        ["", "paper", "<u>70</u>", "**80**"],
        ["", "difference", "+2", "-3"],
    ]
    assert table.caption == (
        "Episode returns; ± of ours is the sample standard deviation (n - 1) over 2 seeds unless "
        "stated."
    )
    assert table.notes == []


def test_partial_runs_show_dashes_and_how_many_seeds_there_are():
    table = compare(COMPLETE.drop(index=[1, 6, 7]), PAPER)
    assert lines(table)[1:7] == [
        ["walker run", "ours", "<u>10</u> (1 seed)", "**32** ± 1"],
        ["", "paper", "<u>20</u> ± 3", "**30** ± 1"],
        ["", "difference", "-10", "+2"],
        ["walker walk", "ours", "60 ± 0", "-"],  # nothing is best of one
        ["", "paper", "**50** ± 2", "**50** ± 4"],
        ["", "difference", "+10", "-"],
    ]
    # The sum of the one seed that has both tasks.
    assert lines(table)[7][2:] == ["70 (1 seed)", "-"]


def test_one_seed_has_no_deviation_and_the_caption_says_so():
    table = compare(COMPLETE[COMPLETE.seed == 1], PAPER)
    assert lines(table)[1] == ["walker run", "ours", "<u>10</u>", "**31**"]
    assert table.caption == "Episode returns; ours are of one seed, without a deviation."


def test_a_method_of_ours_only_gets_a_column_and_other_tasks_a_note():
    rows = ours(
        ("amped_release", "walker_run", 1, 25.0),
        ("amped", "jaco_reach_top_left", 1, 5.0),
        ("amped", "walker_run", 1, np.nan),
    )
    table = compare(rows, PAPER)
    assert lines(table)[0][2:] == ["AMPED", "CIC", "AMPED (release)"]
    # No difference: no line of it.
    assert lines(table)[1:3] == [
        ["walker run", "ours", "-", "-", "25"],
        ["", "paper", "<u>20</u> ± 3", "**30** ± 1", "-"],
    ]
    assert table.notes == [
        "Not in the paper's table, so left out: jaco_reach_top_left.",
        "No finite score: amped walker_run seed 1.",
    ]


def test_two_runs_for_one_cell_are_refused():
    with pytest.raises(UserError, match="more than one score for cic walker_walk seed 2"):
        compare(pd.concat([COMPLETE, COMPLETE.tail(1)]), PAPER)


@pytest.mark.parametrize("name", RETURNS)
def test_without_runs_the_papers_table_stands_alone_with_its_marks(name):
    printed = paper.load(name)
    table = compare(None, printed)
    assert table.notes == ["No runs of ours."] and {line[1] for line in lines(table)[1:]} == {
        "paper"
    }
    assert len(lines(table)) == 1 + printed.groupby(["domain", "task"]).ngroups
    if "bold" in printed:
        # Underlined by mistake (results/paper/README.md).
        wrong = {("urlb", "quadruped_jump", "becl")}
        marks = {
            (r.task if r.kind == "score" else r.domain, r.method): r for r in printed.itertuples()
        }
        for row in (line for block in table.blocks for line in block):
            key = row.row.replace(" ", "_").removesuffix("_sum").replace("total", "all")
            for method, entry in zip(table.methods, row.entries, strict=True):
                theirs = marks.get((key, method))
                if theirs and (name, key, method) not in wrong:
                    wanted = "best" if theirs.bold else "second" if theirs.underlined else ""
                    assert entry.mark == wanted, (key, method)


@pytest.mark.parametrize("name", ["urlb", "selection"])
def test_csv_has_every_number_unrounded(name):
    table = compare(None, paper.load(name))
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    printed = paper.load(name)
    assert [float(row["paper_mean"]) for row in rows] == printed["mean"].tolist()
    assert {row["seeds"] for row in rows} == {"0"} and {row["mean"] for row in rows} == {""}
    rows = list(csv.DictReader(io.StringIO(compare(COMPLETE, PAPER).csv())))
    assert float(rows[0]["std"]) == pytest.approx(8**0.5) and float(rows[0]["difference"]) == -8


@pytest.mark.parametrize("seed", range(5))
def test_marks_go_to_the_two_largest_printed_values(seed):
    values = np.random.default_rng(seed).integers(0, 6, 7).astype(float)
    entries = marked([Entry(v) for v in values] + [Entry()], 0)
    best, second = ([e.mean for e in entries if e.mark == mark] for mark in ("best", "second"))
    assert set(best) == {values.max()} and len(best) == (values == values.max()).sum()
    assert set(second) == {max(values[values < values.max()])}
    assert entries[-1].mark == ""


def test_values_that_print_alike_share_a_mark():
    assert [entry.mark for entry in marked([Entry(12.4), Entry(11.8), Entry(3.0)], 0)] == [
        "best",
        "best",
        "second",
    ]


# ------------------------------------------------------------------------------------------- output


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (12.5, 0, False, "12"),
        (0.04, 0, False, "0.04"),
        (0, 0, False, "0"),
        (-0.2, 0, True, "+0"),
        (3.456, 2, False, "3.46"),
        (0.00028, 2, False, "0.0003"),
        (-8, 0, True, "-8"),
        (8, 0, True, "+8"),
        (-3.2, 1, False, "-3.2"),
    ],
)
def test_numbers_are_rounded_without_vanishing(value, digits, signed, text):
    assert spell(value, digits, signed=signed) == text


def test_latex_escapes_what_tex_would_read():
    assert escape(r"a_b & 5% $x$ #1 {y} ~ ^ \z ±") == (
        r"a\_b \& 5\% \$x\$ \#1 \{y\} \textasciitilde{} "
        r"\textasciicircum{} \textbackslash{}z $\pm$"
    )
    text = compare(ours(("my_method", "walker_run", 1, 5.0)), PAPER, caption="50% of x_y").latex()
    assert r"\caption{50\% of x\_y; ours are of one seed" in text and r"my\_method \\" in text
    assert not re.search(r"(?<!\\)[_#]", text)


def test_latex_is_a_whole_booktabs_table():
    text = compare(COMPLETE, PAPER).latex()
    body = text.split("\\toprule\n")[1].split("\\bottomrule")[0]
    rows = [line for line in body.splitlines() if line != r"\midrule"]
    assert all(line.endswith(r" \\") and line.count("&") == 3 for line in rows) and len(rows) == 13
    assert body.count(r"\midrule") == 2  # under the head, and above the total
    assert r"walker run & ours & \underline{12} $\pm$ 3 & \textbf{32} $\pm$ 1 \\" in text
    assert r" & difference & $-$8 & +2 \\" in text
    assert r"\begin{tabular}{llrr}" in text and text.endswith("\\end{tabular}\n\\end{table}\n")
    assert "& -- " in compare(COMPLETE.drop(index=[6, 7]), PAPER).latex()


def test_bars_in_a_name_do_not_break_markdown():
    table = compare(ours(("a|b", "walker_run", 1, 5.0)), PAPER)
    assert r"a\|b" in table.markdown()


# -------------------------------------------------------------------------------------------- hours


def run(**values):
    return {
        **dict.fromkeys(COLUMNS),
        "phase": "pretrain",
        "domain": "walker",
        "method": "amped",
        "state": "finished",
        "device": "cpu",
        "threads": 2,
        "frame": 1000.0,
        "wall_seconds": 3600.0,
        **values,
    }


def test_hours_name_the_machine_and_stand_beside_the_papers():
    runs = pd.DataFrame(
        [
            run(),
            run(wall_seconds=10800.0),
            run(device="cuda", frame=2e6, method="cic"),
            run(state="unfinished", wall_seconds=None),
            run(phase="finetune"),
            run(domain="tree_maze"),
        ]
    )
    table = wall_clock(runs, "pretrain")
    shown = lines(table)
    assert shown[1][:3] == ["walker", "ours: cpu, 2 threads, 1,000 frames", "2.00 ± 1.41 (2 runs)"]
    assert shown[2][:5] == ["", "ours: cuda, 2 threads, 2,000,000 frames", "-", "-", "1.00 (1 run)"]
    assert shown[3][:3] == [
        "",
        "paper: NVIDIA RTX 3060, AMD Ryzen 7 7700, 2,000,000 steps",
        "13.47 ± 0.06",
    ]
    assert len(shown) == 6 and shown[4][0] == "quadruped" and "paper" in shown[4][1]
    assert table.notes[0] == "1 run left out: unfinished." and "DDPG" in table.notes[1]
    assert "**" not in table.markdown()
    assert 'walker,"ours: cpu, 2 threads, 1,000 frames",amped,2.0,1.414' in table.csv()


@pytest.mark.parametrize("phase", ["pretrain", "finetune"])
def test_hours_of_the_paper_alone(phase):
    table = wall_clock(None, phase)
    printed = paper.load(f"hours_{phase}").set_index(["domain", "method"])["mean"]
    # Table 11's AMPED has its selector, so its hours stand beside runs that have one.
    whose = {"amped_selector": "amped"} if phase == "finetune" else {}
    for row in table.data.itertuples():
        assert row.mean == printed[row.domain, whose.get(row.method, row.method)]
    assert len(table.data) == len(printed) and table.notes[0] == "No runs of ours."
    assert table.methods[0] == ("amped_selector" if phase == "finetune" else "amped")
    assert lines(table)[1][0] == "walker" and table.latex().count(r"\midrule") == 3


def test_the_machine_that_is_named_is_the_papers():
    quotes = paper.load("claims").set_index("id")["quote"]
    gpu, cpu = hours.PAPER_MACHINE.split(", ")
    assert gpu in quotes["gpu_memory"] and cpu in quotes["cpu_cores"]


def test_hours_need_to_know_the_method_of_a_run():
    with pytest.raises(UserError, match="no column method"):
        wall_clock(pd.DataFrame([run()]).drop(columns="method"), "pretrain")


def test_a_dash_stands_for_what_there_is_not():
    assert compare(None, PAPER).cell(Entry(), MARKDOWN) == "-"


# ---- tables of any tasks and methods


def test_other_sizes_than_the_papers_are_told_and_give_no_differences():
    ours = pd.DataFrame(
        [("amped", "walker_run", seed, 100.0 + seed) for seed in (1, 2)]
        + [("mine", "moon_walk", seed, 7.0) for seed in (1, 2)],
        columns=["method", "task", "seed", "score"],
    )
    tasks = {"walker_run": "walker", "moon_walk": "moon"}
    same, other = (
        tables.compare(
            ours, paper.load("urlb"), shown=tables.Shown(tasks, ["amped", "mine"], warning)
        )
        for warning in ("", "Not comparable with the paper: preset cpu.")
    )
    rows = [(line.row, line.source) for block in same.blocks for line in block]
    assert rows == [
        ("walker run", "ours"),
        ("", "paper"),
        ("", "difference"),
        ("moon walk", "ours"),
    ]
    assert same.methods == ["amped", "mine"] and same.notes == []
    assert "difference" not in other.markdown() and "preset cpu" in other.notes[0]
    alone = tables.compare(ours, None, shown=tables.Shown(tasks, ["mine", "amped"]))
    assert "paper" not in alone.markdown() and alone.methods == ["mine", "amped"]


def test_an_experiment_of_another_size_says_so():
    small = size_warning(load(["experiment=walker_small"]))
    assert (
        "pre-training of 10,000 frames, the paper's of 2,000,000" in small and "preset cpu" in small
    )
    assert size_warning(load(["experiment=table_metra", "methods=amped", "seed=1"])) == ""

"""Figures: what is drawn is what the tables hold; the paper alone, no runs, one run and real runs
all draw."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from PIL import Image

import envs
from analysis import palette
from analysis.frames.runs import read_curves, read_runs, read_train
from analysis.scores import aggregate as scores
from analysis.scores import conflicts
from analysis.scores import figures as figures
from experiment import paper
from experiment.labels import CHANGES, label, shown
from utils import CONFIGS, UserError

TASKS = list(envs.TASKS)
SURGERY = ["surgery/sample_conflict", "surgery/conflict", "surgery/dot", "surgery/cosine"]


def drawn(figure):
    figure.draw_without_rendering()  # warnings (missing glyphs, layout) are errors here
    return figure


def words(figure):
    return [text.get_text() for text in figure.findobj(matplotlib.text.Text)]


def some_scores(
    methods=("amped", "cic"), tasks=TASKS[:3], seeds=(1, 2, 3), frames=(0, 50_000, 100_000)
):
    rng = np.random.default_rng(0)
    rows = [
        (m, t, s, f, 800 * rng.random())
        for m in methods
        for t in tasks
        for s in seeds
        for f in frames
    ]
    return pd.DataFrame(rows, columns=["method", "task", "seed", "frame", "score"])


# ------------------------------------------------------------------------------------------ palette


def test_every_method_has_a_colour_a_marker_and_a_name_of_its_own():
    agents = {path.stem for path in (CONFIGS / "agent").glob("*.yaml")}
    assert set(shown()) == agents
    labels = {method: label(method) for method in (*agents, *CHANGES)}
    for table in (palette.palette(), palette.markers(), labels):
        assert len(set(table.values())) == len(table)
    assert palette.palette().keys() == palette.markers().keys()
    assert {show["family"] for show in shown().values() if show["label"] != show["family"]} <= (
        set(palette.palette())
    )


def test_an_agent_whose_yaml_says_nothing_is_shown_by_its_name_in_a_colour_of_the_cycle():
    assert label("surprise") == "surprise" and palette.marker("surprise") == "o"
    assert palette.colours(["amped", "surprise"])["surprise"] == palette.CHANGES[0]


def test_a_methods_colour_does_not_depend_on_the_others():
    assert (
        palette.colours(["cic", "amped"])["amped"]
        == palette.colours(["amped", "p=0.0"])["amped"]
        == "#882255"
    )


@pytest.mark.parametrize(
    "name", ["urlb", "ablation", "projection", "skills", "selection", "metra", "scaling"]
)
def test_methods_of_one_figure_have_different_colours(name):
    methods = paper.load(name)["method"].unique()
    assert len(set(palette.colours(methods).values())) == len(methods)


def test_variants_of_a_method_are_tints_of_it():
    found = palette.colours(["amped", "amped_release", "amped_literal", "metra_discrete"])
    assert found["amped"] < found["amped_release"] < found["amped_literal"]  # lighter and lighter
    assert palette.tint("#882255", 0) == "#882255" and palette.tint("#882255", 1) == "#FFFFFF"
    assert palette.marker("amped_release") == palette.marker("amped")


# -------------------------------------------------------------------------------- intervals, curves


def test_intervals_are_drawn_where_the_table_has_them():
    found, _ = scores.matrices(some_scores(frames=(1,)), TASKS[:3])
    table = scores.aggregate(found | {"ddpg": found["cic"][:1]}, seed=1, reps=50)
    figure = drawn(figures.aggregate_intervals(table))
    assert [axis.get_title()[:-2] for axis in figure.axes] == list(scores.METRICS)
    for axis in figure.axes:
        metric = table[table["metric"] == axis.get_title()[:-2]]
        edges = {(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axis.patches}
        assert len(edges) == 2  # ddpg, a single run, has a line and no bar
        for row in metric.dropna().itertuples():
            assert any(np.allclose(edge, (row.low, row.high)) for edge in edges)
        assert {line.get_xdata()[0] for line in axis.lines} == set(metric["value"])
    assert {"AMPED (3 runs)", "DDPG (1 run, no interval)"} <= set(words(figure))


def test_without_runs_the_figures_say_why_they_are_empty():
    empty = some_scores().iloc[:0]
    for figure in (
        figures.aggregate_intervals(scores.aggregate({}, seed=1)),
        figures.profile_figure(scores.profiles({}, [0.5], seed=1)),
        figures.task_curves(scores.task_efficiency(empty, TASKS, seed=1)[0]),
    ):
        assert figures.NO_RUNS in words(drawn(figure))


def test_curves_have_a_row_per_task_and_the_points_of_the_table():
    curves = some_scores()
    table, _ = scores.task_efficiency(curves, TASKS[:3], seed=1, reps=20)
    figure = drawn(figures.task_curves(table))
    assert len(figure.axes) == 3 * 4 and [axis.get_ylabel() for axis in figure.axes[::4]] == [
        "walker stand",
        "walker walk",
        "walker run",
    ]
    mean = table[(table.task == TASKS[1]) & (table.metric == "Mean") & (table.method == "cic")]
    line = next(
        line for line in figure.axes[6].lines if line.get_color() == palette.palette()["cic"]
    )
    assert line.get_xdata().tolist() == [0, 50_000, 100_000] and np.allclose(
        line.get_ydata(), mean["value"]
    )
    assert "50k" in words(figure) and "CIC" in words(figure)


def test_profiles_are_drawn_from_the_table():
    found, _ = scores.matrices(some_scores(frames=(1,)), TASKS[:3])
    table = scores.profiles(found, np.linspace(0, 1, 5), seed=1, reps=20)
    (axis,) = drawn(figures.profile_figure(table)).axes
    assert [line.get_ydata().tolist() for line in axis.lines] == [
        rows["value"].tolist() for _, rows in table.groupby("method", sort=False)
    ]


# --------------------------------------------------------------------------------------------- bars


@pytest.mark.parametrize("name", figures.BARS)
def test_the_paper_alone_has_a_hatched_bar_for_every_mean(name):
    printed = paper.compared(name)
    printed = printed[printed["kind"] == "score"]
    figure = drawn(figures.bars(None, name))
    bars = [bar for axis in figure.axes for bar in axis.patches]
    assert sorted(bar.get_height() for bar in bars) == sorted(printed["mean"]) and all(
        bar.get_hatch() for bar in bars
    )
    assert [axis.get_title() for axis in figure.axes] == list(printed["domain"].unique())
    assert any("no runs of ours" in text for text in words(figure))


def test_ours_stand_solid_beside_the_papers():
    rows = pd.DataFrame(
        [
            ("selector", "walker_flip", 1, 600.0),
            ("selector", "walker_flip", 2, 700.0),
            ("random", "walker_flip", 1, 300.0),
        ],
        columns=["method", "task", "seed", "score"],
    )
    figure = drawn(figures.bars(rows, "selection"))
    solid = [bar for axis in figure.axes for bar in axis.patches if not bar.get_hatch()]
    assert [bar.get_height() for bar in solid] == [650, 300]
    paint = palette.colours(["selector", "random", "single", "oracle"])
    assert [to_hex(bar.get_facecolor()).upper() for bar in solid] == [
        paint["selector"],
        paint["random"],
    ]
    theirs = next(
        bar for bar in figure.axes[0].patches if bar.get_hatch() and bar.get_height() == 674
    )
    assert solid[0].get_x() + solid[0].get_width() == pytest.approx(theirs.get_x())  # side by side
    spread = figure.axes[0].containers[0].lines[2][0].get_segments()[0]  # of the first error bar
    assert spread[:, 1].tolist() == pytest.approx([650 - 5000**0.5, 650 + 5000**0.5])
    assert "no runs of ours" not in " ".join(words(figure))


def test_unknown_bars_and_doubled_runs_are_refused():
    with pytest.raises(UserError, match="no bars of 'urlbs'; choose from projection, skills"):
        figures.bars(None, "urlbs")
    twice = pd.DataFrame(
        [("amped", "walker_run", 1, 1.0)] * 2, columns=["method", "task", "seed", "score"]
    )
    with pytest.raises(UserError, match="more than one score for amped walker_run seed 1"):
        figures.bars(twice, "urlb")


# ------------------------------------------------------------------------------ conflict, real runs


def test_conflict_has_the_papers_ratios_as_dashed_lines():
    figure = drawn(conflicts.draw(None))
    dashed = [
        line.get_ydata()[0]
        for axis in figure.axes[:3]
        for line in axis.lines
        if line.get_linestyle() == "--"
    ]
    assert dashed == [0.9997, 0.9997, 0.7777] and words(figure).count("no runs yet") == 3


def test_real_runs_from_their_directories_to_files(cli, tmp_path):
    assert cli("pretrain").code == 0
    assert cli("finetune", "task=walker_run").code == 0
    runs = read_runs(cli.root).assign(method=lambda table: table["agent"])
    pretrained = runs[runs["phase"] == "pretrain"]
    train = read_train(pretrained["path"], SURGERY).merge(
        pretrained[["path", "domain", "method", "seed"]], on="path"
    )
    figure = conflicts.draw(train)
    # walker's
    for axis, column in ((figure.axes[3], "surgery/dot"), (figure.axes[6], "surgery/cosine")):
        assert any(list(line.get_ydata()) == train[column].tolist() for line in axis.lines)
    written = figures.save(figure, tmp_path / "new" / "conflict,p=0.65")
    assert [path.name for path in written] == ["conflict,p=0.65.pdf", "conflict,p=0.65.png"]
    assert (
        written[0].read_bytes().startswith(b"%PDF")
        and b"/Subtype /Image" not in written[0].read_bytes()
    )
    with Image.open(written[1]) as picture:
        assert picture.size[0] > 800
    again = figures.save(conflicts.draw(train), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]

    tuned = runs[runs["phase"] == "finetune"]
    curves = read_curves(tuned["path"]).rename(columns={"return_mean": "score"})[
        ["path", "frame", "score"]
    ]
    curves = curves.merge(tuned[["path", "method", "task", "seed"]], on="path")
    table, gaps = scores.task_efficiency(curves, ["walker_run"], seed=1)
    assert gaps == ["walker_run: amped: one run only, so no interval"]
    drawn(figures.task_curves(table))
    found, gaps = scores.matrices(tuned, TASKS)
    assert found == {} and gaps[0].startswith(
        "amped seed 1: no walker_stand, walker_walk, walker_flip, quadruped_"
    )

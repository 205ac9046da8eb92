"""Each maze figure of the paper is one command: the runs it needs, trained once, measured once,
drawn."""

import argparse
import fcntl
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from analysis import figure
from analysis.maze import measure
from analysis.maze import pictures as maze_pictures
from analysis.maze import rows as maze_rows
from analysis.maze import tables as maze_tables
from analysis.maze.episodes import load
from experiment import definition as experiment
from tests.kit.cli import assert_same_run, finish, table
from tests.kit.pictures import nearest, pixels
from tests.kit.runs import group_is_gone, kill_after_checkpoint, stamps, wait_for
from utils import ROOT, UserError

QUICK = ("--episodes", "4", "--mine-steps", "20")
TINY = ("preset=smoke", "skill_dim=3")
SIX = ["diayn", "becl", "cic", "cesd", "comsd", "amped"]
FIVE = ["diayn", "becl", "cic", "comsd", "amped"]
# Long enough to be stopped in the middle.
LONG = ("num_train_frames=2000", "eval_every_frames=2000")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A run_root for the whole module: what one test trains, the next one finds."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def draw(run_main):
    """draw("experiment=...") as python -m analysis.figure."""
    return partial(run_main, figure.main)


def start(*args):
    return subprocess.Popen(
        [sys.executable, "-m", "analysis.figure", *map(str, args)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def described(found):
    """What the runs of an experiment are, from their composed configs."""
    return [
        (c["agent"]["name"], c["domain"]["name"], c["skill_dim"], c["seed"], c["preset"]["name"])
        for c in (run.config for run in found.runs)
    ]


def train_here(cli, words):
    """The runs of an experiment by pretrain.py, and their rows by the function of the pool, in this
    process."""
    found = experiment.load(list(words))
    for run in found.runs:
        assert cli("pretrain", *run.words).code == 0
    out = Path(found.runs[0].config["run_root"]) / "figures" / f"{found.name}.csv"
    options = argparse.Namespace(episodes=4, mine_steps=20, out=out)
    for target in figure.make_targets(found):
        row = out.parent / "rows" / f"{maze_rows.fingerprint(target, options)}.json"
        maze_rows.measure_to(row, target, options)


# ----------------------------------------------------------------------------- what the paper shows


CAPTIONS = {  # methods, maze, numbers of skills, seeds
    "fig_tree6": (SIX, "tree_maze", [6], [1]),
    "fig_tree_counts": (FIVE, "tree_maze", [5, 10, 15, 20, 25], [1]),
    "fig_square15": (FIVE, "square_maze", [15], [1]),
    "fig_square_separation": (["cesd", "becl"], "square_maze", [6], [1]),
    "fig_entropy_mi": (SIX, "square_maze", [10], [1, 2, 3]),
    "fig_evolution": (["amped"], "tree_maze", [6], [1]),
}


def test_a_figure_needs_exactly_the_runs_of_its_caption():
    found = {
        name: experiment.load([f"experiment={name}"])
        for name in experiment.names()
        if experiment.read(name)["figure"]["kind"] in figure.KINDS
    }
    assert set(found) == {
        *CAPTIONS,
        "maze_study_tree",
        "maze_study_square",
        "maze_projection",
        "maze_contrast",
        "maze_tuning",
        "maze_balance",
        "balance_search",
        "balance_long",
        "balance_search2",
        "balance_search_long",
        "balance_skills",
        "balance_ablation",
    }
    for each in found.values():
        figure.check(each)
    for name, (agents, domain, counts, seeds) in CAPTIONS.items():
        assert described(found[name]) == [
            (a, domain, n, seed, "cpu") for n in counts for seed in seeds for a in agents
        ]
    probabilities = [
        (run.config["surgery"]["name"], run.config["p"]) for run in found["maze_projection"].runs
    ]
    assert probabilities == [
        ("pcgrad", 0),
        ("pcgrad", 0.5),
        ("pcgrad", 0.75),
        ("pcgrad", 1),
        ("sum", 0.5),
    ]
    assert {run.path for run in found["fig_evolution"].runs} < {
        run.path for run in found["fig_tree6"].runs
    }


def product(row):
    return float(row["coverage"]) * float(row["mi_grid"])


def test_the_study_has_every_method_with_the_settings_that_the_search_chose_by_its_rule():
    """Three seeds and AMPED without surgery; a setting other than the first is taken if it is
    better by 0.1."""
    search = experiment.load(["experiment=maze_tuning"])
    keys = ("lr", "entropy_weight")
    tried = [(run.method, *(run.config["learner"][key] for key in keys)) for run in search.runs]
    assert tried == [(a, lr, w) for lr in (3e-4, 1e-3) for w in (0.025, 0.01) for a in SIX]
    assert not {run.config["seed"] for run in search.runs} & {1, 2, 3}
    rows = {
        (row["agent"], row["variant"]): row for row in table(ROOT / "results/maze/maze_tuning.csv")
    }
    chosen = {}
    for run in search.runs:
        value = product(rows[run.method, run.path.parts[-2]])
        chosen.setdefault(run.method, []).append(
            (value, *(run.config["learner"][key] for key in keys))
        )
    chosen = {
        method: max(tries) if max(tries)[0] > tries[0][0] + 0.1 else tries[0]
        for method, tries in chosen.items()
    }
    for name, domain, count in (
        ("maze_study_tree", "tree_maze", 6),
        ("maze_study_square", "square_maze", 10),
    ):
        study, agents = experiment.load([f"experiment={name}"]), [*SIX, "amped_literal", "amped"]
        assert described(study) == [
            (a, domain, count, seed, "cpu") for seed in (1, 2, 3) for a in agents
        ]
        for run in study.runs:
            expected = chosen.get(run.method, chosen["amped"])[1:]
            assert tuple(run.config["learner"][key] for key in keys) == expected, run.name
            assert run.config["num_train_frames"] >= 1_250_000
        surgery = {
            run.label: run.config["surgery"]["name"]
            for run in study.runs
            if "amped" in run.words[0]
        }
        assert surgery == {
            "AMPED": "pcgrad",
            "AMPED without surgery": "sum",
            "AMPED (literal)": "pcgrad",
        }


@pytest.mark.parametrize("preset", ["cpu", "paper"])
def test_the_evolution_is_drawn_at_epochs_1_3_5_7_9(preset):
    found = experiment.load(["experiment=fig_evolution", f"preset={preset}"])
    targets = figure.make_targets(found)
    assert [target.label for target in targets] == [
        f"AMPED, epoch {epoch}" for epoch in (1, 3, 5, 7, 9)
    ]
    assert [target.frame for target in targets] == found.runs[0].config["snapshots"][:5]


# ------------------------------------------------------------------------------- from words to runs


def test_words_replace_the_grid_pick_methods_and_reach_every_run(tmp_path):
    root = f"run_root={tmp_path / 'a, b'}"
    found = experiment.load(
        ["experiment=fig_tree6", "methods=amped,rnd", "seed=4,2", "learner.lr=0.1", root]
    )
    runs = [(run.config["agent"]["name"], run.config["seed"]) for run in found.runs]
    assert runs == [("amped", 4), ("rnd", 4), ("amped", 2), ("rnd", 2)]
    assert all(
        run.config["learner"]["lr"] == 0.1 and run.config["preset"]["name"] == "cpu"
        for run in found.runs
    )
    where = (
        "pretrain/tree_maze/amped/cpu,learner.lr=0.1,num_train_frames=1250000,skill_dim=6/seed_4"
    )
    assert found.runs[0].path == tmp_path / "a, b" / where and found.runs[0].label == "AMPED"
    (paper,) = experiment.load(["experiment=fig_tree6", "methods=cic", "preset=paper"]).runs
    assert paper.config["preset"]["name"] == "paper" and paper.path.parts[-2] == "paper,skill_dim=6"


def test_a_key_that_tells_grids_apart_picks_among_them(tmp_path):
    own = tmp_path / "two.yaml"
    own.write_text(
        "title: T\npreset: cpu\nmethods: [diayn, {label: no surgery, agent: amped, surgery: sum}]\n"
        "grid: [{domain: tree_maze, skill_dim: 6, seed: 1}, {domain: square_maze, skill_dim: 10, seed: 1}]\n"
        "figure: {kind: skills}\n"
    )
    words = [f"experiment={own}", "methods=diayn,no surgery", "seed=7"]
    points = [
        (run.config["domain"]["name"], run.config["skill_dim"])
        for run in experiment.load(words).runs
    ]
    assert points == [("tree_maze", 6)] * 2 + [("square_maze", 10)] * 2
    one = experiment.load([*words, "domain=square_maze"]).runs
    assert [(run.label, run.config["skill_dim"]) for run in one] == [
        ("DIAYN", 10),
        ("no surgery", 10),
    ]
    with pytest.raises(
        UserError, match="domain=walker is in no grid; choose from tree_maze, square_maze"
    ):
        experiment.load([f"experiment={own}", "domain=walker"])


def test_the_command_of_a_run_is_the_one_that_makes_its_directory(cli, tmp_path):
    words = [
        "experiment=maze_study_tree",
        "methods=AMPED without surgery",
        "seed=2",
        "preset=smoke",
    ]
    (run,) = experiment.load([*words, f"run_root={tmp_path}"]).runs
    assert run.state == "missing"
    python, script, *args = shlex.split(run.command)
    assert (python, script) == ("python", "pretrain.py") and cli("pretrain", *args).code == 0
    assert (run.path / "result.json").exists() and run.state == "finished"
    (run.path / "result.json").unlink()
    (run.path / "checkpoint_1080.pt").touch()
    assert run.state == "unfinished (1,080)"


# --------------------------------------------------------------------------------------- end to end


def test_one_command_trains_measures_and_draws_and_the_next_time_does_none_of_it(cli, draw, shared):
    words = ("experiment=fig_tree6", *TINY, "methods=diayn,amped", f"run_root={shared}")
    diayn, amped = experiment.load(list(words)).runs
    assert cli("pretrain", *diayn.words).code == 0
    before = draw(*words, "--plan")
    assert before.code == 0 and "2 pre-trainings: 1 finished, 0 unfinished, 1 missing" in before.out
    states = {"finished": diayn, "missing": amped}
    assert before.out.splitlines()[2:] == [
        f"{state:<22}{run.command}" for state, run in states.items()
    ]
    assert not amped.path.exists()
    done = draw(*words, *QUICK, "--workers", 2)
    assert done.code == 0 and done.err == "", done.err
    picture, rows = shared / "figures/fig_tree6.png", table(shared / "figures/fig_tree6.csv")
    assert (
        done.out.splitlines()[-1] == f"picture: {picture}"
        and "measuring 2 of 2 rows, 2 at a time" in done.out
    )
    assert [row["agent"] for row in rows] == ["diayn", "amped"] and tuple(
        rows[0]
    ) == measure.COLUMNS

    # by hand
    assert (
        cli("pretrain", *(word for word in amped.words if not word.startswith("run_root"))).code
        == 0
    )
    assert_same_run(amped.path, cli.root / amped.path.relative_to(shared))
    for run, row in zip((diayn, amped), rows, strict=True):
        options = argparse.Namespace(episodes=4, mine_steps=20)
        assert row == measure.as_text(measure.measure_snapshot(load(run.snapshot()), options))
        shown = next(
            line.split() for line in done.out.splitlines() if line.startswith(f"  {run.label} ")
        )
        assert shown[2:] == [f"{float(row[name]):.3f}" for name in maze_tables.SHOWN]
    colours = maze_pictures.colours(3)
    assert max(nearest(pixels(picture), colour) for colour in colours) < 20

    kept = stamps(shared)
    again = draw(*words, *QUICK)
    assert again.code == 0 and "2 runs, 2 finished\n" in again.out and "measuring" not in again.out
    products = {picture, picture.with_suffix(".csv")}  # written again, with the same bytes
    assert {path: stamp for path, stamp in stamps(shared).items() if path not in products} == {
        path: stamp for path, stamp in kept.items() if path not in products
    }
    assert table(shared / "figures/fig_tree6.csv") == rows


def test_a_row_is_up_to_date_as_long_as_its_snapshot_and_the_options_are(cli, shared):
    words = ["experiment=fig_tree6", *TINY, "methods=diayn", f"run_root={shared}"]
    (run,) = experiment.load(words).runs
    assert cli("pretrain", *run.words).code == 0
    (target,) = figure.make_targets(experiment.load(words))

    def mark(episodes=4, mine_steps=20, target=target):
        return maze_rows.fingerprint(
            target, argparse.Namespace(episodes=episodes, mine_steps=mine_steps)
        )

    first = mark()
    assert first == mark() and first not in (mark(episodes=5), mark(mine_steps=21))
    assert first != mark(target=target._replace(frame=240))
    snapshot = run.snapshot()
    content = snapshot.read_bytes()
    try:
        snapshot.write_bytes(content + b" ")
        assert mark() != first
        snapshot.unlink()
        with pytest.raises(UserError, match="no snapshot at"):
            mark()
    finally:
        snapshot.write_bytes(content)
    assert mark() == first


def test_a_run_that_fails_is_named_and_nothing_is_drawn_of_the_rest(cli, draw, tmp_path):
    """Somebody else holds the directory of AMPED while the figure is made."""
    words = ("experiment=fig_tree6", *TINY, "methods=diayn,amped", f"run_root={tmp_path}")
    diayn, amped = experiment.load(list(words)).runs
    assert cli("pretrain", *diayn.words).code == 0
    amped.path.mkdir(parents=True)
    handle = os.open(amped.path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    failed = draw(*words, *QUICK)
    os.close(handle)
    assert failed.code == 2
    assert (
        "error: AMPED, tree_maze, 3 skills, seed 1 (exit code 2): not finished, so nothing is drawn"
        in failed.err
    )
    assert not list((tmp_path / "figures").iterdir())


def test_a_figure_that_was_interrupted_and_then_killed_ends_with_the_run_of_an_undisturbed_one(
    cli, tmp_path
):
    words = ("experiment=fig_tree6", *TINY, *LONG, "methods=amped", f"run_root={tmp_path}")
    (run,) = experiment.load(list(words)).runs
    started = start(*words, *QUICK)
    wait_for(lambda: list(run.path.glob("checkpoint_*")), "no checkpoint")
    os.killpg(started.pid, signal.SIGINT)  # a terminal sends Ctrl-C to the whole group
    stopped = finish(started)
    assert stopped.code == 130, stopped
    assert (
        stopped.err == "SIGINT: each run is saved where it was; the same command continues there\n"
    )
    wait_for(lambda: group_is_gone(started.pid), "a process outlived the command")
    saved = int(run.state[12:-1].replace(",", ""))
    assert 80 <= saved < 2000

    started = start(*words, *QUICK)
    kill_after_checkpoint(started, run.path, saved + 80, signal.SIGKILL)
    assert started.wait(30) == -signal.SIGKILL
    wait_for(lambda: group_is_gone(started.pid), "a run goes on without its command")
    assert finish(started).err == "" and run.state.startswith("unfinished")
    assert not list((tmp_path / "figures").iterdir())

    for words in (run.words, [word for word in run.words if not word.startswith("run_root")]):
        assert cli("pretrain", *words).code == 0
    assert_same_run(run.path, cli.root / run.path.relative_to(tmp_path))


# --------------------------------------------------------------------------------- kinds of figures


def test_an_evolution_shows_one_skill_in_its_colour_at_each_snapshot(cli, draw, tmp_path):
    words = (
        "experiment=fig_evolution",
        *TINY,
        "snapshots=[80,160,320]",
        "figure.snapshots=3",
        "figure.skill=1",
        "figure.epochs=6",
        f"run_root={tmp_path}",
    )
    train_here(cli, words)
    done = draw(*words, *QUICK)
    assert done.code == 0, done.err
    assert [row["frame"] for row in table(tmp_path / "figures/fig_evolution.csv")] == [
        "80",
        "160",
        "320",
    ]
    for epoch in (1, 2, 4):
        assert f"AMPED, epoch {epoch} " in done.out
    image = pixels(tmp_path / "figures/fig_evolution.png")
    for panel in np.array_split(image, 3, axis=1):
        distances = [nearest(panel, colour) for colour in maze_pictures.colours(3)]
        assert distances[1] < 20 < min(distances[0], distances[2])


def test_skill_counts_are_rows_and_methods_columns(cli, draw, tmp_path):
    words = (
        "experiment=fig_tree_counts",
        "preset=smoke",
        "skill_dim=2,4",
        "methods=diayn,cic",
        f"run_root={tmp_path}",
    )
    train_here(cli, words)
    assert draw(*words, *QUICK).code == 0
    assert [
        (row["agent"], row["skills"]) for row in table(tmp_path / "figures/fig_tree_counts.csv")
    ] == [(agent, n) for n in "24" for agent in ("diayn", "cic")]
    image = pixels(tmp_path / "figures/fig_tree_counts.png")
    above, below = np.array_split(image, 2)
    assert (above[:, :28] < 100).any() and (below[:, :28] < 100).any()  # the name of each row
    # Of the methods, above only.
    titles = [(part[:22, 28:] < 100).any(axis=2).any(axis=0) for part in (above, below)]
    assert titles[0].any() and not titles[1].any() and 660 < image.shape[1] < 720


def test_panels_fill_row_after_row(tmp_path):
    lines = np.tile(np.linspace([-4, -2], [4, -2], 50), (20, 1, 1))
    panels = [maze_pictures.Panel(lines, np.full(20, skill), "tree") for skill in range(4)]
    maze_pictures.draw_figure(
        panels, tmp_path / "four.png", columns=2, rows=["a", "b"], legend=False
    )
    halves = np.array_split(pixels(tmp_path / "four.png"), 2)
    quarters = [part for half in halves for part in np.array_split(half, 2, axis=1)]
    colours = maze_pictures.colours(4)
    close = np.array(
        [[nearest(quarter, colour) < 20 for colour in colours] for quarter in quarters]
    )
    assert np.array_equal(close, np.eye(4, dtype=bool))


def test_the_study_writes_bars_a_table_with_bounds_and_rows(cli, draw, tmp_path):
    words = (
        "experiment=maze_study_tree",
        "preset=smoke",
        "skill_dim=3",
        "seed=1,2",
        "methods=amped",
        f"run_root={tmp_path}",
    )
    train_here(cli, words)
    assert draw(*words, *QUICK).code == 0
    rows = table(tmp_path / "figures/maze_study_tree.csv")
    assert [row["agent"] for row in rows] == ["amped", "amped", "random", "uniform"]
    lines = (tmp_path / "figures/maze_study_tree.md").read_text().splitlines()
    (amped,) = (line for line in lines if line.startswith("| AMPED |"))
    values = [float(row["coverage"]) for row in rows if row["agent"] == "amped"]
    spread = abs(values[0] - values[1]) / math.sqrt(2)
    assert f"| AMPED | 2 | {sum(values) / 2:.3f} ± {spread:.3f} |" in amped
    assert [line.split(" | ")[0] for line in lines if line.startswith("| ")] == [
        "| method",
        "| ---",
        "| AMPED",
        "| random actions",
        "| uniform states",
    ]
    assert "`python -m analysis.figure experiment=maze_study_tree preset=smoke" in lines[2]
    assert pixels(tmp_path / "figures/maze_study_tree.png").shape[1] == 5 * 240


def measured(label, values, bound=None):
    """One per seed, with the same number in every measure, ten times as much in mi_grid."""
    rows = [
        {
            "skills": "4",
            "agent": label.lower(),
            **dict.fromkeys(maze_tables.NAMES, str(v)),
            "mi_grid": str(10 * v),
        }
        for v in values
    ]
    return [maze_tables.Measured(label, "a maze", bound, row) for row in rows]


def test_the_markdown_table_is_what_a_hand_computes():
    rows = [
        *measured("DIAYN", (1, 2, 3)),
        *measured("AMPED", (1, 1, 2.5)),
        *measured("states", (9,), "ceiling"),
    ]
    lines = maze_tables.markdown(rows, "T", "command", "AMPED").splitlines()
    assert (
        "| DIAYN | 3 | 2.000 ± 1.000 | 2.000 ± 1.000 | 20.000 ± 10.000 | 2.000 ± 1.000 | 2.000 ± 1.000 |"
        in lines
    )
    assert next(line for line in lines if line.startswith("| AMPED")).startswith(
        "| AMPED | 3 | 1.500 ± 0.866 | "
    )
    assert "| states | 1 | 9.000 | 9.000 | 90.000 | 9.000 | 9.000 |" in lines
    assert "No mutual information exceeds log 4 = 1.386." in lines
    # a bound is no method
    assert lines[-1] == (
        "AMPED / best method: coverage 0.750 (best: DIAYN, 2.000); mi_grid 0.750 (best: DIAYN, "
        "20.000)."
    )
    assert "/ best method" not in maze_tables.markdown(rows, "T", "command", "CIC")
    assert "coverage undefined" in maze_tables.markdown(
        measured("AMPED", (0, 0)), "T", "command", "AMPED"
    )


def test_ceilings_are_log_n_for_information_and_the_oracle_for_entropy(tmp_path):
    rows = [*measured("DIAYN", (0.2, 0.6)), *measured("uniform states", (0.9,), "ceiling")]
    (lines,) = maze_tables.by_group(rows).values()
    assert maze_tables.ceiling(lines, "mi_mine") == (math.log(4), "log 4")
    assert maze_tables.ceiling(lines, "entropy_particle") == (0.9, "uniform states")
    assert maze_tables.ceiling({"DIAYN": lines["DIAYN"]}, "entropy_particle") is None
    pictures = []
    # Without its ceiling; other seeds.
    for drawn in (rows, rows[:2], [*measured("DIAYN", (0.3, 0.5)), rows[2]]):
        maze_tables.draw_bars(drawn, ["entropy_particle"], tmp_path / "bars.png")
        pictures.append((tmp_path / "bars.png").read_bytes())
    assert len(set(pictures)) == 3


# ----------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    "words, expected",
    [
        ((), "experiment= is missing; choose from adapt_"),
        (("experiment=fig_tree",), "is not known; choose from adapt_"),
        (("experiment=none.yaml",), "experiment=none.yaml is not known"),
        (("experiment=fig_tree6", "lr"), "lr is not key=value"),
        (("experiment=fig_tree6", "seed=1", "seed=2"), "seed= is given twice"),
        (("experiment=fig_tree6", "learner.rl=1"), "learner.rl is not a key of this run"),
        (("experiment=fig_tree6", "agent=amped"), "give methods=AGENT,AGENT"),
        (("experiment=fig_tree6", "methods=ampd"), "agent=ampd is not known; choose from amped, "),
        (
            ("experiment=fig_tree6", "preset=tiny"),
            "preset=tiny is not known; choose from cpu, paper, smoke",
        ),
        (("experiment=fig_tree6", "seed=-1"), "seed=-1 is not valid"),
        (("experiment=fig_tree6", "domain=walker"), "domain=square_maze or tree_maze"),
        (
            ("experiment=fig_tree6", "figure.kind=pie"),
            "figure.kind=pie is not known; choose from skills, ",
        ),
        (("experiment=fig_tree6", "figure.skill=1"), "figure.kind=skills has the keys"),
        (("experiment=fig_evolution", "preset=smoke"), "has snapshots at [240]"),
        (("experiment=fig_evolution", "figure.skill=6"), "has skills 0 to 5"),
        (
            ("experiment=fig_entropy_mi", "methods=cic", "seed=1", "figure.measures=[area]"),
            "choose from coverage, ",
        ),
        (
            (
                "experiment=maze_study_tree",
                "seed=1",
                "surgery=sum",
                "methods=amped,amped without surgery",
            ),
            "would be the same run",
        ),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(draw, tmp_path, words, expected):
    more = () if not words else (f"run_root={tmp_path / 'runs'}",)
    if "experiment=fig_tree6" in words and not any(word.startswith("methods") for word in words):
        more = (*more, "methods=cic")  # one run to compose instead of six
    refused = draw(*words, *more)
    assert refused.code == 2 and refused.out == "" and refused.err.count("\n") == 1, refused
    assert refused.err.startswith("error: ") and expected in refused.err
    assert not list(tmp_path.iterdir())


def test_a_yaml_of_ones_own_is_an_experiment_and_a_wrong_one_is_refused(draw, tmp_path):
    own = tmp_path / "mine.yaml"
    own.write_text(
        "title: T\npreset: smoke\nmethods: [{label: no noise, agent: diayn, learner.entropy_weight: 0}]\n"
        "grid: {domain: square_maze, skill_dim: 3}\nfigure: {kind: skills}\n"
    )
    planned = draw(f"experiment={own}", f"run_root={tmp_path}", "--plan")
    assert planned.code == 0 and planned.out.startswith("mine: T\n1 pre-training: 0 finished"), (
        planned
    )
    assert (
        "agent=diayn domain=square_maze preset=smoke skill_dim=3 learner.entropy_weight=0"
        in planned.out
    )
    for text in ("title: T\n", "- a\n", "title: [\n"):
        own.write_text(text)
        refused = draw(f"experiment={own}", "--plan")
        assert refused.code == 2 and refused.err.count("\n") == 1 and str(own) in refused.err


def test_a_directory_with_another_setting_is_refused_before_anything_starts(cli, draw, tmp_path):
    words = ("experiment=fig_tree6", *TINY, "methods=diayn,amped", f"run_root={tmp_path}")
    amped = experiment.load(list(words)).runs[1]
    assert cli("pretrain", *amped.words, "variant=smoke,skill_dim=3", "learner.lr=0.5").code == 0
    before = time.time()
    refused = draw(*words)
    assert refused.code == 2 and f"{amped.path} holds a run with other settings" in refused.err
    assert (
        refused.err.count("\n") == 1
        and time.time() - before < 5
        and not (tmp_path / "figures").exists()
    )

"""The audit of balance: rows that grow, areas by hand, and claims that say what is known."""

import itertools
import sys

import numpy as np
import pandas as pd
import pytest

from analysis import balance
from analysis.maze import audit, audit_page
from analysis.scores import claims, fronts
from experiment.definition import load
from utils import UserError

# ------------------------------------------------------------------------------------------- fronts


def test_the_hypervolume_of_three_rectangles_by_hand():
    points = np.array([[0.2, 0.9], [0.5, 0.5], [0.8, 0.1]])
    # From the right: 0.8 x 0.1, then 0.5 x (0.5 - 0.1), then 0.2 x (0.9 - 0.5).
    assert fronts.hypervolume(points) == pytest.approx(0.08 + 0.20 + 0.08)
    inside = np.vstack([points, [0.3, 0.3], [0.5, 0.5]])  # dominated, and twice the same
    assert fronts.hypervolume(inside) == pytest.approx(0.36)
    assert fronts.hypervolume(np.array([[0.9, 0.8]])) == pytest.approx(0.72)
    assert fronts.hypervolume(np.array([[0.5, -0.1]])) == 0


def test_the_hypervolume_is_the_share_of_random_points_below_the_front():
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(6, 2))
    thrown = rng.uniform(size=(200_000, 2))
    below = (thrown[:, None] <= points).all(2).any(1).mean()
    assert fronts.hypervolume(points) == pytest.approx(below, abs=0.004)


def test_the_interval_of_a_hypervolume_is_that_of_its_only_points_area():
    seeds = np.array([[0.5, 1.0], [0.7, 1.0], [0.9, 1.0]])  # areas 0.5, 0.7, 0.9
    value, low, high = fronts.with_interval({"a": seeds})
    assert value == pytest.approx(0.7)
    # A bootstrap of three values: the mean is 0.5 or 0.9 in one draw of 27, more than 2.5 %.
    assert (low, high) == pytest.approx((0.5, 0.9))
    assert np.isnan(fronts.with_interval({"a": seeds[:1]})[1])
    turned = fronts.with_interval({"a": seeds[::-1]})
    assert turned == pytest.approx((value, low, high))


# ------------------------------------------------------------------------------------------- claims


def mean(name, seeds):
    return claims.mean_of(name, np.array(seeds)[:, None], "test", name)


def test_a_share_of_the_best_is_established_by_the_whole_interval():
    best = mean("best", [1.0, 1.0, 1.0])
    assert "**established** (0.980 [0.975, 0.985] of best's 1.000; 3 seeds)" in claims.reaches(
        mean("A", [0.975, 0.98, 0.985]), best, 0.97, "here"
    )
    assert "**not established**" in claims.reaches(
        mean("A", [0.96, 0.99, 0.99]), best, 0.97, "here"
    )
    assert "**not established** (1.000 of" in claims.reaches(mean("A", [1.0]), best, 0.97, "here")
    assert "**established** (1.000 [1.000, 1.000] of" in claims.reaches(best, best, 0.97, "here")


# --------------------------------------------------------------------------------------------- rows

SETTINGS = ("sum 0.20", "sum 0.80", "pcgrad", "amped", "amped_plus")


def made_up(seeds=3, domains=(("tree_maze", 6), ("square_maze", 10))):
    """Rows in which amped_plus has almost everything, and the rest lies on a front."""
    centre = {
        "sum 0.20": (0.95, 0.5),
        "sum 0.80": (0.6, 0.9),
        "pcgrad": (0.8, 0.7),
        "amped": (0.8, 0.7),
        "amped_plus": (0.97, 0.97),
    }
    rows = []
    for (domain, skills), setting, seed in itertools.product(domains, SETTINGS, range(seeds)):
        x, y = centre[setting]
        rows.append(
            {
                "domain": domain,
                "agent": "amped",
                "setting": setting,
                "surgery": "sum",
                "seed": seed + 1,
                "skills": skills,
                "env_steps": 500,
                "coverage": x + 0.002 * (seed - 1),
                "mi_grid": (y + 0.001 * (seed - 1)) * np.log(skills),
                "mi_mine": "",
                "entropy_kl": 1.0,
                "separability": 0.5,
                "command": f"python pretrain.py {domain} {setting} seed={seed + 1}",
                "commit": "abc",
            }
        )
    return pd.DataFrame(rows, columns=list(audit.COLUMNS))


def section(text, title):
    """What stands below a heading."""
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_says_what_the_rows_establish():
    text = audit_page.page(made_up())
    both, tree = section(text, "tree_maze and square_maze"), section(text, "tree_maze, 6 skills")
    where = "in area in tree_maze and square_maze"
    assert f"amped_plus beats sum 0.80 {where}: **established**" in both  # 0.54 is the tuned one
    assert f"amped_plus beats amped {where}: **established**" in both
    assert f"pcgrad beats sum 0.80 {where}: **established**" in both
    assert "sum 0.20 beats" not in text and "beats sum 0.20" not in text
    worse = made_up()
    worse.loc[worse["setting"] == "pcgrad", "coverage"] -= 0.5  # the larger one is named first
    assert f"sum 0.80 beats pcgrad {where}: **established**" in audit_page.page(worse)
    assert "| amped_plus | 1.000 [1.000, 1.000] |" in both  # always the larger area
    assert "amped_plus reaches 0.97 of the best coverage in tree_maze: **established**" in tree
    assert "amped reaches 0.97 of the best coverage in tree_maze: **not established**" in tree
    assert "amped beats sum 0.80 in area in tree_maze: **established**" in tree
    # The front: 0.95 x 0.5 + 0.6 x 0.4.
    assert "| the tuned sum's front | 0.715 [" in section(text, "Hypervolume")


def test_one_seed_establishes_nothing_and_has_no_intervals_and_no_probabilities():
    text = audit_page.page(made_up(seeds=1))
    assert "**established**" not in text and "**not established**" in text
    assert "one run only, so no interval (sum 0.20, sum 0.80, pcgrad, amped, amped_plus)" in text
    assert "[nan" not in text and "chance of" not in text


def test_a_setting_that_lacks_a_maze_is_judged_in_the_other_alone():
    rows = made_up()
    lacking = rows[~((rows["setting"] == "pcgrad") & (rows["domain"] == "tree_maze"))]
    text = audit_page.page(lacking)
    assert "no seed has every task (pcgrad)" in section(text, "tree_maze and square_maze")
    assert "pcgrad beats sum 0.80 in area in square_maze: **established**" in text
    assert "pcgrad beats sum 0.80 in area in tree_maze" not in text


def test_the_figure_has_a_point_per_setting_and_maze():
    rows = made_up()
    backwards = pd.concat(
        [rows[rows["domain"] == "tree_maze"], rows[rows["domain"] != "tree_maze"][::-1]]
    )
    figure = audit_page.draw(audit_page.prepared(backwards))
    assert [axis.get_title() for axis in figure.axes] == [
        "tree_maze, 6 skills",
        "square_maze, 10 skills",
    ]
    for axis in figure.axes:
        drawn = {tuple(np.round(bar.lines[0].get_xydata()[0], 6)) for bar in axis.containers}
        assert len(drawn) == 4  # pcgrad and amped lie at the same place
    markers = [
        {bar.get_label(): bar.lines[0].get_marker() for bar in axis.containers}
        for axis in figure.axes
    ]
    assert markers[0] == markers[1] and len(set(markers[0].values())) == 4  # and the front's dot
    (legend,) = figure.legends
    named = {text.get_text() for text in legend.get_texts()}
    assert named == {"pcgrad", "amped", "amped_plus", "sum, by share"}


def test_numbers_of_skills_are_judged_apart():
    rows = made_up(domains=(("tree_maze", 5), ("tree_maze", 25), ("square_maze", 10)))
    text = audit_page.page(rows)
    for title in ("tree_maze with 5 skills", "tree_maze with 25 skills", "square_maze, 10 skills"):
        # The largest area first.
        assert section(text, title).splitlines()[3].startswith("| amped_plus | 3 | 0.970")
    assert "amped_plus reaches 0.95 of the best information in tree_maze with 25 skills" in text
    figure = audit_page.draw(audit_page.prepared(pd.concat([rows, made_up(domains=(("b", 7),))])))
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0] == "tree_maze with 5 skills" and titles[3:] == ["b, 7 skills", "", ""]


def test_numbers_of_skills_stand_in_order_however_the_rows_came():
    rows = made_up(domains=(("tree_maze", 20), ("tree_maze", 5), ("square_maze", 10)))
    figure = audit_page.draw(audit_page.prepared(rows))
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [
        "tree_maze with 5 skills",
        "tree_maze with 20 skills",
        "square_maze, 10 skills",
    ]


def test_without_a_front_of_the_sum_the_page_has_no_hypervolume_of_it():
    rows = made_up()
    assert "Hypervolume" in audit_page.page(rows)
    assert "Hypervolume" not in audit_page.page(rows[~rows["setting"].str.startswith("sum ")])


def test_rows_of_two_sizes_are_not_compared():
    rows = made_up()
    rows.loc[0, "env_steps"] = 1000
    with pytest.raises(UserError, match="tree_maze has runs of 500 and 1000 steps"):
        audit_page.page(rows)
    with pytest.raises(UserError, match="no rows yet"):
        audit_page.page(rows[:0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop(columns="agent"), "is not what analysis.balance writes"),
        (
            lambda rows: pd.concat([rows, rows[:1].assign(seed=9)]),
            "two rows of python pretrain.py tree_maze",
        ),
        (lambda rows: rows.assign(coverage="much"), "coverage is not a number in every row"),
    ],
)
def test_a_file_of_other_rows_is_refused(tmp_path, change, message):
    path = tmp_path / "rows.csv"
    change(made_up()).to_csv(path, index=False)
    with pytest.raises(UserError, match=message):
        audit.read_rows(path)


def test_a_score_is_the_aim_that_is_missed_most_by_hand():
    rows = made_up(seeds=1, domains=(("tree_maze", 6),))
    rows["coverage"], rows["mi_grid"] = 0.873, 1.52
    text = audit_page.scores(rows, {"tree_maze": (0.9, 2.0)})
    # 0.873 / (0.97 x 0.9) = 1 and 1.52 / (0.95 x 2) = 0.8.
    assert "| amped_plus | 500 | 0.800 | 0.800 |" in text
    rows["mi_grid"] = 3.8
    assert "| 1.000 | 1.000 |" in audit_page.scores(rows, {"tree_maze": (0.9, 2.0)})
    with pytest.raises(UserError, match="say what is the best in tree_maze"):
        audit_page.scores(rows, {})


@pytest.mark.parametrize("word", ["tree_maze", "tree_maze=1", "tree_maze=1,x", "tree_maze=0,1"])
def test_a_best_that_is_none_is_refused_with_an_example(monkeypatch, capsys, word):
    monkeypatch.setattr(sys, "argv", ["x", "score", "--best", word])
    with pytest.raises(SystemExit):
        balance.main()
    assert f"{word} is not like tree_maze=0.998,1.768" in capsys.readouterr().err


def test_a_row_that_two_processes_wrote_counts_once(tmp_path):
    path = tmp_path / "rows.csv"
    pd.concat([made_up(), made_up()[:1]]).to_csv(path, index=False)
    assert len(audit.read_rows(path)) == len(made_up())


# ---------------------------------------------------------------------------------------- the study


@pytest.fixture(scope="module")
def experiment():
    return load(["experiment=maze_balance"], run_here=False)


def test_the_audit_has_ten_seeds_of_everything_and_runs_seed_after_seed(experiment):
    todo = audit.missing(experiment, audit.read_rows(balance.ROWS.with_name("none.csv")))
    assert len(todo) == len(experiment.runs) == 10 * 2 * 24
    assert [run.config["seed"] for run in todo] == sorted(run.config["seed"] for run in todo)
    assert len({audit.command_of(run) for run in todo}) == len(todo)
    shares = [run.method for run in todo[:24] if run.method.startswith(audit_page.FRONT)]
    assert len(shares) == 7
    surgeries = {run.config["surgery"]["name"] for run in todo}
    assert surgeries >= {"sum", "pcgrad", "normalised_sum", "mgda", "cagrad", "aligned_mtl", "famo"}


@pytest.mark.parametrize("name", ["balance_search", "balance_search2"])
def test_a_search_used_no_seed_of_the_audit(experiment, name):
    search = load([f"experiment={name}"], run_here=False)
    seeds = [{run.config["seed"] for run in each.runs} for each in (experiment, search)]
    assert not seeds[0] & seeds[1]


def test_a_run_gets_its_row_once_and_the_page_is_made_of_it(tmp_path, monkeypatch, capsys):
    rows = tmp_path / "rows.csv"
    words = ["domain=tree_maze", "methods=sum 0.20", "seed=1", "preset=smoke"]
    words += [f"run_root={tmp_path / 'runs'}", "--rows", str(rows)]
    for wanted in ("1 without a row", "0 without a row"):
        monkeypatch.setattr(sys, "argv", ["x", "run", *words])
        balance.main()
        assert wanted in capsys.readouterr().out
    (row,) = audit.read_rows(rows).to_dict("records")
    assert (row["setting"], row["surgery"], row["skills"]) == ("sum 0.20", "sum", 6)
    assert 0 < row["coverage"] < 1 and str(tmp_path) not in row["command"]
    assert row["mi_mine"] == ""
    monkeypatch.setattr(sys, "argv", ["x", "show", "--rows", str(rows)])
    balance.main()
    assert "| sum 0.20 | 1 |" in (tmp_path / "rows.md").read_text()
    assert (tmp_path / "rows.png").stat().st_size > 5000

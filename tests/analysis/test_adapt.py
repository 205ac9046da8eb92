"""The comparison of ways of adapting: its measures on curves that can be checked by hand, and the
command on real runs."""

import re

import numpy as np
import pandas as pd
import pytest
import yaml

from analysis import adapt, power
from analysis.scores import adapted, ways
from analysis.scores.aggregate import stacks
from analysis.scores.claims import seeds_needed
from experiment.definition import load
from experiment.runs import tasks_of
from run.cli.console import LEFT_OUT
from tests.kit.data_attacks import CELLS, TABLES
from utils import UserError

FRAMES = [0, 40, 80]


def test_the_area_is_the_mean_height_of_the_curve():
    assert adapted.area(np.array([0.0, 1.0, 1.0]), [0, 10, 30]) == pytest.approx((5 + 20) / 30)
    assert adapted.area(np.full((2, 3, 4), 0.7), [0, 5, 10, 30]) == pytest.approx(
        np.full((2, 3), 0.7)
    )


@pytest.mark.parametrize(
    ("level", "frame"), [(0.0, 0), (0.5, 5), (1.0, 10), (1.5, 15), (2.0, 20), (2.1, np.nan)]
)
def test_frames_to_reach_a_level_are_read_off_the_straight_line_between_evaluations(level, frame):
    found = adapted.frames_to_reach(np.array([0.0, 1.0, 2.0]), [0, 10, 20], level)
    np.testing.assert_equal(found, float(frame))


def test_a_curve_that_falls_again_has_reached_the_level_where_it_first_did():
    assert adapted.frames_to_reach(np.array([0.0, 2.0, 0.0]), [0, 10, 20], 1.0) == 5.0


def made_rows(scores):
    """Rows as the command writes them: {method: {seed: {task: height at each frame}}}."""
    rows = [
        {
            **dict.fromkeys(adapt.COLUMNS, ""),
            "method": method,
            "domain": "walker",
            "task": task,
            "seed": seed,
            "frame": frame,
            "return_mean": 1000 * value,
            "normalised": value,
            "protocol": "reuse",
            "agent": "amped",
            "pretrain_frames": 0,
        }
        for method, seeds in scores.items()
        for seed, tasks in seeds.items()
        for task, values in tasks.items()
        for frame, value in zip((0, 5000, 10000), values, strict=True)
    ]
    return pd.DataFrame(rows, columns=adapt.COLUMNS)


WALKER = ["walker_flip", "walker_run", "walker_stand", "walker_walk"]


def alike(heights, way="reuse", seeds=(1, 2, 3)):
    """Rows of agents that were fine-tuned alike, each with one height at the last frame."""
    rows = made_rows(
        {
            a: {s: {t: (0, 0, h + s / 1000) for t in WALKER} for s in seeds}
            for a, h in heights.items()
        }
    )
    words = "python finetune.py pretrain_variant=laptop variant="
    return rows.assign(agent=rows["method"], method=rows["method"] + f" {way}", command=words + way)


def judged(rows):
    """The lines of a page about agents that were fine-tuned alike."""
    found, _ = stacks(rows.rename(columns={"normalised": "score"}), WALKER, normalize=False)
    means = {name: adapted.mean_at(name, *found[name], 10_000) for name in found}
    agents = ways.contests(rows)
    return ways.rival_lines(agents, means), ways.ranking_lines(agents, means, WALKER)


def test_the_ranking_of_agents_is_compared_with_the_papers():
    """Table 13 on walker: AMPED above CIC above DIAYN, by the means over the four tasks."""
    _, (same,) = judged(alike({"amped": 0.9, "cic": 0.6, "diayn": 0.1}))
    assert (
        same.startswith("variant=reuse: ranking of amped, cic, diayn") and "Spearman 1.00" in same
    )
    _, (turned,) = judged(alike({"amped": 0.1, "cic": 0.6, "diayn": 0.9}))
    assert "Spearman -1.00" in turned
    assert judged(alike({"amped": 0.1, "cic": 0.6}))[1] == []


def test_agents_are_only_compared_with_those_that_were_fine_tuned_alike():
    """APT's run on random data is not APT's score."""
    rows = pd.concat([alike({"amped": 0.5, "apt": 0.8}), alike({"apt": 0.1}, "random")])
    assert ways.contests(rows) == {"reuse": {"amped": "amped reuse", "apt": "apt reuse"}}
    (line,), _ = judged(rows)
    assert line.startswith("variant=reuse: apt 0.802") and "random" not in line
    assert line.endswith("**Established**: apt above amped")


def test_pairs_that_are_not_established_say_how_many_seeds_they_would_take():
    rows = alike({"amped": 0.5, "cic": 0.9, "diayn": 0.5009})
    (line,), _ = judged(rows)
    assert "**Established**: cic above diayn, amped; not established: 1 of 3 pairs" in line
    # 0.0009 apart with a deviation of 0.001: as a t-test says
    assert re.search(r"\(diayn above amped would take (\d+) seeds\)", line).group(1) == str(
        seeds_needed(np.array([0.501, 0.502, 0.503]), np.array([0.5019, 0.5029, 0.5039]))
    )


def test_each_way_that_agents_share_has_its_panel_and_the_first_method_is_in_all():
    frames, stack = [0, 5000, 10000], np.zeros((2, 4, 3))
    found = dict.fromkeys(
        ("scratch", "a w", "b w", "a data", "b data", "selector"), (frames, stack)
    )
    shared = {"w": {"a": "a w", "b": "b w"}, "data": {"a": "a data", "b": "b data"}}

    def shown(ways, against):
        panels = adapt.panels(found, ways, against)
        return {title: list(methods) for title, methods in panels.items()}

    assert shown(shared, ["scratch"]) == {
        "ways of one agent": ["scratch", "selector"],
        "variant=w": ["scratch", "a w", "b w"],
        "variant=data": ["scratch", "a data", "b data"],
    }
    assert list(shown({}, ["scratch"])) == [""]
    found = {"scratch": found["scratch"]}
    assert shown({}, ["scratch"]) == {"": ["scratch"]}


def test_all_that_a_claim_is_held_against_is_in_every_panel_in_greys_of_its_own():
    found = dict.fromkeys(("one", "two", "a", "b"), ([0], np.zeros((2, 4, 1))))
    panels = adapt.panels(found, {"w": {"a": "a", "b": "b"}}, ["one", "two"])
    assert {title: list(methods) for title, methods in panels.items()} == {
        "variant=w": ["one", "two", "a", "b"]
    }
    assert len(set(panels["variant=w"].values())) == 4


def test_a_panel_has_no_more_curves_than_there_are_colours():
    names = ["scratch", *"abcdefgh"]
    shown = adapt.panels(dict.fromkeys(names, ([0], np.zeros((2, 4, 1)))), {}, ["scratch"])
    assert {title: list(methods) for title, methods in shown.items()} == {
        "1": ["scratch", *"abcdef"],
        "2": ["scratch", *"gh"],
    }
    assert all(len(set(methods.values())) == len(methods) for methods in shown.values())


def test_power_reads_the_rows_and_judges_every_pair(tmp_path, run_main):
    better = {s: {"a": (0.1, 0.5, 0.8 + s / 100), "b": (0.1, 0.5, 0.6)} for s in (1, 2, 3)}
    worse = {s: {"a": (0.1, 0.1, 0.2 + s / 100), "b": (0.1, 0.1, 0.1)} for s in (1, 2, 3)}
    rows = made_rows({"reuse": better, "scratch": worse})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    done = run_main(power.main, tmp_path / "rows.csv")
    assert done.code == 0, done.err
    assert done.out.startswith(
        "reuse beats scratch on walker at 10,000 frames: **established** (0.71"
    )
    other = run_main(power.main, tmp_path / "rows.csv", "--against", "reuse")
    assert "scratch beats reuse on walker at 10,000 frames: **not established**" in other.out
    early = run_main(power.main, tmp_path / "rows.csv", "--frame", "0")
    assert early.code == 0 and early.out == "no method is ahead of another there\n"
    assert run_main(power.main, tmp_path / "rows.csv", "--frame", "7").code == 2
    rows.drop(columns="seed").to_csv(tmp_path / "bad.csv", index=False)
    bad = run_main(power.main, tmp_path / "bad.csv")
    assert bad.code == 2 and "is not what analysis.adapt writes" in bad.err


@pytest.fixture
def table(tmp_path):
    """Rows of two methods as the command writes them."""
    heights = {"reuse": 0.8, "scratch": 0.2}
    rows = made_rows({m: {s: {"a": (0, 0, h)} for s in (1, 2, 3)} for m, h in heights.items()})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_table_is_one_line(name, table, run_main):
    table.write_bytes(TABLES[name])
    done = run_main(power.main, table)
    assert done.code == 2 and done.err.count("\n") == 1 and str(table) in done.err, done
    words = ("experiment=adapt_walker", "--rows", table, "--out", table.parent / "out")
    compared = run_main(adapt.main, *words)
    assert compared.code == 2 and compared.err == done.err


@pytest.mark.parametrize("name", CELLS)
def test_a_spoilt_line_is_named_and_left_out(name, table, run_main):
    column, value = CELLS[name]
    rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    rows.loc[0, column] = value
    rows.to_csv(table, index=False)
    done = run_main(power.main, table)
    assert done.code == LEFT_OUT and done.err.startswith(f"left out: {table}, line 2: {column}: ")
    assert done.err.count("\n") == 1 and "\x1b" not in done.err and done.out


def test_the_command_compares_real_runs_and_adds_rows_of_other_days(cli, tmp_path, run_main):
    root = tmp_path / "runs"
    experiment = {
        "title": "Adaptation, tiny",
        "preset": {"name": "smoke", "save_replay": True, "variant": "lab"},
        "methods": [
            {"label": "scratch", "agent": "ddpg"},
            {
                "label": "reuse",
                "agent": "amped",
                "finetune": {"adapt": "reuse", "skills": "by_data"},
            },
        ],
        "grid": {"domain": "walker", "seed": [1, 2]},
        "finetune": {"task": ["walker_run"], "variant": "lab"},
        "figure": {"kind": "scores", "paper": "urlb"},
    }
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(experiment))
    for seed in (1, 2):
        words = ("variant=lab", f"seed={seed}")
        assert cli("pretrain", "save_replay=true", *words).code == 0
        assert cli("finetune", "agent=ddpg", "task=walker_run", *words).code == 0
        done = cli("finetune", "task=walker_run", "adapt=reuse", "skills=by_data", *words)
        assert done.code == 0, done.err
    args = (f"experiment={file}", f"run_root={root}", "--frame", "80")
    done = run_main(adapt.main, *args, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    page = (tmp_path / "out/tiny.md").read_text()
    assert "| seeds |" in page
    assert (tmp_path / "out/tiny.png").stat().st_size > 5000
    rows = pd.read_csv(tmp_path / "out/tiny.csv")
    assert list(rows) == adapt.COLUMNS and len(rows) == 2 * 2 * len(FRAMES)
    means = rows[rows["frame"] == 80].groupby("method")["normalised"].mean()
    assert f"{means.idxmax()} beats {means.idxmin()} at 80 frames" in page
    assert set(rows["protocol"]) == {"scratch", "reuse"}
    assert set(rows["pretrain_frames"]) == {0, 120}
    assert not rows["command"].str.contains("run_root").any()
    np.testing.assert_allclose(rows["return_mean"] / rows["normalised"], 796, rtol=1e-3)

    # Another day, another seed: the first rows are still there.
    again = run_main(
        adapt.main, *args, "seed=3", "--rows", tmp_path / "out/tiny.csv", "--out", tmp_path / "two"
    )
    assert again.code == 0, again.err
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "two/tiny.csv"), rows)


def of_domain(domain, heights):
    """Rows of three seeds of urlb_laptop's methods on the four tasks of a domain."""
    scores = {
        method: {s: {t: (0, 0, h + s / 1000) for t in tasks_of(domain)} for s in (1, 2, 3)}
        for method, h in heights.items()
    }
    return made_rows(scores).assign(domain=domain, command="python finetune.py")


def test_a_page_of_two_domains_has_a_part_for_each_and_one_for_all_tasks(tmp_path):
    experiment = load(["experiment=urlb_laptop", "seed=1", f"run_root={tmp_path}"])
    walker = of_domain("walker", {"scratch": 0.2, "amped reuse": 0.8})
    quadruped = of_domain("quadruped", {"scratch": 0.4, "amped reuse": 0.1})
    text, parts = adapt.page(experiment, pd.concat([walker, quadruped]), 10_000)
    assert [part.title for part in parts] == ["walker", "quadruped", "walker and quadruped"]
    one, two, both = (part.text for part in parts)
    assert "amped reuse beats scratch" in one and "| **0.802** |" in one
    assert "scratch beats amped reuse" in two and "| _0.102_ |" in two
    assert "0.452" in both and "0.302" in both  # means over all eight tasks
    assert text.count("## ") == 3
    assert len(adapt.draw(parts, "t").axes) == 3

    # One domain is done, of the other a method lacks a task.
    begun = quadruped[(quadruped["method"] == "scratch") & (quadruped["task"] != "quadruped_run")]
    text, (part,) = adapt.page(experiment, pd.concat([walker, begun]), 10_000)
    assert part.title == "walker"
    assert "quadruped, scratch: left out, no seed has every task" in text


def test_a_claim_against_scratch_must_hold_against_both_of_its_rates(tmp_path):
    experiment = load(["experiment=urlb_laptop", "seed=1", f"run_root={tmp_path}"])
    heights = {
        "scratch": 0.2,
        "scratch lr 3e-3": 0.5,
        "amped paper": 0.3,
        "amped selector": 0.4,
        "amped reuse": 0.8,
    }
    _, (part,) = adapt.page(experiment, of_domain("walker", heights), 10_000)
    assert part.against == ["scratch", "scratch lr 3e-3"]
    claims = [line.removeprefix("- ") for line in part.text.splitlines() if " beats " in line]
    for claim in (
        "amped reuse beats scratch and scratch lr 3e-3 at 10,000 frames: **established**",
        "amped paper beats scratch at 10,000 frames: **established**",
        "scratch lr 3e-3 beats amped paper at 10,000 frames: **established**",
        "Does the selector help? amped selector beats amped paper at 10,000 frames: **established**",
    ):
        assert sum(line.startswith(claim) for line in claims) == 1, claim
    assert not any(
        line.startswith("Is AMPED ahead of CIC") for line in claims
    )  # nothing of CIC yet
    # Each task: bold above both, italic below one of them.
    rows = {line.split(" | ")[0].strip("| "): line for line in part.text.splitlines()}
    assert "| **0.802** |" in rows["amped reuse"] and "| _0.302_ |" in rows["amped paper"]


def test_a_page_says_how_much_of_the_study_is_there(tmp_path):
    words = ["experiment=adapt_walker", "methods=[scratch,random data]", "seed=1,2,4"]
    experiment = load([*words, f"run_root={tmp_path}"])
    rows = of_domain("walker", {"scratch": 0.2, "random data": 0.4})  # seeds 1 to 3
    assert adapt.so_far(experiment, rows) == [
        "16 of 24 fine-tunings are done, whole seeds: walker 1-2"
    ]
    unfinished = rows["frame"].eq(10_000) & rows["seed"].eq(2) & rows["task"].eq("walker_run")
    text, _ = adapt.page(experiment, rows[~unfinished], 5000)
    assert "Missing: 14 of 24 fine-tunings are done, whole seeds: walker 1" in text
    done = load([*words[:2], "seed=1,2,3", f"run_root={tmp_path}"])
    assert adapt.so_far(done, rows) == [] and "Missing" not in adapt.page(done, rows, 10_000)[0]
    with pytest.raises(
        UserError, match=r"no method .* 0 of 24 fine-tunings are done, .*: walker none"
    ):
        adapt.page(experiment, rows[:0], 10_000)


def test_of_whom_the_same_is_missing_stands_in_one_line():
    assert adapt.together(["a: x", "b seed 1: no t", "c: x"]) == ["a, c: x", "b seed 1: no t"]

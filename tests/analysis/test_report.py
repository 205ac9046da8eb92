"""Tables from runs, and the one page: whole without any run, honest with some, and right in a
browser."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import finetune
import pretrain
from analysis import html, report, table
from analysis.collect import collected, settings
from analysis.frames import gathered
from experiment import definition as experiment
from experiment import paper
from experiment.runs import compose
from tests.kit.browser import browser, needs_browser
from tests.kit.page_attacks import Page, alive
from utils import ROOT, read_json


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """A run_root with some of experiment=smoke: AMPED and DDPG of both seeds, CIC of none; and an
    oracle."""
    root = tmp_path_factory.mktemp("smoke")
    words = [
        "experiment=smoke",
        "methods=amped,ddpg",
        "finetune.num_eval_episodes=2",
        f"run_root={root}",
    ]
    found = experiment.load(words)
    for run in found.runs:
        pretrain.pretrain(compose(run.words), run.words)
    for run in found.finetunings:
        finetune.finetune(compose(run.words, "finetune"), run.words)
    return root


# ---------------------------------------------------------------------------------------- gathering


def test_scores_are_those_of_result_json_and_what_is_missing_is_named(smoke):
    words = ["experiment=smoke", "finetune.num_eval_episodes=2", f"run_root={smoke}"]
    found = gathered.gather(experiment.load(words))
    scores = {(r.method, r.task, r.seed): r.score for r in found.scores.itertuples()}
    assert len(scores) == 2 * 2 * 2
    for run in experiment.load([*words, "methods=amped,ddpg"]).finetunings:
        key = run.method, run.config["task"]["name"], run.config["seed"]
        assert scores[key] == pytest.approx(read_json(run.path / "result.json")["score"])
    assert found.gaps == [
        "pretrain, cic, missing: walker seed 1-2",
        "finetune, cic, missing: walker_run seed 1-2; walker_walk seed 1-2",
    ]
    assert set(found.curves["frame"]) == {0, 40, 80} and set(found.train["method"]) == {"amped"}
    assert found.train[gathered.CONFLICT].notna().any(axis=None)


def test_an_unfinished_and_a_damaged_run_are_gaps_not_scores(smoke, tmp_path):
    shutil.copytree(smoke, tmp_path / "runs")
    words = [
        "experiment=smoke",
        "methods=ddpg",
        "finetune.num_eval_episodes=2",
        f"run_root={tmp_path / 'runs'}",
    ]
    first, second, *_ = experiment.load(words).finetunings
    (first.path / "result.json").unlink()
    (second.path / "result.json").write_text("{")
    found = gathered.gather(experiment.load(words))
    assert len(found.scores) == 2
    assert [line.partition(":")[0].partition(" (")[0] for line in found.gaps] == [
        "finetune, ddpg, unfinished",
        "finetune, ddpg, unreadable",
    ]


def test_what_was_saved_is_read_back_as_it_was(smoke, tmp_path, monkeypatch):
    found = gathered.gather(
        experiment.load(
            [
                "experiment=smoke",
                "methods=amped,ddpg",
                "finetune.num_eval_episodes=2",
                f"run_root={smoke}",
            ]
        )
    )
    found.save(tmp_path, "smoke")
    monkeypatch.setattr(gathered, "SHIPPED", tmp_path)
    assert gathered.shipped_names() == ["smoke"]
    again = gathered.shipped("smoke")
    pd.testing.assert_frame_equal(
        again.scores.reset_index(drop=True), found.scores.reset_index(drop=True), check_dtype=False
    )
    pd.testing.assert_frame_equal(
        again.train.reset_index(drop=True), found.train.reset_index(drop=True), check_dtype=False
    )


def test_a_selector_is_counted_and_an_oracle_is_two_methods(tmp_path):
    """Tables 4 and 5: the mean over skills is `single`, the best skill `oracle`."""
    words = [
        "experiment=table_selection",
        "preset=smoke",
        "domain=walker",
        "seed=1",
        "task=walker_run",
        "skill_dim=2",
        f"run_root={tmp_path}",
    ]
    found = experiment.load(words)
    for run in found.runs:
        pretrain.pretrain(compose(run.words), run.words)
    for run in found.finetunings:
        finetune.finetune(compose(run.words, "finetune"), run.words)
    rows = gathered.gather(experiment.load(words))
    scores = {r.method: r.score for r in rows.scores.itertuples()}
    oracle = read_json(
        next(run.path for run in found.finetunings if run.method == "oracle") / "result.json"
    )
    assert scores["single"] == pytest.approx(oracle["score"])
    assert scores["oracle"] == pytest.approx(oracle["best"]["return_mean"])
    assert set(scores) == {"selector", "random", "single", "oracle"}
    (count,) = rows.distinct.itertuples()
    assert count.method == "selector" and 1 <= count.score <= 2
    made = table.make_tables("selection", "t", rows)
    assert made["distinct"].digits == 2 and "4.00" in made["distinct"].markdown()


@pytest.mark.parametrize(
    "numbers, text", [([3], "3"), ([1, 2, 3, 7], "1-3, 7"), ([5, 1, 2], "1-2, 5")]
)
def test_seeds_are_written_as_ranges(numbers, text):
    assert gathered.ranges(numbers) == text


# ------------------------------------------------------------------------------------------- tables


def test_a_table_has_our_returns_beside_the_papers(smoke, run_main, tmp_path):
    done = run_main(
        table.main,
        "experiment=smoke",
        "finetune.num_eval_episodes=2",
        f"run_root={smoke}",
        "--out",
        tmp_path,
    )
    assert done.code == 0, done.err
    assert "gap: finetune, cic, missing: walker_run seed 1-2; walker_walk seed 1-2" in done.out
    rows = pd.read_csv(tmp_path / "smoke_returns.csv")
    cell = rows[(rows["task"] == "walker_run") & (rows["method"] == "amped")].iloc[0]
    scores = gathered.gather(
        experiment.load(
            [
                "experiment=smoke",
                "methods=amped,ddpg",
                "finetune.num_eval_episodes=2",
                f"run_root={smoke}",
            ]
        )
    ).scores
    own = scores[(scores["method"] == "amped") & (scores["task"] == "walker_run")]["score"]
    assert cell["mean"] == pytest.approx(own.mean()) and cell["std"] == pytest.approx(
        own.std(ddof=1)
    )
    printed = paper.load("urlb")
    printed = printed[(printed["task"] == "walker_run") & (printed["method"] == "amped")]
    assert cell["paper_mean"] == printed["mean"].item()
    for part in (
        "returns.md",
        "returns.tex",
        "hours_pretrain.md",
        "aggregate.csv",
        "aggregate.pdf",
        "curves.png",
        "improvement.csv",
        "runs.csv",
    ):
        assert (tmp_path / f"smoke_{part}").stat().st_size > 50


@pytest.mark.parametrize("name", ["table_selection", "fig_conflict"])
def test_without_runs_a_table_is_the_papers(name, run_main, tmp_path):
    done = run_main(
        table.main, f"experiment={name}", f"run_root={tmp_path / 'none'}", "--out", tmp_path / "out"
    )
    assert done.code == 0 and "missing" in done.out, done.err
    assert (
        tmp_path
        / "out"
        / ("fig_conflict.pdf" if name == "fig_conflict" else "table_selection_bars.pdf")
    ).exists()
    assert not (tmp_path / "none").exists()


def test_a_maze_figure_is_no_table_and_a_table_no_maze_figure(run_main):
    from analysis import figure

    done = run_main(table.main, "experiment=fig_tree6", "methods=cic")
    assert done.code == 2 and done.err.count("\n") == 1 and "python -m analysis.figure" in done.err
    done = run_main(figure.main, "experiment=smoke")
    assert (
        done.code == 2
        and done.err.count("\n") == 1
        and "python -m analysis.table experiment=smoke" in done.err
    )


# --------------------------------------------------------------------------------------------- page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a fresh clone: shipped data only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        return report.make([], Path("report")).absolute()


def test_the_page_has_every_table_of_the_paper_the_mazes_and_the_theory(page):
    text = " ".join(Page(page.read_text()).text)
    for name in experiment.names():
        if name.startswith(("table_", "fig_", "maze_")):
            assert f"experiment={name}" in text, name
    for name in report.THEORY:
        assert f"python -m analysis.{name}" in text
    for name in (
        "urlb",
        "ablation",
        "scaling",
        "scaling_search",
        "selection",
        "metra",
        "projection",
        "skills",
    ):
        for row in paper.load(name).itertuples():
            assert re.search(rf"\b{row.mean:.0f}\b", text), (name, row)
    assert "disagree" in text


def test_the_page_needs_no_other_file_and_no_network(page):
    assert alive(page.read_text()) == []
    shown = [attributes for tag, attributes in Page(page.read_text()).tags if tag == "img"]
    assert len(shown) > 15 and all(attributes["alt"] for attributes in shown)


def test_runs_pictures_and_films_come_into_the_page(smoke, run_main, monkeypatch, tmp_path):
    shutil.copytree(smoke, tmp_path / "runs")
    videos = tmp_path / "runs/pretrain/walker/amped/smoke/seed_1/videos"
    videos.mkdir()
    for i in range(report.FILMS + 1):
        (videos / f"eval_{i}_0.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    figures = tmp_path / "runs/figures"
    figures.mkdir()
    shutil.copy(ROOT / "results/maze/fig_tree6.png", figures / "fig_square15.png")
    monkeypatch.setattr(
        report, "of_kind", lambda *kinds: ["smoke"] if "scores" in kinds else ["fig_square15"]
    )
    done = run_main(
        report.main,
        f"run_root={tmp_path / 'runs'}",
        "finetune.num_eval_episodes=2",
        "preset=smoke",
        "--out",
        tmp_path,
    )
    assert done.code == 0, done.err
    text = (tmp_path / "index.html").read_text()
    parsed = Page(text)
    assert sum(tag == "video" for tag, _ in parsed.tags) == report.FILMS and "1 more films" in text
    assert html.data_uri((figures / "fig_square15.png").read_bytes(), "image/png") in text
    words = " ".join(parsed.text)
    assert (
        "finetune, cic, missing: walker_run seed 1-2" in words
        and "finished runs on cpu; commit" in words
    )
    assert "Probability of improvement" in words and "AMPED" in words
    assert f"python -m analysis.collect run_root={tmp_path / 'runs'}" in words and "config" in words
    assert (
        sum(f"{row['config']}" in words for row in settings(collected(smoke)))
        == len(settings(collected(smoke)))
        > 2
    )


def test_every_single_run_alone_makes_its_sections(smoke, tmp_path):
    """One method has nobody to be better than, one seed no interval, one pre-training no score."""
    runs = sorted(
        path.parent.relative_to(smoke)
        for path in smoke.glob("**/seed_1/result.json")
        if "walker_walk" not in path.parts
    )
    assert [(run.parts[0], run.parts[2]) for run in runs] == [
        ("finetune", "amped"),
        ("finetune", "ddpg"),
        ("pretrain", "amped"),
    ]
    for number, run in enumerate(runs):
        root = tmp_path / str(number)
        shutil.copytree(smoke / run, root / run)
        words = [f"run_root={root}", "finetune.num_eval_episodes=2"]
        text = report.scores_section("smoke", words, root)
        assert "1 finished runs on cpu" in text and "Probability of improvement" not in text
        assert run.parts[2] in report.runs_section(root) and report.skills_section(root)


@pytest.mark.parametrize(
    "words, line",
    [
        (["run_root=nowhere"], "nowhere is no directory"),
        (["experiment=smoke"], "shows all of them"),
        (["x"], "x is not key=value"),
    ],
)
def test_mistakes_are_one_line(words, line, run_main, tmp_path):
    done = run_main(report.main, *words, "--out", tmp_path / "out")
    assert done.code == 2 and line in done.err and done.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@needs_browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_shows_every_picture_without_an_error_and_nothing_sticks_out(
    page, tmp_path, width
):
    with browser(tmp_path) as seen:
        seen.open(page.as_uri(), width)
        assert seen.did(page.as_uri()) == []
        assert seen.evaluate("document.images.length") > 15
        assert seen.evaluate("[...document.images].filter(each => !each.naturalWidth).length") == 0
        assert seen.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

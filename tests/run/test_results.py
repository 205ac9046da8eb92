"""result.json: the number is the evaluation at the last frame, and says where it comes from; what
selectors chose."""

import csv
import json
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from dm_env import Environment, restart, specs, transition

import envs
from analysis.choices import BINS, draw, shares
from run import results
from tests.kit.cli import rows
from tests.kit.configs import composed
from tests.kit.replay import Diary, what_happens
from tests.kit.runs import stop_at
from utils import ROOT, load_torch, save_torch, versions

# url_benchmark issue 1
EXPERTS = {
    "walker_stand": 984,
    "walker_walk": 971,
    "walker_run": 796,
    "walker_flip": 799,
    "quadruped_stand": 920,
    "quadruped_walk": 866,
    "quadruped_run": 888,
    "quadruped_jump": 888,
    "jaco_reach_top_left": 191,
    "jaco_reach_top_right": 223,
    "jaco_reach_bottom_left": 193,
    "jaco_reach_bottom_right": 203,
}
KEYS = {
    "phase",
    "agent",
    "variant",
    "domain",
    "task",
    "skills",
    "frozen",
    "seed",
    "frame",
    "score",
    "expert_score",
    "normalized",
    "final",
    "curve",
    "wall_seconds",
    "versions",
    "git",
    "snapshot",
}


def read(run):
    return json.loads((run / "result.json").read_text())


def assert_agrees_with_the_tables(run, result):
    """`curve` is eval.csv, and `final`, `score` and `frame` are its last row."""
    table = rows(run / "eval.csv")
    for key in ("frame", "return_mean", "return_std"):
        assert [point[key] for point in result["curve"]] == [float(row[key]) for row in table]
    last = table[-1]
    assert (
        result["frame"] == int(last["frame"]) and result["score"] == result["final"]["return_mean"]
    )
    assert result["final"]["return_mean"] == pytest.approx(float(last["return_mean"]), rel=1e-5)
    assert (result["final"]["skills"], str(result["final"]["episodes"])) == (
        last["skills"],
        last["episodes"],
    )
    assert (run / "snapshots" / result["snapshot"]).exists()


def assert_says_where_it_comes_from(result, seconds):
    assert result["versions"] == versions() and result["git"] == results.git_state()
    assert 0 < result["wall_seconds"] <= seconds + 0.1


# ---------------------------------------------------------------------------- what result.json says


def test_results_of_both_phases_say_what_was_run_and_what_came_out(cli):
    started = time.monotonic()
    assert cli("pretrain", "agent=diayn", "skill_dim=3", "seed=5").code == 0
    run = cli.root / "pretrain/walker/diayn/smoke,skill_dim=3/seed_5"
    result, snapshot = read(run), run / "snapshots/snapshot_120.pt"
    assert result.keys() == KEYS
    expected = {
        "phase": "pretrain",
        "agent": "diayn",
        "variant": "smoke,skill_dim=3",
        "domain": "walker",
        "task": None,
        "skills": None,
        "frozen": False,
        "seed": 5,
        "frame": 120,
        "expert_score": None,
        "normalized": None,
        "snapshot": "snapshot_120.pt",
    }
    assert {key: result[key] for key in expected} == expected
    assert_agrees_with_the_tables(run, result)
    assert_says_where_it_comes_from(result, time.monotonic() - started)

    started = time.monotonic()
    args = (
        "agent=diayn",
        "skill_dim=3",
        "task=walker_flip",
        "skills=selector",
        "learner.frozen=true",
    )
    assert cli("finetune", *args, "seed=5", "num_eval_episodes=2").code == 0
    run = cli.root / (
        "finetune/walker_flip/diayn/smoke,learner.frozen=true,num_eval_episodes=2,skill_dim=3/"
        "selector/seed_5"
    )
    result = read(run)
    assert result.keys() == KEYS | {"pretrained", "pretrained_frame", "pretrained_seed"}
    expected = {
        "phase": "finetune",
        "agent": "diayn",
        "variant": run.parts[-3],
        "domain": "walker",
        "task": "walker_flip",
        "skills": "selector",
        "frozen": True,
        "seed": 5,
        "frame": 80,
        "expert_score": 799,
        "normalized": result["score"] / 799,
        "snapshot": "snapshot_80.pt",
        "pretrained": str(snapshot),
        "pretrained_frame": 120,
        "pretrained_seed": 5,
    }
    assert {key: result[key] for key in expected} == expected
    assert_agrees_with_the_tables(run, result)
    assert_says_where_it_comes_from(result, time.monotonic() - started)


class Fading(Environment):
    """Pays less in every environment that is built; each evaluation builds one, so later ones score
    lower."""

    built = 0

    def __init__(self, seed):
        Fading.built += 1
        self.pay, self.random_state = 100.0 - Fading.built, np.random.RandomState(seed)

    def observation_spec(self):
        return specs.Array((2,), np.float32, "observation")

    def action_spec(self):
        return specs.BoundedArray((1,), np.float32, -1.0, 1.0, "action")

    def reset(self):
        return restart(self.random_state.normal(size=2))

    def step(self, action):
        return transition(self.pay, self.random_state.normal(size=2))


def fading(seed):
    return Fading(seed)


def test_the_score_is_the_last_evaluation_even_when_an_earlier_one_was_better(cli):
    assert (
        cli(
            "finetune", "agent=ddpg", "task=walker_run", f"task.env={__name__}:fading", "variant=v"
        ).code
        == 0
    )
    result = read(cli.root / "finetune/walker_run/ddpg/v/none/seed_1")
    returns = [point["return_mean"] for point in result["curve"]]
    assert len(returns) == 3 and returns[0] > returns[1] > returns[2] > 0
    assert result["score"] == result["final"]["return_mean"] == returns[-1]
    assert result["normalized"] == returns[-1] / 796


def test_the_paper_preset_evaluates_at_0_and_every_10_000_up_to_100_000_frames(cli):
    """Its numbers divided by a thousand, on an environment that takes no time."""
    paper = composed("finetune", "agent=ddpg", "task=walker_run")
    scaled = [
        f"{key}={paper[key] // 1000}"
        for key in (
            "num_train_frames",
            "eval_every_frames",
            "num_seed_frames",
            "log_every_frames",
            "checkpoint_every_frames",
        )
    ]
    assert (
        cli(
            "finetune", "agent=ddpg", "task=walker_run", "task.env=dummy", "variant=v", *scaled
        ).code
        == 0
    )
    result = read(cli.root / "finetune/walker_run/ddpg/v/none/seed_1")
    assert [point["frame"] * 1000 for point in result["curve"]] == list(range(0, 100_001, 10_000))
    assert result["frame"] == 100


def test_the_wall_time_of_a_resumed_run_counts_what_came_before(cli, monkeypatch):
    args = ("finetune", "agent=ddpg", "task=walker_run", "task.env=dummy", "variant=v")
    with monkeypatch.context() as patch:
        stop_at(patch, 50)
        assert cli(*args).code == 143
    run = cli.root / "finetune/walker_run/ddpg/v/none/seed_1"
    checkpoint = load_torch(run / "checkpoint_50.pt", "checkpoint")
    assert checkpoint["wall_seconds"] > 0
    save_torch(run / "checkpoint_50.pt", {**checkpoint, "wall_seconds": 1000.0})
    assert cli(*args).code == 0
    assert 1000 <= read(run)["wall_seconds"] < 1100  # rounded to tenths


# ------------------------------------------------------------------------------------ expert scores


def test_the_experts_are_those_of_urlbs_twelve_tasks():
    with results.EXPERTS.open() as file:
        table = {row["task"]: float(row["score"]) for row in csv.DictReader(file)}
    assert table == EXPERTS and table.keys() == envs.TASKS.keys()
    for task, score in EXPERTS.items():
        assert results.expert_score(task) == score
        assert results.normalized(task, 2.5 * score) == 2.5  # neither shifted nor clipped
    assert (
        results.expert_score("pendulum_swingup") is None
        and results.normalized("pendulum_swingup", 1.0) is None
    )
    assert results.expert_score(None) is None


# ---------------------------------------------------------------------------------------------- git


def git(path, *args):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", "-C", str(path), *identity, *args], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit, taken for the place of the code."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    # Set where tests run inside of a hook.
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    path = (tmp_path / "checkout").resolve()
    path.mkdir()
    (path / "code.py").write_text("x = 1\n")
    git(path, "init", "-q")
    git(path, "add", "code.py")
    git(path, "commit", "-qm", "one")
    monkeypatch.setattr(results, "ROOT", path)
    return path


def test_in_a_checkout_the_commit_is_named_and_whether_tracked_files_differ(checkout):
    clean = {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}
    assert re.fullmatch("[0-9a-f]{40}", clean["commit"]) and results.git_state() == clean
    (checkout / "notes.txt").write_text("not tracked\n")
    assert results.git_state() == clean
    (checkout / "code.py").write_text("x = 2\n")
    assert results.git_state() == {**clean, "dirty": True}


@pytest.mark.parametrize(
    ("path", "dirty"), [("results/maze/rows.csv", False), ("results/expert_scores.csv", True)]
)
def test_a_study_that_adds_to_its_table_does_not_change_the_code(checkout, path, dirty):
    (checkout / path).parent.mkdir(parents=True)
    (checkout / path).write_text("seed\n1\n")
    git(checkout, "add", path)
    git(checkout, "commit", "-qm", "a table")
    (checkout / path).write_text("seed\n1\n2\n")
    assert results.git_state() == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": dirty}


def test_a_copy_outside_of_a_checkout_has_no_commit(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.resolve()))
    monkeypatch.setattr(results, "ROOT", tmp_path.resolve() / "copy")
    shutil.copytree(checkout, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    assert results.git_state() is None


def test_a_copy_inside_of_somebody_elses_repository_has_no_commit(checkout, monkeypatch):
    (checkout / "vendor/amped").mkdir(parents=True)
    monkeypatch.setattr(results, "ROOT", checkout / "vendor/amped")
    assert results.git_state() is None


def test_without_git_there_is_no_commit(checkout, tmp_path, monkeypatch):
    assert results.git_state() is not None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert results.git_state() is None


# ---------------------------------------------------------------------------------- what was chosen


@pytest.mark.parametrize("capacity", [23, 1000])
def test_recent_skills_are_those_of_the_last_whole_episodes_of_the_ring(capacity):
    """At every time step against a walk through all that was ever put in; the ring of 23 rows wraps
    many times."""
    diary = Diary(capacity=capacity)
    unfinished = wrapped = 0
    for length in np.random.default_rng(0).integers(1, 12, size=25):
        for _ in diary.play(int(length)):
            window = diary.times[-capacity:]
            # The others lost their first rows.
            begun = [episode for episode, step in window if step == 0]
            for count in (1, 3, 10):
                expected = []
                for episode in begun[-count:]:
                    # Out of the last row nothing was done.
                    acted = [step for e, step in window if e == episode][:-1]
                    if acted:
                        expected.append(
                            [int(what_happens(episode, step)[1].argmax()) for step in acted]
                        )
                assert [part.tolist() for part in diary.memory.recent_skills(count)] == expected
            unfinished += 0 < window[-1][1] < length
            wrapped += len(diary.times) > capacity
    assert unfinished > 50 and (wrapped > 50) == (capacity == 23)


def test_an_episode_longer_than_the_ring_leaves_no_recent_skills():
    diary = Diary(capacity=10)
    for _ in diary.play(30):
        pass
    assert diary.memory.recent_skills(10) == []


@pytest.mark.parametrize(("episodes", "steps"), [(1, 1), (4, 7), (3, BINS), (5, 250)])
def test_shares_are_counts_per_bin_of_time_over_their_sum(episodes, steps):
    rng = np.random.default_rng(steps)
    choices = rng.integers(0, 3, size=(episodes, steps)).astype(np.int16)
    for row, end in zip(choices, rng.integers(1, steps + 1, size=episodes), strict=True):
        row[end:] = -1
    bins = min(steps, BINS)
    counts = np.zeros((4, bins))  # the fourth skill is never chosen
    for row in choices:
        for step, skill in enumerate(row):
            if skill >= 0:
                counts[skill, step * bins // steps] += 1
    expected = [[n / sum(column) if sum(column) else 0 for n in column] for column in counts.T]
    np.testing.assert_allclose(shares(choices, 4), np.array(expected).T)


def test_the_picture_of_choices_is_drawn_from_the_run_directory_alone(tmp_path):
    (tmp_path / "config.yaml").write_text("skill_dim: 3\n")
    np.savez(
        tmp_path / "choices.npz",
        training=np.zeros((0, 0), np.int16),
        evaluation=np.array([[0, 2, -1]], np.int16),
    )
    assert draw(tmp_path) == tmp_path / "choices.png"
    assert (tmp_path / "choices.png").read_bytes().startswith(b"\x89PNG")


def test_choices_of_a_run_without_any_are_asked_for_in_one_line(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "analysis.choices", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2 and run.stdout == ""
    assert (
        run.stderr
        == f"error: no choices.npz in {tmp_path}; give finished runs of skills=selector\n"
    )

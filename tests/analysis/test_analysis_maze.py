"""Rows of measures say what the estimators say of the snapshot's episodes; pictures show the walls
and every skill."""

import math
import shlex
from functools import partial

import numpy as np
import pytest
import torch

from agent.learners.policies import BetaPolicy
from agent.policy import Policy
from agent.skills.sources import SkillSpace
from analysis.maze import __main__ as maze
from analysis.maze import episodes, measure
from analysis.maze import pictures as maze_pictures
from analysis.maze.episodes import load, walk
from analysis.maze.estimators import kl_entropy, mi_mine, particle_entropy, separability
from analysis.maze.measure import COLUMNS
from envs.maze.geometry import inside
from envs.maze.lanes import Lanes
from envs.maze.measures import coverage, covered, mi_grid
from tests.kit.cli import table
from tests.kit.learners import make_ppo
from tests.kit.pictures import nearest, pixels
from tests.kit.runs import result_text

SKILLS = 3
RUNS = [("tree_maze", "diayn"), ("square_maze", "amped")]
QUICK = ("--episodes", "4", "--mine-steps", "20")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def train(cli, shared):
    """A real pre-training at preset=smoke, once per setting in this module; the snapshot at its
    end."""

    def call(domain="tree_maze", agent="diayn", *more):
        before = set(shared.rglob("result.json"))
        args = (
            "pretrain",
            f"agent={agent}",
            f"domain={domain}",
            f"skill_dim={SKILLS}",
            *more,
            f"run_root={shared}",
        )
        run = trained.get(args)
        if run is None:
            assert cli(*args).code == 0
            (result,) = set(shared.rglob("result.json")) - before
            run = trained[args] = result.parent
        return max(run.glob("snapshots/*.pt"), key=lambda path: int(path.stem.partition("_")[2]))

    return call


trained = {}  # by arguments


@pytest.fixture
def command(run_main):
    """command("measure", ...) as python -m analysis.maze."""
    return partial(run_main, maze.main)


def compass():
    """A policy whose skills 0 and 1 go right and left, whatever they see."""
    network = BetaPolicy(2 + 2, 2, hidden_dim=1, layers=0)
    (linear,) = network.net
    with torch.no_grad():
        linear.weight.zero_(), linear.bias.zero_()
        linear.weight[0, 2] = linear.weight[2, 3] = 20.0
    return Policy(
        network, {"obs_dim": 2, "action_dim": 2, "skill_dim": 2}, 0, space=SkillSpace("one_hot", 2)
    )


# ---- episodes


def test_each_skill_acts_in_its_own_episodes():
    lanes = Lanes("gymnasium:envs.maze:amped/CorridorMaze-v0", 1)
    paths, skill = episodes.play(
        compass(), lanes, np.eye(2, dtype=np.float32), 5, np.random.default_rng(0)
    )
    assert paths.shape == (10, 51, 2) and skill.tolist() == [0] * 5 + [1] * 5
    assert (paths[skill == 0, -1, 0] > 5).all() and (paths[skill == 1, -1, 0] < -5).all()
    assert (np.abs(paths[:, 0]) < 0.5).all() and len(
        np.unique(paths[:, 0, 0])
    ) == 10  # the start distribution
    fixed, _ = episodes.play(
        compass(),
        lanes,
        np.eye(2, dtype=np.float32),
        5,
        np.random.default_rng(0),
        maze_pictures.START,
    )
    np.testing.assert_allclose(fixed[:, 0], np.tile(maze_pictures.START, (10, 1)), atol=1e-5)


def test_a_learner_and_the_policy_in_its_snapshot_walk_alike():
    learner, lanes, skills = (
        make_ppo(),
        Lanes("gymnasium:envs.maze:amped/TreeMaze-v0", 1),
        np.eye(SKILLS, dtype=np.float32),
    )
    spec = {"obs_dim": 2, "action_dim": 2, "skill_dim": SKILLS}
    policy = Policy(learner.policy, spec, 0, space=SkillSpace("one_hot", SKILLS))
    ours, theirs = (
        episodes.play(p, lanes, skills, 4, np.random.default_rng(0))[0] for p in (learner, policy)
    )
    assert np.array_equal(ours, theirs) and inside("tree", ours).all()


# ---- rows


@pytest.mark.parametrize("domain, agent", RUNS)
def test_a_row_holds_what_the_estimators_say_of_the_episodes(
    train, command, tmp_path, domain, agent
):
    snapshot, out = train(domain, agent), tmp_path / "new" / "rows.csv"
    assert command("measure", snapshot, "--out", out, *QUICK).code == 0
    (row,) = table(out)
    assert tuple(row) == COLUMNS
    paths, skill = load(snapshot).episodes(4)
    shape = {"tree_maze": "tree", "square_maze": "square_a"}[domain]
    assert paths.shape == (4 * SKILLS, 50, 2) and skill.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    states, label = np.concatenate(paths), np.repeat(skill, 50)
    expected = {
        "coverage": coverage(states, shape),
        "entropy_particle": particle_entropy(states),
        "entropy_kl": kl_entropy(states),
        "mi_mine": mi_mine(states, label, seed=1, steps=20),
        "mi_grid": mi_grid(states, label),
        "separability": separability(states, label, seed=1, episode=np.arange(len(label)) // 50),
    }
    assert {name: row[name] for name in expected} == {
        name: f"{value:.4f}" for name, value in expected.items()
    }
    stated = {
        "domain": domain,
        "agent": agent,
        "variant": "smoke,skill_dim=3",
        "seed": "1",
        "skills": "3",
        "frame": "480",
        "env_steps": "480",
    }
    assert {name: row[name] for name in stated} == stated


def test_the_floor_of_the_information_shuffles_whole_episodes():
    """Every episode has a place of its own: shuffled state by state, skills would leave far less
    than log n."""
    skill = np.repeat(np.arange(4), 5)
    paths = np.tile(np.arange(20.0)[:, None, None], (1, 50, 2))
    values = episodes.measures(paths, skill, "tree", seed=1, mine_steps=1)
    assert values["mi_shuffled"] == pytest.approx(values["mi_grid"]) == pytest.approx(math.log(4))
    together = np.zeros((20, 50, 2)) + skill[:, None, None]  # the place is the skill
    values = episodes.measures(together, skill, "tree", seed=1, mine_steps=1)
    assert values["mi_grid"] == pytest.approx(math.log(4)) and values["mi_shuffled"] < 1


@pytest.mark.parametrize(
    "domain, agent, more",
    [
        ("tree_maze", "diayn", ("snapshots=[160,320]", "learner.entropy_weight=0.5", "seed=3")),
        (
            "square_maze",
            "amped",
            ("surgery=sum", "alpha=0", "learner.policy=tanh_gaussian", "variant=plain"),
        ),
    ],
)
def test_the_command_of_a_row_is_the_one_that_made_its_run(train, cli, shared, domain, agent, more):
    run = load(train(domain, agent, *more))
    variant, words = measure.describe(run.config, run.path)
    assert variant == run.path.parts[-4]
    python, script, *overrides = shlex.split(words)
    assert (python, script) == ("python", "pretrain.py")
    # Other settings would be refused or train anew.
    again = cli("pretrain", *overrides, f"run_root={shared}")
    assert again.code == 0 and "is finished; nothing to do" in again.out, again.err
    assert sorted(overrides) == sorted(
        [
            f"agent={agent}",
            f"domain={domain}",
            "preset=smoke",
            "skill_dim=3",
            *more,
            *(() if "seed=3" in more else ("seed=1",)),
        ]
    )


def test_a_run_that_kept_no_words_has_those_in_the_name_of_its_directory(train):
    run = load(train("tree_maze", "diayn", "learner.entropy_weight=0.5", "seed=4"))
    variant, command = measure.describe(run.config, run.path)
    assert "learner.entropy_weight=0.5" in run.config["overrides"] and "weight=0.5" in command
    old = {key: value for key, value in run.config.items() if key != "overrides"}
    before = measure.describe(old, run.path)
    assert before[0] == variant and sorted(before[1].split()) == sorted(command.split())


def test_the_same_command_writes_the_same_rows_and_another_seed_others(train, command, tmp_path):
    first, second = train(), train("tree_maze", "diayn", "seed=2")
    outs = [tmp_path / f"{i}.csv" for i in range(2)]
    for out in outs:
        assert (
            command(
                "measure",
                first,
                second,
                "--out",
                out,
                "--floor",
                "tree_maze",
                "--skills",
                3,
                *QUICK,
            ).code
            == 0
        )
    assert outs[0].read_text().replace("0.csv", "1.csv") == outs[1].read_text()
    floor, one, two = table(outs[0])
    assert one["seed"] == "1" and two["seed"] == "2" and one["entropy_kl"] != two["entropy_kl"]


def test_a_row_of_the_same_run_and_frame_is_replaced_and_others_stay(train, command, tmp_path):
    last, out = train(), tmp_path / "rows.csv"
    early = last.with_name("snapshot_240.pt")
    assert command("measure", last, early, "--out", out, *QUICK).code == 0
    before = table(out)
    assert command("measure", last, "--out", out, "--episodes", 5, "--mine-steps", 20).code == 0
    after = table(out)
    assert [row["frame"] for row in after] == [row["frame"] for row in before] == ["480", "240"]
    assert after[0]["entropy_kl"] != before[0]["entropy_kl"] and after[1] == before[1]


def test_the_commit_is_that_of_the_run_and_unknown_before_it_ends(train, command, tmp_path):
    snapshot, out = train(), tmp_path / "rows.csv"
    result = snapshot.parent.parent / "result.json"
    text = result.read_text()
    try:
        result.write_text(result_text(git={"commit": "abc", "dirty": True}))
        assert (
            command("measure", snapshot, "--out", out, *QUICK).code == 0
            and table(out)[0]["commit"] == "abc-dirty"
        )
        result.unlink()
        assert (
            command("measure", snapshot, "--out", out, *QUICK).code == 0
            and table(out)[0]["commit"] == ""
        )
    finally:
        result.write_text(text)


@pytest.mark.parametrize("domain, cells", [("tree_maze", 31), ("square_maze", 17)])
def test_random_actions_are_a_floor_and_the_uniform_oracle_a_ceiling(
    command, tmp_path, domain, cells
):
    out = tmp_path / "rows.csv"
    args = (
        "--floor",
        domain,
        "--ceiling",
        domain,
        "--skills",
        SKILLS,
        "--mine-steps",
        100,
        "--out",
        out,
    )
    assert command("measure", *args).code == 0
    floor, ceiling = table(out)
    assert (floor["agent"], ceiling["agent"]) == ("random", "uniform")
    assert float(ceiling["coverage"]) == 1 and 0.3 < float(floor["coverage"]) < 0.9
    assert float(ceiling["entropy_kl"]) == pytest.approx(math.log(cells), abs=0.1)
    assert float(floor["entropy_kl"]) < float(ceiling["entropy_kl"]) - 0.5
    assert float(floor["entropy_particle"]) < float(ceiling["entropy_particle"])
    for row in (floor, ceiling):  # neither knows a skill
        assert float(row["mi_mine"]) == pytest.approx(0, abs=0.03)
        assert float(row["mi_grid"]) == pytest.approx(float(row["mi_shuffled"]), abs=0.02)
        assert float(row["separability"]) == pytest.approx(1 / SKILLS, abs=0.05)
    assert command("measure", *args[2:4], "--skills", 6, "--mine-steps", 1, "--out", out).code == 0
    # One row for each number of skills.
    assert [row["skills"] for row in table(out)] == ["3", "3", "6"]


# ---- pictures


@pytest.mark.parametrize("domain, agent", RUNS)
def test_a_snapshot_is_drawn_with_its_walls_and_a_colour_for_each_skill(
    train, command, tmp_path, domain, agent
):
    out = tmp_path / "new" / "picture.png"
    done = command("draw", train(domain, agent), "--out", out, "--titles", "a title")
    assert done.code == 0 and f"picture: {out}" in done.out
    image = pixels(out)
    black = (image < 30).all(2)
    # Of the box: a long wall at the left and the right.
    for side in (black[:, :40].any(1), black[:, -40:].any(1)):
        assert side.sum() > 30
    found = [nearest(image, colour) for colour in maze_pictures.colours(SKILLS)]
    assert (np.array(found) < 12).all() and (image != 255).any(2).mean() < 0.5


@pytest.mark.parametrize("n", [3, 12, 25])
def test_every_skill_shows_in_its_own_colour_in_the_maze_and_in_the_strip_below(tmp_path, n):
    assert len(np.unique(np.round(255 * maze_pictures.colours(n)), axis=0)) == n
    skill = np.tile(np.arange(n), 20)
    line = np.linspace([0, 0], [9, 0], 50)  # one row of the maze for each skill
    paths = line + np.stack([np.zeros(len(skill)), skill * 9 / (n - 1)], 1)[:, None]
    maze_pictures.draw_paths(paths, skill, "large", tmp_path / "all.png")
    image = pixels(tmp_path / "all.png")
    for part in (image[:-40], image[-40:]):
        assert max(nearest(part, colour) for colour in maze_pictures.colours(n)) < 20
    maze_pictures.draw_paths(paths[skill > 0], skill[skill > 0], "large", tmp_path / "rest.png")
    assert nearest(pixels(tmp_path / "rest.png")[:-40], maze_pictures.colours(n)[0]) > 20


def test_of_each_skill_the_first_twenty_trajectories_are_drawn(tmp_path):
    rng, skill = np.random.default_rng(0), np.arange(50) % 2
    paths = rng.uniform([-5, -2.4], [5, -1.6], (50, 30, 2))
    maze_pictures.draw_paths(paths, skill, "tree", tmp_path / "all.png")
    for count, same in ((40, True), (39, False)):
        maze_pictures.draw_paths(paths[:count], skill[:count], "tree", tmp_path / "first.png")
        assert np.array_equal(pixels(tmp_path / "all.png"), pixels(tmp_path / "first.png")) == same


def test_the_numbers_in_a_panel_are_those_of_its_row(train, command, tmp_path):
    snapshot, out = train(), tmp_path / "rows.csv"
    assert command("measure", snapshot, "--out", out, "--mine-steps", 1).code == 0
    (row,) = table(out)
    panel = maze_pictures.panel_of(load(snapshot), "a title")
    assert (
        panel.small
        == f"3 skills, coverage {float(row['coverage']):.2f}, MI {float(row['mi_grid']):.2f} nats"
    )
    assert panel.paths.shape == (60, 51, 2)


def test_missed_squares_are_what_coverage_lacks_and_are_named_by_their_cell(train, command):
    snapshot = train()
    states = load(snapshot).episodes(maze_pictures.EPISODES)[0].reshape(-1, 2)
    centres, enough = covered(states, "tree")
    assert len(centres) == 31 * 16 and enough.mean() == coverage(states, "tree")
    done = command("missed", snapshot)
    assert done.code == 0, done.err
    assert f"coverage {enough.mean():.3f}, {(~enough).sum()} of 496 squares missed" in done.out
    far = ((np.abs(centres - (-6, -6)) < 0.5).all(1) & ~enough).sum() / (~enough).sum()
    assert f"(-6, -6) {far:.2f}" in done.out  # a random policy never gets there


def test_six_full_panels_stay_small(tmp_path):
    rng, lanes = np.random.default_rng(0), Lanes("gymnasium:envs.maze:amped/SquareMaze-v0", 1)
    paths = walk(lanes, lambda obs: rng.uniform(-1, 1, obs.shape), 500, rng)
    panel = maze_pictures.Panel(
        paths, np.arange(500) % 25, "square_a", "a title", "small print", maze_pictures.START
    )
    maze_pictures.draw_figure([panel] * 6, tmp_path / "six.png")
    assert (tmp_path / "six.png").stat().st_size < 200_000


# ---- mistakes


def refused(done, *words):
    assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1, done.err
    for word in words:
        assert word in done.err


def test_what_is_no_snapshot_of_ppo_on_a_maze_is_refused(train, cli, command, tmp_path):
    out, text = tmp_path / "out", tmp_path / "text.pt"
    text.write_text("text")
    tuned = (
        "agent=diayn",
        "task=tree_maze_reach_left",
        "skill_dim=3",
        f"snapshot={train()}",
        "skills=fixed",
    )
    assert cli("finetune", *tuned).code == 0
    (path,) = cli.root.rglob("snapshot_320.pt")
    replayed = train("tree_maze", "diayn", "learner=ddpg")
    elsewhere = train("walker", "diayn", "domain.primal_task=dummy")
    refused(
        command("measure", train(), tmp_path / "none.pt", "--out", out, *QUICK), "no snapshot at"
    )
    for action in ("measure", "draw"):
        refused(command(action, tmp_path / "none.pt", "--out", out), "no snapshot at", "none.pt")
        refused(command(action, text, "--out", out), "is not a readable snapshot")
        refused(command(action, replayed, "--out", out), "learner=ddpg", "learner=ppo")
        refused(
            command(action, elsewhere, "--out", out),
            "walker, which is no maze",
            "square_maze or tree_maze",
        )
        refused(
            command(action, path, "--out", out), "was fine-tuned; give snapshots of pretrain.py"
        )
        assert not out.exists()


def test_wrong_arguments_are_refused_in_one_line(train, command, tmp_path):
    out = tmp_path / "rows.csv"
    refused(command("measure", "--out", out), "give snapshots, --floor DOMAIN or --ceiling DOMAIN")
    refused(
        command("measure", "--out", out, "--floor", "walker", "--skills", 3),
        "choose from square_maze, tree_maze",
    )
    refused(command("measure", "--out", out, "--ceiling", "tree_maze"), "--skills N")
    refused(
        command("draw", train(), "--out", out, "--titles", "a", "b"), "2 titles for 1 snapshots"
    )
    refused(command("measure", train(), "--out", tmp_path, *QUICK), str(tmp_path))
    (tmp_path / "other.csv").write_text("frame,return\n1,2\n")
    refused(command("measure", train(), "--out", tmp_path / "other.csv"), "has other columns")
    assert (tmp_path / "other.csv").read_text() == "frame,return\n1,2\n" and not out.exists()
    # none is left to test on
    assert command("measure", train(), "--out", out, "--episodes", 1).code == 2

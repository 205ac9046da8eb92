"""A policy loaded from a run, a snapshot or a batch of each, and evaluate()."""

import json

import gymnasium
import numpy as np
import pytest

from agent.policy import load_policy
from run.play import evaluate
from utils import UserError

SHORT = ("num_train_frames=40", "snapshots=[]", "skill_dim=3")


@pytest.fixture
def tuned(cli):
    """tuned("selector"): the directory of a fine-tuning on walker with three skills."""

    def call(*words):
        if not (cli.root / "pretrain").exists():
            assert cli("pretrain", *SHORT, "variant=v").code == 0
        run = ("task=walker_run", "variant=v", "skill_dim=3", "num_train_frames=40")
        assert cli("finetune", *run, "num_eval_episodes=2", *words).code == 0
        (found,) = (cli.root / "finetune").glob("walker_run/amped/v/*/seed_1/result.json")
        return found.parent

    return call


def test_a_policy_with_a_selector_acts_alone_and_gets_the_returns_of_its_run(tuned):
    run = tuned("skills=selector")
    policy = load_policy(run)  # the run itself: its last snapshot
    assert policy.chooses and policy.frame == 40
    played = evaluate(policy, "walker_run", episodes=2, seed=1, steps=5)
    final = json.loads((run / "result.json").read_text())["final"]
    np.testing.assert_allclose(
        played.returns, [float(r) for r in final["returns"].split()], rtol=1e-4
    )
    assert played.lengths.tolist() == [5, 5] and played.skills == [None, None]
    # By a skill it can be told what to do all the same.
    assert not np.allclose(policy.act(np.ones(24), 0), policy.act(np.ones(24), 1))


def test_a_fixed_skill_is_the_policys_own_and_a_switching_one_is_drawn_per_episode(cli, tuned):
    fixed = load_policy(tuned("skills=fixed"))  # a random one, drawn by the run
    skill = int(fixed.source.skill.argmax())
    obs = np.linspace(-1, 1, 48).reshape(2, 24).astype(np.float32)
    np.testing.assert_array_equal(fixed.act(obs), fixed.act(obs, skill))
    pretrained = load_policy(cli.root / "pretrain/walker/amped/v/seed_1")
    assert not pretrained.chooses
    played = evaluate(pretrained, "walker_stand", episodes=3, seed=2, steps=3)
    assert [each.shape for each in played.skills] == [(3,)] * 3
    told = evaluate(pretrained, "walker_stand", episodes=1, seed=2, steps=3, skill=1)
    again = evaluate(pretrained, "walker_stand", episodes=1, seed=2, steps=3, skill=1)
    assert told.mean == again.mean and told.skills == [1]


def test_batches_of_observations_and_of_skills(cli):
    assert cli("pretrain", *SHORT).code == 0
    policy = load_policy(
        cli.root / "pretrain/walker/amped/smoke,num_train_frames=40,skill_dim=3/seed_1"
    )
    obs = np.random.default_rng(0).normal(size=(4, 24))
    skills = np.array([0, 2, 1, 2])
    alone = [policy.act(o, int(z)) for o, z in zip(obs, skills, strict=True)]
    for batch in (skills, np.eye(3)[skills], skills.tolist()):
        np.testing.assert_allclose(policy.act(obs, batch), alone, atol=1e-6)
    for wrong, message in (
        (np.array([0, 1]), r"skills of shape \(2,\) do not fit observations \(4, 24\)"),
        (np.array([0, 1, 2, 3]), "an index below 3 or a vector of 3"),
        (np.zeros((2, 3)), r"give one of shape \(3,\) or \(4, 3\)"),
        (None, "this policy needs a skill"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.act(obs, wrong)
    with pytest.raises(ValueError, match=r"obs has shape \(4, 23\); expected \(..., 24\)"):
        policy.act(obs[:, 1:], 0)


def test_paths_that_hold_no_policy_are_told_so(tmp_path):
    with pytest.raises(UserError, match=r"holds no snapshots/snapshot_<frame>\.pt; give a run"):
        load_policy(tmp_path)
    with pytest.raises(UserError, match="no snapshot at"):
        load_policy(tmp_path / "absent.pt")
    with pytest.raises(UserError, match="unknown environment 'moon'; choose from walker_stand"):
        evaluate(object(), "moon")


def test_our_policy_runs_in_a_loop_of_gymnasium(cli):
    assert (
        cli("pretrain", "agent=amped", "domain=tree_maze", "skill_dim=3", "snapshots=[]").code == 0
    )
    policy = load_policy(cli.root / "pretrain/tree_maze/amped/smoke,skill_dim=3/seed_1")
    vector = gymnasium.make_vec("envs:amped/tree_maze_reach_left-v0", num_envs=3)
    obs, _ = vector.reset(seed=0)
    total = np.zeros(3)
    for _ in range(50):
        obs, reward, *_ = vector.step(policy.act(obs, np.arange(3)))
        total += reward
    played = evaluate(policy, "tree_maze_reach_left", episodes=2, seed=0, skill=0)
    assert played.lengths.tolist() == [50, 50] and total.shape == (3,)

"""A step of one task tells what every task of its domain would have paid, to the last bit."""

import numpy as np
import pytest

import envs

DOMAINS = ("walker", "quadruped")


def actions(env, count, seed):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (count, env.action_dim)).astype(np.float32)


@pytest.mark.parametrize("repeat", [1, 3])
@pytest.mark.parametrize("acted", [f"{d}_{t}" for d in DOMAINS for t in envs.DOMAINS[d][::3]])
def test_every_tasks_reward_is_that_of_its_own_environment_bit_for_bit(acted, repeat):
    ours = envs.make(acted, seed=5, action_repeat=repeat)
    ours.keep_tasks()
    others = [envs.make(name, seed=5, action_repeat=repeat) for name in ours.tasks]
    assert ours.tasks[envs.DOMAINS[envs.TASKS[acted]].index(acted.partition("_")[2])] == acted
    paid = 0.0
    for episode in range(2):
        ours.reset()
        for other in others:
            other.reset()
        for action in actions(ours, 150, episode):
            own = ours.step(action)
            theirs = [other.step(action) for other in others]
            assert ours.task_rewards() == [each.reward for each in theirs]
            assert own.reward in ours.task_rewards()
            assert all(np.array_equal(own.observation, each.observation) for each in theirs)
            paid += sum(ours.task_rewards())
    assert paid > 0


@pytest.mark.parametrize("repeat", [1, 2])
def test_keeping_the_rewards_moves_no_number_of_a_step_and_without_it_there_are_none(repeat):
    plain, keeps = (envs.make("walker_run", seed=2, action_repeat=repeat) for _ in range(2))
    keeps.keep_tasks()
    for env in (plain, keeps):
        env.reset()
    for action in actions(plain, 50, 0):
        a, b = plain.step(action), keeps.step(action)
        assert a.reward == b.reward and np.array_equal(a.observation, b.observation)
    assert plain.task_rewards() == []


def test_the_physics_that_is_kept_makes_the_same_reward_in_dm_control():
    """What ExORL's users do with `physics`: set it, and ask the task."""
    ours, stock = envs.make("quadruped_jump", seed=3), envs.make("quadruped_jump", seed=9)
    ours.reset()
    native = stock.unwrapped
    for action in actions(ours, 40, 1):
        paid = ours.step(action).reward
        with native.physics.reset_context():
            native.physics.set_state(ours.physics_state())
        assert native.task.get_reward(native.physics) == pytest.approx(paid, abs=1e-6)


def test_jaco_and_foreign_environments_know_their_own_reward_alone():
    assert envs.make("jaco_reach_top_left", seed=1).tasks == ()
    dummy = envs.make("dummy", seed=1)
    dummy.keep_tasks()
    dummy.reset()
    dummy.step(np.zeros(dummy.action_dim, np.float32))
    assert dummy.task_rewards() == [] and dummy.physics_state() is None

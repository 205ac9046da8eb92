"""Every task through gymnasium: specs, checkers, seeds, vectors, and other people's learners."""

import warnings

import gymnasium
import numpy as np
import pytest
import yaml
from gymnasium.utils.env_checker import check_env

import envs
from utils import CONFIGS

TASKS = {
    (task := yaml.safe_load(path.read_text())["task"])["name"]: task["env"]
    for path in sorted((CONFIGS / "task").glob("*.yaml"))
}
SOME = ("walker_run", "quadruped_jump", "jaco_reach_top_left", "tree_maze_reach_left")


def make(name, **kwargs):
    return gymnasium.make(f"envs:amped/{name}-v0", **kwargs)


def test_every_task_is_registered_with_its_own_environment_and_length():
    for name, env in TASKS.items():
        spec = gymnasium.spec(f"amped/{name}-v0")
        assert spec.kwargs["name"] == env
        assert spec.max_episode_steps == (50 if "maze" in name else 250 if "jaco" in name else 1000)


@pytest.mark.parametrize("name", SOME)
def test_a_task_is_the_same_through_gymnasium_and_ends_at_the_length_of_its_spec(name):
    env, plain = make(name), envs.make(TASKS[name], seed=3)
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=3)
    np.testing.assert_array_equal(observation, plain.reset().observation)
    steps, over = 0, False
    while not over:
        action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        observation, reward, terminated, truncated, _ = env.step(action)
        time_step = plain.step(action)
        np.testing.assert_array_equal(observation, time_step.observation)
        assert reward == time_step.reward and not terminated
        steps, over = steps + 1, truncated
        if steps >= 60 and "maze" not in name:
            break
    if "maze" in name:
        assert time_step.last() and steps == env.spec.max_episode_steps
    else:  # whole episodes of bodies are counted by their clock, which costs less than playing them
        limit = plain.unwrapped._step_limit if hasattr(plain.unwrapped, "_step_limit") else None
        limit = limit or plain.unwrapped._time_limit / plain.unwrapped.control_timestep()
        assert round(limit) == env.spec.max_episode_steps
    env.close()


@pytest.mark.parametrize("name", SOME)
def test_the_checker_of_gymnasium_has_nothing_to_say(name):
    env = make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_a_seed_repeats_an_episode_and_no_seed_gives_another():
    env = make("walker_run")
    first, again = (env.reset(seed=5)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(env.reset()[0], again)


def test_tasks_run_side_by_side_by_make_vec():
    vector = gymnasium.make_vec("envs:amped/tree_maze_reach_right-v0", num_envs=3)
    observations, _ = vector.reset(seed=1)
    assert observations.shape == (3, 2)
    for _ in range(60):  # past the end of an episode
        observations, rewards, *_ = vector.step(vector.action_space.sample())
    assert observations.shape == (3, 2) and rewards.shape == (3,)
    vector.close()


def test_a_maze_draws_itself():
    env = make("tree_maze", render_mode="rgb_array", size=64)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (64, 64, 3) and picture.std() > 0
    env.close()


def test_stable_baselines_trains_on_our_tasks_and_its_checker_is_content():
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    from stable_baselines3.common.env_checker import check_env as sb3_check_env

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in SOME[::3]:
            sb3_check_env(make(name).unwrapped, skip_render_check=True)
    model = sb3.PPO(
        "MlpPolicy", make("walker_run"), n_steps=32, batch_size=32, n_epochs=1, device="cpu"
    )
    before = model.policy.state_dict()["action_net.weight"].clone()
    model.learn(64)
    assert not before.equal(model.policy.state_dict()["action_net.weight"])

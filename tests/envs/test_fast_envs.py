"""The fast steps and resets give dm_control's own observations, rewards, discounts and step types,
bit for bit."""

import importlib
import math

import numpy as np
import pytest

import envs

LENGTH = {"walker": 1000, "quadruped": 1000, "jaco": 250}
ONE_OF_EACH = ["walker_flip", "quadruped_jump", "jaco_reach_bottom_left"]


def stock(name, seed):
    """dm_control's environment of the task."""
    importlib.import_module("envs.dmc")  # settles MUJOCO_GL before dm_control is imported
    domain = envs.TASKS[name]
    return importlib.import_module(f"envs.{domain}").stock(name.removeprefix(f"{domain}_"), seed)


def draw(env, n, seed):
    """Actions of all kinds: within the bounds, far outside, and in the corners."""
    random = np.random.RandomState(seed)
    actions = random.uniform(-1, 1, (n, env.action_dim)).astype(np.float32)
    actions[1::5] *= 10
    actions[2::5] = np.sign(actions[2::5])
    return actions


def native(theirs, action):
    """URLB's scaling, written out in float32, then as dm_control takes it."""
    low, high = (
        b.astype(np.float32) for b in (theirs.action_spec().minimum, theirs.action_spec().maximum)
    )
    action = np.clip(action, np.float32(-1), np.float32(1))
    return np.clip(low + (high - low) / np.float32(2) * (action + np.float32(1)), low, high).astype(
        np.float64
    )


def flat(time_step):
    return np.concatenate([np.ravel(v) for v in time_step.observation.values()]).astype(np.float32)


def play(ours, theirs, actions):
    """Pairs of time steps: a reset and the actions, with another reset wherever an episode ends."""
    pairs = [(ours.reset(), theirs.reset())]
    for action in actions:
        over = pairs[-1][0].last()
        pairs.append(
            (ours.reset(), theirs.reset())
            if over
            else (ours.step(action), theirs.step(native(theirs, action)))
        )
    return pairs


def assert_same(pairs):
    for number, (ours, theirs) in enumerate(pairs):
        assert ours.step_type == theirs.step_type, number
        assert ours.observation.tobytes() == flat(theirs).tobytes(), number
        expected = (0.0, 1.0) if theirs.first() else (float(theirs.reward), theirs.discount)
        assert (ours.reward, ours.discount) == expected, number


# ---- episodes


@pytest.mark.parametrize("name", envs.TASKS)
def test_whole_episodes_and_the_resets_between_are_dm_controls_own(name):
    ours, theirs = envs.make(name, seed=3), stock(name, 3)
    length = LENGTH[envs.TASKS[name]]
    pairs = play(ours, theirs, draw(ours, length + 31, seed=0))
    assert [n for n, (ts, _) in enumerate(pairs) if ts.last()] == [length]
    assert_same(pairs)  # compared at the end: no observation may change after it was given
    assert len({ts.reward for ts, _ in pairs}) > length // 2


@pytest.mark.parametrize("name", envs.TASKS)
def test_every_seed_starts_and_goes_on_as_in_dm_control(name):
    from envs.dmc import find_random

    ours, theirs = envs.make(name, seed=9), stock(name, 9)
    for seed in (0, 1, 2**32 - 1):
        ours.seed(seed)
        find_random(theirs).seed(seed)
        for episode in range(3):  # two of them left unfinished
            assert_same(play(ours, theirs, draw(ours, 8, seed=episode)))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_repeated_action_is_that_many_steps_of_dm_control(name):
    ours, theirs = envs.make(name, seed=5, action_repeat=3), stock(name, 5)
    ours.reset(), theirs.reset()
    for action in draw(ours, 6, seed=0):
        steps = [theirs.step(native(theirs, action)) for _ in range(3)]
        ts = ours.step(action)
        assert ts.reward == sum(float(step.reward) for step in steps)
        assert ts.observation.tobytes() == flat(steps[-1]).tobytes()


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_state_taken_in_mid_episode_goes_on_as_dm_control_does(name):
    ours, theirs = envs.make(name, seed=6), stock(name, 6)
    assert_same(play(ours, theirs, draw(ours, 7, seed=0)))
    assert_same(play(ours, theirs, draw(ours, 12, seed=1)))
    restored = envs.make(name, seed=0)
    restored.reset()
    here = restored.set_state(ours.get_state())
    assert here.observation.tobytes() == ours._observation.tobytes()
    here.observation[:] = np.nan  # the caller's own
    assert_same(
        [(restored.step(a), theirs.step(native(theirs, a))) for a in draw(ours, 10, seed=2)]
    )
    assert_same(play(restored, theirs, draw(ours, 5, seed=3)))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_the_unwrapped_environment_is_dm_controls_and_goes_on_from_the_fast_steps(name):
    ours, theirs = envs.make(name, seed=7), stock(name, 7)
    assert isinstance(ours.unwrapped, type(theirs)) and ours.unwrapped.task is not None
    assert ours.unwrapped.control_timestep() == theirs.control_timestep()
    assert_same(play(ours, theirs, draw(ours, 6, seed=0)))
    for action in draw(ours, 4, seed=1):
        left, right = (env.step(native(theirs, action)) for env in (ours.unwrapped, theirs))
        assert flat(left).tobytes() == flat(right).tobytes() and left.reward == right.reward
    action = draw(ours, 1, seed=2)[0]
    assert_same([(ours.step(action), theirs.step(native(theirs, action)))])


# ---- divergence


def spoil_velocity(data):
    data.qvel[:] = 1e12


def spoil_position(data):
    data.qpos[-1] = math.nan


def message(step):
    from dm_control.rl.control import PhysicsError

    with pytest.raises(PhysicsError) as error:
        step()
    return str(error.value)


@pytest.mark.parametrize("spoil", [spoil_velocity, spoil_position])
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_divergence_is_dm_controls_error_and_the_next_episode_is_sound(name, spoil):
    ours, theirs = envs.make(name, seed=8), stock(name, 8)
    assert_same(play(ours, theirs, draw(ours, 3, seed=0)))
    for env in (ours.unwrapped, theirs):
        spoil(env.physics.data.ptr)
    zero = np.zeros(ours.action_dim)
    told = message(lambda: ours.step(zero))
    assert told == message(lambda: theirs.step(native(theirs, zero))) and "mjWARN_BADQ" in told
    assert_same(play(ours, theirs, draw(ours, 5, seed=1)))


def test_suppressed_physics_errors_are_not_raised():
    env = envs.make("walker_run", seed=0)
    env.reset()
    spoil_velocity(env.unwrapped.physics.data.ptr)
    with env.unwrapped.physics.suppress_physics_errors():
        env.step(np.zeros(6))


# ---- jaco's resets


def test_jaco_does_not_compile_again_and_the_model_would_be_the_same():
    env, compiled = envs.make("jaco_reach_top_left", seed=0), []
    native_env = env.unwrapped
    for _ in range(3):
        env.reset()
        compiled.append(
            (native_env._compiled[1], native_env.task.root_entity.mjcf_model.to_xml_string())
        )
    assert len({id(model) for model, _ in compiled}) == len({xml for _, xml in compiled}) == 1


def test_jaco_resets_undo_what_was_done_to_the_model():
    ours, theirs = envs.make("jaco_reach_top_left", seed=1), stock("jaco_reach_top_left", 1)
    for episode in range(3):
        assert_same(play(ours, theirs, draw(ours, 5, seed=episode)))
        ours.unwrapped.physics.model.ptr.opt.gravity[:] = 0
        ours.unwrapped.physics.model.ptr.geom_contype[:] = 0


def test_jaco_starts_that_are_drawn_again_draw_the_same():
    from dm_control.composer import EpisodeInitializationError

    ours, theirs = envs.make("jaco_reach_top_left", seed=2), stock("jaco_reach_top_left", 2)
    for env in (ours.unwrapped, theirs):
        calls, place = [], env.task._tcp_initializer

        def failing_at_first(physics, random_state, calls=calls, place=place):
            place(physics, random_state)
            calls.append(None)
            if len(calls) in (1, 3, 4):
                raise EpisodeInitializationError("as if the hand collided")

        env.task._tcp_initializer = failing_at_first
    assert_same(play(ours, theirs, draw(ours, 5, seed=0)))
    assert_same(play(ours, theirs, draw(ours, 5, seed=1)))


# ---- rewards


def test_scalar_tolerances_are_dm_controls_for_every_kind_of_number():
    from dm_control.utils.rewards import tolerance

    from envs import fast

    random = np.random.RandomState(0)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, -1e300, 5e-324]

    def around(*values):
        return [float(np.nextafter(value, side)) for value in values for side in (-99, value, 99)]

    def assert_equal(ours, theirs, x):
        assert np.float64(ours).tobytes() == np.float64(theirs).tobytes(), x

    with np.errstate(all="ignore"):
        for bound, margin, low in [
            (1, 0.5, 0.5),
            (8, 4, 0.5),
            (5, 5, 0),
            (0.5, 0.5, 0.5),
            (5, 5, 0.5),
            (1, 2, 0),
        ]:
            edges = around(bound, bound - margin, bound - margin / (1 - low))
            for x in [*special, *edges, *random.uniform(-12, 12, 2000).tolist()]:
                theirs = tolerance(np.float64(x), (bound, math.inf), margin, "linear", low)
                assert_equal(fast.linear(x, bound, margin, low), theirs, x)
        for lower, upper, margin in [(1.2, math.inf, 0.6), (0.0, 0.05, 0.05)]:
            for x in [*special, *around(lower, upper), *random.uniform(-1, 2, 6000).tolist()]:
                theirs = tolerance(np.float64(x), (lower, upper), margin)
                assert_equal(fast.gaussian(x, lower, upper, margin), theirs, x)


# ---- the benchmark


def test_the_benchmark_measures_all_three_domains(monkeypatch, capsys):
    from benchmarks import env

    monkeypatch.setattr(env, "STEPS", dict.fromkeys(env.STEPS, 20))
    found = env.measure(1)
    assert list(found) == ["walker", "quadruped", "jaco"]
    for row in found.values():
        assert set(row) == {
            "steps_s",
            "stock_steps_s",
            "engine_steps_s",
            "ratio",
            "engine_ratio",
            "keeping_rewards",
        }
        assert min(row.values()) > 0
    monkeypatch.setattr("sys.argv", ["env", "1"])
    env.main()
    assert "quadruped" in capsys.readouterr().out

"""The environments are URLB's, their rewards are the published formulas, and their checkpoints are
exact."""

import os
import subprocess
import sys

import dm_env
import gymnasium
import numpy as np
import pytest
import torch

import envs
from envs.dummy import Dummy
from utils import ROOT

SIZES = {"walker": (24, 6, 1000), "quadruped": (78, 12, 1000), "jaco": (55, 9, 250)}
PENDULUM = "gymnasium:Pendulum-v1"


def actions_for(env, n, seed=0):
    return np.random.RandomState(seed).uniform(-1, 1, (n, env.action_dim)).astype(np.float32)


def rollout(env, actions):
    """Time steps of reset() and of each action."""
    return [env.reset()] + [env.step(a) for a in actions]


def rescaled(native_spec, action):
    """URLB's action scaling, written out: float32 throughout."""
    low, high = native_spec.minimum.astype(np.float32), native_spec.maximum.astype(np.float32)
    return np.clip(low + (high - low) / np.float32(2) * (action + np.float32(1)), low, high)


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.step_type, a.reward, a.discount) == (b.step_type, b.reward, b.discount)
        np.testing.assert_array_equal(a.observation, b.observation)


# ---- sizes, types, limits


def test_import_does_not_load_the_simulators():
    code = "import sys, envs; sys.exit(any(m in sys.modules for m in ('dm_control', 'mujoco')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_making_a_task_prints_nothing_and_leaves_global_random_state_alone():
    code = """
import numpy as np, envs
np.random.seed(5)
env = envs.make("jaco_reach_top_left", seed=1)
env.reset()
env.step(np.zeros(9))
assert np.random.rand() == np.random.RandomState(5).rand()
"""
    bare = {key: value for key, value in os.environ.items() if key not in ("MUJOCO_GL", "DISPLAY")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=bare, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_twelve_tasks_have_urlb_sizes_and_types():
    assert len(envs.TASKS) == 12
    for name, domain in envs.TASKS.items():
        env = envs.make(name, seed=0)
        obs_dim, action_dim, _ = SIZES[domain]
        assert (env.obs_dim, env.action_dim) == (obs_dim, action_dim), name
        spec = env.action_spec()
        assert spec.dtype == np.float32 and (spec.minimum == -1).all() and (spec.maximum == 1).all()
        assert env.observation_spec().dtype == np.float32
        first = env.reset()
        assert first.first() and (first.reward, first.discount) == (0.0, 1.0)
        ts = env.step(spec.generate_value())
        assert ts.mid() and ts.discount == 1.0
        assert type(ts.reward) is float and 0 <= ts.reward <= 1
        for observation in (first.observation, ts.observation):
            assert observation.dtype == np.float32 and observation.shape == (obs_dim,)
        env.close()


@pytest.mark.parametrize("name", ["walker_flip", "quadruped_jump", "jaco_reach_top_left"])
def test_an_episode_ends_by_its_time_limit_with_discount_one(name):
    env = envs.make(name, seed=1)
    length = SIZES[envs.TASKS[name]][2]
    steps = rollout(env, actions_for(env, length))[1:]
    assert [ts.last() for ts in steps] == [False] * (length - 1) + [True]
    assert {ts.discount for ts in steps} == {1.0}
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros(env.action_dim))


# ---- the suite's own tasks


SUITE = ["walker_stand", "walker_walk", "walker_run", "quadruped_walk", "quadruped_run"]


@pytest.mark.parametrize("name", SUITE)
def test_suite_tasks_are_the_suites_bit_for_bit(name):
    env = envs.make(name, seed=7)
    from dm_control import suite

    native = suite.load(*name.split("_"), task_kwargs={"random": 7})
    for episode in range(2):
        pairs = [(env.reset(), native.reset())]
        for action in actions_for(env, 120, episode):
            pairs.append((env.step(action), native.step(rescaled(native.action_spec(), action))))
        for ours, theirs in pairs:
            flat = np.concatenate([np.ravel(v) for v in theirs.observation.values()])
            np.testing.assert_array_equal(ours.observation, flat.astype(np.float32))
            assert theirs.reward is None or ours.reward == theirs.reward


# ---- rewards in closed form, from raw simulator fields


def raw(env):
    """mujoco's own model and data."""
    return env.unwrapped.physics.model.ptr, env.unwrapped.physics.data.ptr


def velocities(model, data):
    """Angular velocity and velocity of the centre of mass of each body but the world, in world
    axes."""
    import mujoco

    twist = np.zeros((model.nbody, 6))
    for body in range(1, model.nbody):
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_BODY, body, twist[body], 0)
    return twist[1:, :3], twist[1:, 3:]


def angular_momentum(model, data):
    """Of all bodies about their common centre of mass, summed body by body."""
    mass = model.body_mass[1:]
    spin, velocity = velocities(model, data)
    centre, mean = centre_of_mass(model, data), mass @ velocity / mass.sum()
    total = (mass[:, None] * np.cross(data.xipos[1:] - centre, velocity - mean)).sum(0)
    for rotation, inertia, omega in zip(data.ximat[1:], model.body_inertia[1:], spin, strict=True):
        rotation = rotation.reshape(3, 3)
        total += rotation @ (inertia * (rotation.T @ omega))
    return total


def centre_of_mass(model, data):
    return model.body_mass @ data.xipos / model.body_mass.sum()


def walker_reward(task, env):
    model, data = raw(env)
    torso = data.body("torso")
    height, up = torso.xpos[2], torso.xmat[8]
    standing = 1.0 if height >= 1.2 else 0.1 ** (((1.2 - height) / 0.6) ** 2)
    posture = (3 * standing + (1 + up) / 2) / 4
    if task == "stand":
        return posture
    if task == "flip":
        move = angular_momentum(model, data)[1] / 5
    else:
        mass = model.body_mass[1:]
        speed = mass @ velocities(model, data)[1][:, 0] / mass.sum()
        move = speed / {"walk": 1, "run": 8}[task]
    return posture * (5 * np.clip(move, 0, 1) + 1) / 6


def quadruped_reward(task, env):
    model, data = raw(env)
    _, x, y, _ = data.qpos[3:7]  # root quaternion
    upright = (1 + (1 - 2 * (x * x + y * y))) / 2
    if task == "stand":
        return upright
    if task == "jump":
        value, bound = centre_of_mass(model, data)[2], 1.0
    else:
        value, bound = env.unwrapped.physics.torso_velocity()[0], {"walk": 0.5, "run": 5.0}[task]
    if value <= -bound:
        return 0.0
    return upright * (1.0 if value >= bound else 0.5 + 0.5 * value / bound)


CLOSED_FORMS = {"walker": walker_reward, "quadruped": quadruped_reward}


@pytest.mark.parametrize("name", [n for n, d in envs.TASKS.items() if d != "jaco"])
def test_reward_equals_its_formula_in_random_episodes(name):
    env = envs.make(name, seed=3)
    domain, task = name.split("_")
    env.reset()
    for action in actions_for(env, 150):
        assert env.step(action).reward == pytest.approx(CLOSED_FORMS[domain](task, env), abs=1e-9)


def test_flip_reward_counts_forward_momentum_up_to_five():
    env = envs.make("walker_flip", seed=0)
    env.reset()
    physics, task = env.unwrapped.physics, env.unwrapped.task
    seen = []
    for spin in (-3.0, 0.0, 0.5, 1.5, 4.0, 9.0):
        with physics.reset_context():
            physics.named.data.qvel["rooty"] = spin
        seen.append(angular_momentum(*raw(env))[1])
        assert physics.angular_momentum() == pytest.approx(seen[-1], abs=1e-9)
        assert task.get_reward(physics) == pytest.approx(walker_reward("flip", env), abs=1e-12)
    assert min(seen) < 0 and max(seen) > 5 and any(0 < s < 5 for s in seen)  # every branch was met


def test_jump_reward_saturates_at_one_metre():
    env = envs.make("quadruped_jump", seed=0)
    env.reset()
    physics, task = env.unwrapped.physics, env.unwrapped.task
    rewards = {}
    for height in (0.6, 0.9, 1.5, 3.0):
        with physics.reset_context():
            physics.named.data.qpos["root"][:7] = 0, 0, height, 1, 0, 0, 0
        rewards[height] = task.get_reward(physics)
        assert rewards[height] == pytest.approx(quadruped_reward("jump", env), abs=1e-12)
    assert rewards[0.6] < rewards[0.9] < 1 and rewards[1.5] == rewards[3.0] == 1


def test_quadruped_stand_rewards_tilt_alone():
    env = envs.make("quadruped_stand", seed=0)
    env.reset()
    physics, task = env.unwrapped.physics, env.unwrapped.task
    for tilt in (0, np.pi / 3, np.pi / 2, np.pi):
        with physics.reset_context():
            physics.named.data.qpos["root"][:7] = 0, 0, 3, np.cos(tilt / 2), np.sin(tilt / 2), 0, 0
            physics.named.data.qvel["root"][0] = 2.0
        assert task.get_reward(physics) == pytest.approx((1 + np.cos(tilt)) / 2, abs=1e-12)


# ---- jaco

PLACES = {
    "top_left": (-0.09, 0.09),
    "top_right": (0.09, 0.09),
    "bottom_left": (-0.09, -0.09),
    "bottom_right": (0.09, -0.09),
}
HAND, BRICK = slice(30, 33), slice(52, 55)  # positions within the observation
BODY = "duplo2x4/"


def jaco_reward(distance):
    return 1.0 if distance <= 0.05 else 0.1 ** (((distance - 0.05) / 0.05) ** 2)


@pytest.mark.parametrize("place", PLACES)
def test_jaco_brick_lies_where_the_task_says(place):
    env = envs.make(f"jaco_reach_{place}", seed=4)
    for _ in range(2):
        observation = env.reset().observation
        body = raw(env)[1].body(BODY).xpos
        np.testing.assert_allclose(body, [*PLACES[place], 0], atol=1e-3)
        # The observed position is a site in the middle of the brick, 12 mm above the body that
        # counts.
        np.testing.assert_allclose(observation[BRICK], body + [0, 0, 0.0119], atol=1e-3)
    for action in actions_for(env, 10):
        ts = env.step(action)
        distance = np.linalg.norm(ts.observation[HAND] - raw(env)[1].body(BODY).xpos)
        assert ts.reward == pytest.approx(jaco_reward(distance), rel=1e-3, abs=1e-9)


def test_jaco_rewards_closeness_to_the_brick_wherever_it_is():
    env = envs.make("jaco_reach_top_left", seed=4)
    env.reset()
    physics, task = env.unwrapped.physics, env.unwrapped.task
    hand = np.array(physics.bind(task.hand.tool_center_point).xpos)
    model, data = raw(env)
    start = model.jnt_qposadr[model.body(BODY).jntadr[0]]
    for offset in (0.0, 0.03, 0.049, 0.06, 0.075, 0.1, 0.15, 0.3):
        data.qpos[start : start + 3] = hand + [0, 0, offset]
        physics.forward()
        assert task.get_reward(physics) == pytest.approx(jaco_reward(offset), abs=1e-9)


# ---- seeds


EVERY = ["walker_run", "walker_flip", "quadruped_jump", "jaco_reach_bottom_left", PENDULUM, "dummy"]


def episodes(env, steps=15, count=2):
    actions = actions_for(env, steps)
    seen = []
    for _ in range(count):
        seen.append(env.reset())
        for action in actions:
            seen.append(env.step(action))
            if seen[-1].last():
                break
    return seen


@pytest.mark.parametrize("name", EVERY)
def test_a_seed_decides_all_episodes_whatever_happened_before(name):
    fresh = episodes(envs.make(name, seed=11))
    starts = [ts.observation for ts in fresh if ts.first()]
    assert len(starts) == 2 and not np.array_equal(*starts)
    assert_same(fresh, episodes(envs.make(name, seed=11)))
    used = envs.make(name, seed=12)
    other = episodes(used, steps=22)
    assert not np.array_equal(other[0].observation, fresh[0].observation)
    used.reset()
    used.step(np.ones(used.action_dim))
    used.seed(11)
    with pytest.raises(RuntimeError, match="call reset"):
        used.step(np.zeros(used.action_dim))
    assert_same(fresh, episodes(used))


@pytest.mark.parametrize("name", ["walker_flip", "quadruped_stand", "jaco_reach_top_left"])
def test_building_a_task_draws_no_random_numbers(name):
    from envs.dmc import find_random

    env = envs.make(name, seed=0)
    built = find_random(env._build(5)).get_state()
    for left, right in zip(built, np.random.RandomState(5).get_state(), strict=True):
        np.testing.assert_array_equal(left, right)


# ---- checkpoints


def through_a_file(state, path):
    torch.save(state, path)
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("steps", [0, 3])
def test_a_checkpoint_continues_this_episode_and_the_next_exactly(name, steps, tmp_path):
    env = envs.make(name, seed=2)
    rollout(env, actions_for(env, 4, seed=9))  # one episode left unfinished before
    here = rollout(env, actions_for(env, steps))[-1]
    state = through_a_file(env.get_state(), tmp_path / "state.pt")
    other = envs.make(name, seed=99)
    rollout(other, actions_for(other, 2))
    assert_same([other.set_state(state)], [here])
    for action in actions_for(env, 2, seed=1):
        assert_same([env.step(action)], [other.step(action)])
    assert_same(episodes(env), episodes(other))


@pytest.mark.parametrize("name", ["walker_run", PENDULUM, "dummy"])
def test_a_checkpoint_before_the_first_reset_restores_the_coming_episodes(name, tmp_path):
    env, other = envs.make(name, seed=2), envs.make(name, seed=3)
    other.reset()
    assert other.set_state(through_a_file(env.get_state(), tmp_path / "state.pt")) is None
    assert_same(episodes(env), episodes(other))


def test_a_checkpoint_at_the_end_of_an_episode_waits_for_reset():
    env, other = Dummy(seed=1, terminal=True), Dummy(seed=2, terminal=True)
    last = rollout(env, actions_for(env, 5))[-1]
    restored = other.set_state(env.get_state())
    assert_same([last], [restored])
    assert restored.last() and restored.discount == 0.0
    with pytest.raises(RuntimeError, match="call reset"):
        other.step(np.zeros(2))
    assert_same(episodes(env), episodes(other))


def test_checkpoints_continue_exactly_in_another_process(tmp_path):
    names = ["walker_run", "quadruped_walk", "jaco_reach_top_right"]
    expected = {}
    for name in names:
        env = envs.make(name, seed=6)
        rollout(env, actions_for(env, 12))
        torch.save(env.get_state(), tmp_path / f"{name}.pt")
        after = [env.step(a) for a in actions_for(env, 5, seed=1)] + rollout(
            env, actions_for(env, 3)
        )
        expected[name] = np.stack([ts.observation for ts in after])
    code = """
import sys, numpy as np, torch, envs
folder, *names = sys.argv[1:]
for name in names:
    env = envs.make(name, seed=0)
    env.set_state(torch.load(f"{folder}/{name}.pt", weights_only=True))
    draw = lambda n, seed: np.random.RandomState(seed).uniform(-1, 1, (n, env.action_dim)).astype(np.float32)
    after = [env.step(a) for a in draw(5, 1)] + [env.reset()] + [env.step(a) for a in draw(3, 0)]
    np.save(f"{folder}/{name}.npy", np.stack([ts.observation for ts in after]))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path), *names], cwd=ROOT, check=True)
    for name in names:
        np.testing.assert_array_equal(np.load(tmp_path / f"{name}.npy"), expected[name])


def test_writing_into_an_observation_does_not_spoil_the_checkpoint():
    env = envs.make("dummy", seed=1)
    env.reset().observation[:] = -7
    assert env.set_state(env.get_state()).observation[0] == 0


# ---- environments from elsewhere


class Stopper(gymnasium.Env):
    """Terminates after three steps; its observation shows the last action and the layout drawn when
    built."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2, 1))
    action_space = gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([3, 10]))

    def __init__(self, seed=0):
        self.layout, self.action = np.random.RandomState(seed).rand(), np.zeros(2)

    def _observe(self):
        return np.array([[self.action[1]], [self.layout]], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps, self.action = self.steps + 1, action
        return self._observe(), float(action[0]), self.steps == 3, False, {}


class Walk(dm_env.Environment):
    """A dm_env that counts; ends in a true terminal after four steps. No RandomState on show."""

    def __init__(self, seed):
        self.x = float(seed)

    def observation_spec(self):
        return {"b": dm_env.specs.Array((1,), float), "a": dm_env.specs.Array((), float)}

    def action_spec(self):
        return dm_env.specs.BoundedArray((1,), np.float32, -2, 2)

    def _observe(self):
        return {"b": np.array([self.x]), "a": self.t}

    def reset(self):
        self.t, self.x = 0, self.x + 10
        return dm_env.restart(self._observe())

    def step(self, action):
        self.t, self.x = self.t + 1, self.x + float(action[0])
        return (dm_env.termination if self.t == 4 else dm_env.transition)(1.0, self._observe())


class SavingWalk(Walk):
    def get_state(self):
        return {"x": self.x}

    def set_state(self, state):
        self.x = state["x"]


def not_an_env(seed):
    return 3


def test_gymnasium_terminal_has_discount_zero_and_a_time_limit_one():
    env = envs.make(f"{__name__}:Stopper", seed=0)
    ends = rollout(env, np.zeros((3, 2)))
    assert [ts.discount for ts in ends] == [1, 1, 1, 0] and ends[-1].last()
    env = envs.make(PENDULUM, seed=0)
    ends = rollout(env, actions_for(env, 200))
    assert ends[-1].last() and not ends[-2].last() and {ts.discount for ts in ends} == {1.0}


def test_a_factory_is_called_again_by_seed_and_by_a_checkpoint():
    env, other = (envs.make(f"{__name__}:Stopper", seed=s) for s in (1, 2))
    layout = env.reset().observation[1]
    assert other.reset().observation[1] != layout
    other.seed(1)
    assert other.reset().observation[1] == layout
    other.seed(2)
    assert other.set_state(env.get_state()).observation[1] == layout


def test_actions_are_clipped_and_rescaled_to_native_bounds():
    env = envs.make(f"{__name__}:Stopper", seed=0)
    env.reset()
    ts = env.step([0.5, -1.0])
    assert ts.reward == 2.0 and ts.observation[0] == 0.0
    ts = env.step([-8.0, 8.0])
    assert ts.reward == -1.0 and ts.observation[0] == 10.0


def test_action_repeat_sums_rewards_and_stops_at_the_end():
    env = envs.make(f"{__name__}:Stopper", seed=0, action_repeat=2)
    steps = rollout(env, np.float32([[0, 0], [1, 0]]))
    # 1 + 1, then 3 once: the third step terminates
    assert [ts.reward for ts in steps] == [0.0, 2.0, 3.0]
    assert steps[-1].last() and steps[-1].discount == 0.0
    once, twice = (
        envs.make("walker_walk", seed=5),
        envs.make("walker_walk", seed=5, action_repeat=2),
    )
    once.reset(), twice.reset()
    for action in actions_for(once, 5):
        pair = [once.step(action), once.step(action)]
        ts = twice.step(action)
        assert ts.reward == pair[0].reward + pair[1].reward
        np.testing.assert_array_equal(ts.observation, pair[1].observation)


def test_rewards_under_action_repeat_are_weighted_by_the_running_discount():
    class Halving(Walk):
        def step(self, action):
            return super().step(action)._replace(discount=0.5)

    from envs.dmc import DMEnv

    env = DMEnv(Halving, seed=0, action_repeat=3)
    env.reset()
    ts = env.step([0.0])
    assert (ts.reward, ts.discount) == (1.75, 0.125)


def test_a_third_party_dm_env_works_and_says_when_it_cannot_be_restored():
    env = envs.make(f"{__name__}:Walk", seed=3)
    steps = rollout(env, np.ones((4, 1)))
    # The mapping's order: b, a.
    assert [list(ts.observation) for ts in steps[:2]] == [[13, 0], [15, 1]]
    assert steps[-1].last() and steps[-1].discount == 0.0
    with pytest.raises(envs.NotRestorable, match="random source"):
        env.get_state()
    env.seed(3)
    assert env.reset().observation[0] == 13


def test_a_third_party_dm_env_may_save_itself():
    env, other = (envs.make(f"{__name__}:SavingWalk", seed=s) for s in (3, 4))
    rollout(env, np.ones((4, 1)))
    here = rollout(env, np.ones((2, 1)))[-1]
    assert_same([other.set_state(env.get_state())], [here])
    assert_same(episodes(env, 4), episodes(other, 4))


def test_hidden_state_is_noticed_when_a_checkpoint_is_restored():
    class Drifting(Stopper):
        made = 0

        def __init__(self, seed=0):
            Drifting.made += 1
            super().__init__(Drifting.made)

    from envs.gym import GymEnv

    env, other = GymEnv(Drifting, seed=0), GymEnv(Drifting, seed=0)
    env.reset()
    with pytest.raises(envs.NotRestorable, match="led elsewhere"):
        other.set_state(env.get_state())


# ---- wrong input ends in one line


@pytest.mark.parametrize(
    "kwargs, part",
    [
        (dict(name="walker_fly"), "walker_flip"),
        (dict(name="walker:"), "gymnasium:<ID>"),
        (dict(name="no_such_module:f"), "no_such_module"),
        (dict(name=f"{__name__}:no_such_function"), "no_such_function"),
        (dict(name=f"{__name__}:not_an_env"), "returned int"),
        (dict(name="gymnasium:NoSuchEnv-v0"), "NoSuchEnv"),
        (dict(name="gymnasium:CartPole-v1"), "Discrete(2)"),
        (dict(name="dummy", obs_type="pixels"), "render=RenderSettings(size=84"),
        (dict(name="dummy", obs_type="sound"), "choose from states, pixels"),
        (dict(name="dummy", action_repeat=0), "action_repeat must be an integer >= 1"),
        (dict(name="walker_run", seed=-1), "seed must be an integer"),
    ],
)
def test_wrong_names_and_settings_are_explained(kwargs, part):
    with pytest.raises(ValueError) as error:
        envs.make(**{"seed": 0, **kwargs})
    assert part in str(error.value) and "\n" not in str(error.value)


BAD_ACTIONS = [([0.0], "shape"), ([[0.0, 0.0]], "shape"), ([0.0, np.nan], "finite")]


@pytest.mark.parametrize("action, part", BAD_ACTIONS)
def test_wrong_actions_are_refused_and_leave_the_episode_alone(action, part):
    env = envs.make("dummy", seed=0)
    env.reset()
    with pytest.raises(ValueError, match=part):
        env.step(action)
    assert env.step([0.0, 0.0]).observation[0] == 1


def test_a_checkpoint_of_another_environment_is_refused():
    with pytest.raises(ValueError, match="action dimensions"):
        envs.make("dummy", seed=0).set_state(envs.make(PENDULUM, seed=0).get_state())


def test_dummy_shows_step_episode_and_action_and_ends_as_told():
    env = Dummy(seed=0, length=3, terminal=True)
    for episode in range(2):
        steps = rollout(env, np.full((3, 2), 0.5))
        assert [tuple(ts.observation[:2]) for ts in steps] == [(t, episode) for t in range(4)]
        assert [ts.reward for ts in steps] == [0, 1, 2, 3] and [ts.discount for ts in steps] == [
            1,
            1,
            1,
            0,
        ]
        assert (steps[1].observation[3:] == 0.5).all()
    assert Dummy(length=1).reset().observation.shape == (5,)

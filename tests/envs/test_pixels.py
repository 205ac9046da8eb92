"""An environment seen through its camera: stacks of frames, drawn once per step, exact checkpoints."""

import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import envs
from envs import NotRestorable, RenderSettings, render
from envs.dummy import Dummy
from envs.pixels import PixelEnv
from utils import ROOT, UserError

SIDE = Dummy.SIDE
SETTINGS = RenderSettings(size=SIDE, stack=3, shadows=False)


def make(*, length=5, action_repeat=1, seed=0, settings=SETTINGS) -> PixelEnv:
    return PixelEnv(Dummy(length=length), seed=seed, settings=settings, action_repeat=action_repeat)


def moments(observation) -> list[tuple[int, int]]:
    """(episode, step) of every frame of a stack, the oldest first."""
    frames = observation.reshape(-1, 3, SIDE, SIDE)
    assert all((frame[:2] == frame[:2, :1, :1]).all() for frame in frames)
    return [(int(frame[1, 0, 0]), int(frame[0, 0, 0])) for frame in frames]


def count_drawings(env, monkeypatch) -> list:
    drawn, draw = [], env._renderer.frame
    monkeypatch.setattr(env._renderer, "frame", lambda of: drawn.append(1) or draw(of))
    return drawn


def test_an_observation_is_the_newest_frames_and_an_episode_starts_with_its_own():
    env = make()
    spec = env.observation_spec()
    assert spec.shape == (9, SIDE, SIDE) and spec.dtype == np.uint8
    for episode in (0, 1):
        step = env.reset()
        spec.validate(step.observation)
        assert moments(step.observation) == [(episode, 0)] * 3
        for count in range(1, 6):
            step = env.step(np.zeros(2, np.float32))
            expected = [(episode, max(count - back, 0)) for back in (2, 1, 0)]
            assert moments(step.observation) == expected  # never of the episode before
        assert step.last()


def test_rows_are_counted_from_above_and_colours_come_first():
    observation = make().reset().observation
    assert (observation[2, : SIDE // 2] == 255).all() and not observation[2, SIDE // 2 :].any()


def test_a_repeated_action_is_drawn_once_and_pays_its_sum(monkeypatch):
    env = make(length=6, action_repeat=2)
    drawn = count_drawings(env, monkeypatch)
    env.reset()
    step = env.step(np.zeros(2, np.float32))
    assert len(drawn) == 2 and moments(step.observation) == [(0, 0), (0, 0), (0, 2)]
    assert step.reward == 1 + 2


def test_the_episode_and_its_rewards_are_those_of_the_states():
    """The camera changes nothing that happens: same seed, same actions, same rewards."""
    seen, felt = make(length=7, action_repeat=2, seed=3), Dummy(length=7, action_repeat=2, seed=3)
    rng = np.random.default_rng(0)
    seen.reset(), felt.reset()
    last = False
    while not last:
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        ours, theirs = seen.step(action), felt.step(action)
        assert (ours.reward, ours.discount, ours.step_type) == theirs[1:3] + theirs[:1]
        np.testing.assert_array_equal(seen.measured(), theirs.observation)
        last = ours.last()


@pytest.mark.parametrize("steps", range(7))
def test_a_checkpoint_goes_on_bit_for_bit_wherever_it_is_taken(steps, monkeypatch):
    """Two episodes of five steps; and only the frames of the one stack are drawn again."""
    env, rng = make(seed=5), np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (12, 2)).astype(np.float32)

    def advance(env, step, numbers):
        found = []
        for number in numbers:
            step = env.reset() if step is None or step.last() else env.step(actions[number])
            found.append(step)
        return step, found

    step, _ = advance(env, None, range(steps))
    state = env.get_state()
    _, expected = advance(env, step, range(steps, 12))
    other = make(seed=9)
    drawn = count_drawings(other, monkeypatch)
    step = other.set_state(state)
    assert len(drawn) <= 3
    _, found = advance(other, step, range(steps, 12))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.observation, theirs.observation)
        assert ours[:3] == theirs[:3]


def test_a_checkpoint_that_is_drawn_otherwise_elsewhere_is_refused(monkeypatch):
    env = make()
    env.reset()
    state, other = env.get_state(), make()
    monkeypatch.setattr(Dummy, "render", lambda self: np.full((SIDE, SIDE, 3), 7, np.uint8))
    with pytest.raises(NotRestorable):
        other.set_state(state)


class Counting(gymnasium.Env):
    """A gymnasium environment whose picture is as bright as its step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    render_mode = "rgb_array"

    def __init__(self, seed=0):
        self.count = 0

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        return np.full((SIDE, SIDE, 3), 10 * self.count, np.uint8)


def test_a_gymnasium_environment_that_draws_itself_is_seen_by_its_newest_frames():
    env = envs.make(f"{__name__}:Counting", seed=1, obs_type="pixels", render=SETTINGS)
    seen = [env.reset(), *(env.step(np.zeros(1, np.float32)) for _ in range(3))]
    stacks = [each.observation.reshape(3, -1) for each in seen]  # (frames, pixels)
    assert [stack[:, 0].tolist() for stack in stacks] == [
        [0, 0, 0],
        [0, 0, 10],
        [0, 10, 20],
        [10, 20, 30],
    ]
    assert all((stack == stack[:, :1]).all() for stack in stacks)


def test_gymnasium_environments_are_seen_too():
    pytest.importorskip("pygame", reason="what Pendulum-v1 is drawn with is not installed")
    env = envs.make("gymnasium:Pendulum-v1", seed=1, obs_type="pixels", render=SETTINGS)
    first, second = env.reset(), env.step(np.ones(1, np.float32))
    assert first.observation.shape == (9, SIDE, SIDE) and first.observation.std() > 0
    np.testing.assert_array_equal(second.observation[:6], first.observation[3:])
    env.close()


def test_what_cannot_be_drawn_says_so(monkeypatch):
    monkeypatch.setattr(Dummy, "render_mode", None)
    with pytest.raises(UserError, match="cannot be drawn"):
        make().reset()
    with pytest.raises(ValueError, match="needs to know what to draw"):
        envs.make("dummy", seed=0, obs_type="pixels")


# ---- beside dm_control's own pictures


@pytest.fixture(scope="module")
def gl() -> str:
    try:
        return render.backend(render.wanted())
    except UserError as error:
        pytest.skip(str(error))


def python(code: str, *words: str, **environment: str) -> str:
    """In a process of its own: dm_control settles its renderer when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


NAMES = ("walker_flip", "quadruped_jump", "jaco_reach_top_left")
OURS = """
import sys, numpy as np, envs
out, *names = sys.argv[1:]
urlb = envs.RenderSettings(size=84, stack=3, shadows=True)
found = {}
for name in names:
    env = envs.make(name, seed=3, obs_type="pixels", action_repeat=2, render=urlb)
    rng = np.random.default_rng(0)
    seen = [env.reset().observation]
    for _ in range(6):
        seen.append(env.step(rng.uniform(-1, 1, env.action_dim).astype(np.float32)).observation)
    found[name] = np.stack(seen)
np.savez(out, **found)
"""
# dm_control's environment, steps and renderer; rescaling, repeat and stack written out a second time.
THEIRS = """
import sys, importlib, numpy as np
out, *names = sys.argv[1:]
found = {}
def picture(env, domain):
    names = [env.physics.model.id2name(i, "camera") for i in range(env.physics.model.ncam)]
    close = [i for i, each in enumerate(names) if each.endswith("front_close")]
    camera = {"walker": 0, "quadruped": 2}.get(domain, close[0] if close else 0)
    return env.physics.render(84, 84, camera_id=camera).transpose(2, 0, 1).copy()
for name in names:
    domain, _, task = name.partition("_")
    env = importlib.import_module("envs." + domain).stock(task, 3)
    spec, rng = env.action_spec(), np.random.default_rng(0)
    low, high = spec.minimum.astype(np.float32), spec.maximum.astype(np.float32)
    env.reset()
    frames = [picture(env, domain)] * 3
    seen = [np.concatenate(frames)]
    for _ in range(6):
        action = rng.uniform(-1, 1, spec.shape).astype(np.float32)
        native = (action + np.float32(1)) * ((high - low) / np.float32(2)) + low
        for _ in range(2):
            env.step(native)
        frames = frames[1:] + [picture(env, domain)]
        seen.append(np.concatenate(frames))
    found[name] = np.stack(seen)
np.savez(out, **found)
"""


def test_stacks_are_those_of_dm_controls_own_renderer_bit_for_bit(gl, tmp_path):
    """Shadows, camera, repeat 2 and stack 3 as in URLB. Each side draws in a process of its own: in
    one, their OpenGL contexts are in each other's way."""
    for code, out in ((OURS, "ours"), (THEIRS, "theirs")):
        python(code, str(tmp_path / f"{out}.npz"), *NAMES, MUJOCO_GL=gl)
    both = zip(*(np.load(tmp_path / f"{out}.npz").values() for out in ("ours", "theirs")))
    for name, (ours, theirs) in zip(NAMES, both, strict=True):
        assert ours.dtype == np.uint8 and ours.shape == (7, 9, 84, 84)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
        assert (np.diff(ours.astype(int), axis=0) != 0).any((1, 2, 3)).all()


BY_TURNS = """
import sys, numpy as np, envs
env, other = envs.make("walker_flip", seed=3), envs.make("jaco_reach_top_left", seed=3)
env.reset(), other.reset()
from dm_control._render import base
from envs.render import Renderer
renderers = [Renderer(84, 84, shadows=True), Renderer(48, 48)]
def theirs(env):
    return env.unwrapped.physics.render(84, 84, camera_id=0).copy()
alone = [theirs(env), theirs(other)]
for _ in range(3):
    ours = [renderer.frame(env) for renderer in renderers]
    assert not base._CURRENT_CONTEXT_FOR_THREAD  # so that dm_control makes its own current again
    np.testing.assert_array_equal(theirs(env), alone[0])
    np.testing.assert_array_equal(ours[0], alone[0])
    renderers[1].frame(other)
    np.testing.assert_array_equal(theirs(other), alone[1])
"""


def test_dm_controls_renderer_and_ours_can_take_turns_in_one_process(gl):
    python(BY_TURNS, MUJOCO_GL=gl)


def test_shadows_change_the_pictures(gl):
    seen = []
    for shadows in (True, False):
        settings = RenderSettings(size=48, stack=1, shadows=shadows)
        env = envs.make("walker_stand", seed=1, obs_type="pixels", render=settings)
        seen.append(env.reset().observation.astype(int))
        env.close()
    assert (abs(seen[0] - seen[1]) > 8).any(0).mean() > 0.05

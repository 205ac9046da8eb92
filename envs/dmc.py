"""dm_env environments (dm_control's suite and composer, or a third party's) as `Env`."""

import importlib
import os
from collections.abc import Mapping
from ctypes.util import find_library

import dm_env
import numpy as np

from envs.base import FIRST, LAST, MID, Adapter, NotRestorable, Outcome, pack_random, unpack_random

FLOAT32 = np.dtype(np.float32)

# Without a display, dm_control's default (glfw) warns when imported. Set MUJOCO_GL=egl or osmesa to
# render. One whose library is missing would break that import, for runs that never draw too;
# envs/render.py says what to do.
asked = os.environ.setdefault("MUJOCO_GL", "disable")
if asked in (needs := {"egl": "EGL", "osmesa": "OSMesa"}) and find_library(needs[asked]) is None:
    os.environ["MUJOCO_GL"] = "disable"
    importlib.import_module("dm_control.mujoco")
    os.environ["MUJOCO_GL"] = asked


def find_random(native) -> np.random.RandomState | None:
    """The RandomState that drives a composer environment or a suite task."""
    task = getattr(native, "task", None)
    for found in (getattr(native, "random_state", None), getattr(task, "random", None)):
        if isinstance(found, np.random.RandomState):
            return found
    return None


class DMEnv(Adapter):
    """Any dm_env environment. A checkpoint needs its RandomState, or a get_state() and set_state()
    of its own."""

    def _describe(self) -> dict:
        action = self._native.action_spec()
        if not hasattr(action, "minimum"):
            raise ValueError(f"the action spec must be one bounded array, got {action}")
        self._action_shape, self._action_dtype = action.shape, action.dtype
        low, high = (
            np.broadcast_to(b, action.shape).ravel() for b in (action.minimum, action.maximum)
        )
        observation = self._native.observation_spec()
        parts = observation.values() if isinstance(observation, Mapping) else [observation]
        return {
            "obs_dim": sum(int(np.prod(part.shape)) for part in parts),
            "low": low,
            "high": high,
        }

    def _reset(self):
        return self._native.reset().observation

    def _step(self, action: np.ndarray) -> Outcome:
        ts = self._native.step(action.reshape(self._action_shape).astype(self._action_dtype))
        # Not `ts.discount or 1.0`: that would turn a terminal into a time limit.
        discount = 1.0 if ts.discount is None else ts.discount
        return Outcome(ts.observation, ts.reward, discount, ts.last())

    def _get_source(self) -> dict | None:
        random = find_random(self._native)
        if random is not None:
            return pack_random(random)
        if hasattr(self._native, "get_state") and hasattr(self._native, "set_state"):
            return {"own": self._native.get_state()}
        return None

    def _set_source(self, source: dict) -> None:
        self._untouched = None
        if "own" in source:
            self._native.set_state(source["own"])
            return
        random = find_random(self._native)
        if random is None:
            raise NotRestorable("the state is of an environment that shows its random source")
        unpack_random(random, source)


class TaskEnv(DMEnv):
    """Our own tasks, by their fast methods (envs/fast.py).

    Building them draws no random numbers (a test holds this), so seed() need not build.

    `tasks` are those of the domain, where they differ in their rewards alone, so that a step of one
    tells what all of them would have paid.
    """

    def __init__(self, *args, name: str, tasks: tuple[str, ...], **kwargs):
        self.name, self.tasks = name, tasks
        self._sums: list[float] = []  # paid to each task by a step taken one by one
        super().__init__(*args, **kwargs)

    def keep_tasks(self) -> None:
        if self.tasks:
            self._native.own_task = self.tasks.index(self.name)

    def task_rewards(self) -> list[float]:
        if not self.tasks or self._native.own_task is None:
            return []
        return self._sums if self._action_repeat > 1 else self._native.paid

    def physics_state(self) -> np.ndarray:
        """Positions, velocities, activations, as dm_control gives them."""
        return self._native.physics.get_state()

    def _seed(self, seed: int) -> None:
        random = find_random(self._native)
        assert random is not None, "every task of ours has one"
        random.seed(seed)

    def step(self, action) -> dm_env.TimeStep:
        """`Env.step` in fewer calls, which saves 2 % of a step, for the float32 actions within
        bounds that training takes all the time. Anything else goes to `Env.step`."""
        if (
            (self._kind is not MID and self._kind is not FIRST)
            or self._action_repeat != 1
            or type(action) is not np.ndarray
            or action.dtype is not FLOAT32
            or action.shape != self._low.shape
        ):
            return self._by_substeps(action)
        values = action.tolist()
        total = sum(values)  # from which a NaN cannot hide, as it can from min and max
        if total != total or min(values) < -1 or max(values) > 1:
            return self._by_substeps(action)
        self._observation, reward, discount, last = self._native.fast_step(self._to_native(action))
        self._actions.append(action.tobytes())
        self._kind = kind = LAST if last else MID
        return dm_env.TimeStep(kind, reward, discount, self._observation.copy())

    def _by_substeps(self, action) -> dm_env.TimeStep:
        """`Env.step`, whose repeated actions pay their sum to every task."""
        self._sums = [0.0] * len(self.tasks)
        return super().step(action)

    def _reset(self) -> np.ndarray:
        return self._native.fast_reset()

    def _step(self, action: np.ndarray) -> Outcome:
        outcome = Outcome(*self._native.fast_step(action))
        if self.tasks and self._native.own_task is not None:
            paid = zip(self._sums, self._native.paid, strict=True)
            self._sums = [total + reward for total, reward in paid]
        return outcome

    def _flatten(self, observation: np.ndarray) -> np.ndarray:
        return observation

"""What the rest of the code relies on in an environment, and exact checkpoints of one."""

import abc
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
from dm_env import specs

# As names of this module, because looking a member up in an Enum at every step is slow.
FIRST, MID, LAST = dm_env.StepType


class NotRestorable(RuntimeError):
    """The environment cannot be put back exactly where it was."""


class Outcome(NamedTuple):
    """One native step. `last` ends the episode; discount 0.0 says that it ended in a true
    terminal."""

    observation: Any
    reward: float
    discount: float
    last: bool


def flatten(observation) -> np.ndarray:
    """A mapping's entries in its own order, or one array, as a new flat float32 vector."""
    if isinstance(observation, np.ndarray):
        return observation.astype(np.float32).ravel()
    parts = observation.values() if isinstance(observation, Mapping) else [observation]
    return np.concatenate([np.ravel(part).astype(np.float32) for part in parts])


def pack_random(source: np.random.RandomState) -> dict:
    """A RandomState's state as plain Python and a tensor: torch.load(weights_only=True) reads no
    arrays."""
    state = source.get_state(legacy=False)
    return {
        "name": state["bit_generator"],
        "words": torch.from_numpy(state["state"]["key"].astype(np.int64)),  # (624,)
        "position": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def unpack_random(source: np.random.RandomState, state: Mapping) -> None:
    """The counterpart of `pack_random`: the source goes on from there."""
    words = state["words"].numpy().astype(np.uint32)
    source.set_state((state["name"], words, state["position"], state["has_gauss"], state["gauss"]))


def check_seed(seed: int) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**32:
        raise ValueError(f"seed must be an integer in [0, 2**32), got {seed!r}")
    return int(seed)


def check_repeat(action_repeat: int) -> int:
    if isinstance(action_repeat, bool) or not isinstance(action_repeat, int) or action_repeat < 1:
        raise ValueError(f"action_repeat must be an integer >= 1, got {action_repeat!r}")
    return action_repeat


class Env(dm_env.Environment):
    """Flat float32 observations, float32 actions in [-1, 1], float rewards, discount 0.0 only at a
    terminal.

    Subclasses provide the underscored methods below; `__init__` ends by seeding.
    """

    # the random source as it was at the start of the current episode
    _source: dict | None
    # of the current time step; None before the first reset
    _kind: dm_env.StepType | None
    # Environments whose rewards `task_rewards` knows, this one among them.
    tasks: tuple[str, ...] = ()

    def __init__(self, *, seed: int, obs_dim: int, low, high, action_repeat: int = 1):
        # NumPy 2 would rescale in float64 with float64 bounds; URLB's numbers come from float32.
        self._low = np.asarray(low, np.float32)
        self._high = np.asarray(high, np.float32)
        if self._low.ndim != 1 or not np.isfinite([self._low, self._high]).all():
            raise ValueError(f"action bounds must be finite vectors, got low={low} high={high}")
        self._scale = (self._high - self._low) / np.float32(2)
        self._one, self._minus_one = np.ones_like(self._low), -np.ones_like(self._low)
        # Rounding is monotonic: if the largest action stays within the bounds, all do; -1 gives
        # exactly `low`.
        self._overshoots = bool((self._low + self._scale * np.float32(2) > self._high).any())
        self._action_repeat = check_repeat(action_repeat)
        self._obs_shape = (obs_dim,)
        self._observation_spec = specs.Array(self._obs_shape, np.float32, "observation")
        self._action_spec = specs.BoundedArray(self._low.shape, np.float32, -1.0, 1.0, "action")
        self.seed(seed)

    # ---- for subclasses

    @abc.abstractmethod
    def _seed(self, seed: int) -> None:
        """Put the random source where a new environment with this seed has it."""

    @abc.abstractmethod
    def _reset(self) -> Any:
        """Start an episode; the native observation."""

    @abc.abstractmethod
    def _step(self, action: np.ndarray) -> Outcome:
        """One native step with a float32 action in native bounds."""

    def _flatten(self, observation) -> np.ndarray:
        """The native observation as a float32 vector that nothing changes before the next step."""
        return flatten(observation)

    @abc.abstractmethod
    def _get_source(self) -> dict | None:
        """All that decides the coming episodes besides actions; None if the environment does not
        show it."""

    @abc.abstractmethod
    def _set_source(self, source: dict) -> None: ...

    # ---- dm_env

    @property
    def obs_dim(self) -> int:
        return self._observation_spec.shape[0]

    @property
    def action_dim(self) -> int:
        return self._action_spec.shape[0]

    def observation_spec(self) -> specs.Array:
        return self._observation_spec

    def action_spec(self) -> specs.BoundedArray:
        return self._action_spec

    def seed(self, seed: int) -> None:
        """Start over: the next reset() gives the first episode of a new environment with this
        seed."""
        self._seed_value = check_seed(seed)
        self._seed(self._seed_value)
        self._source = self._kind = None
        self._actions: list[bytes] = []  # taken in the current episode, float32 each

    def reset(self) -> dm_env.TimeStep:
        self._source = self._get_source()
        self._actions = []
        return self._time_step(FIRST, 0.0, 1.0, self._reset())

    def step(self, action) -> dm_env.TimeStep:
        if self._kind is None:
            raise RuntimeError("step() before reset(): call reset() first (also after seed())")
        if self._kind is LAST:
            raise RuntimeError("step() after the last step of an episode: call reset() first")
        action = self._checked(action)
        native = self._to_native(action)
        reward, discount = 0.0, 1.0
        for _ in range(self._action_repeat):
            observation, native_reward, native_discount, last = self._step(native)
            reward += discount * float(native_reward)
            discount *= float(native_discount)
            if last:
                break
        self._actions.append(action.tobytes())
        return self._time_step(LAST if last else MID, reward, discount, observation)

    def _time_step(
        self, kind: dm_env.StepType, reward: float, discount: float, native
    ) -> dm_env.TimeStep:
        self._kind, self._observation = kind, self._flatten(native)
        assert self._observation.shape == self._obs_shape, (
            self._observation.shape,
            self._obs_shape,
        )
        observation = self._observation.copy()  # the caller may write into its own
        return dm_env.TimeStep(kind, reward, discount, observation)

    def _checked(self, action) -> np.ndarray:
        action = np.asarray(action, np.float32)
        if action.shape != self._low.shape:
            raise ValueError(
                f"action has shape {action.shape}, this environment takes {self._low.shape}"
            )
        # A sum of doubles cannot overflow here, and takes a fifth of the time of isfinite().all().
        if not math.isfinite(sum(action.tolist())):
            raise ValueError(f"action is not finite: {action}")
        # What clip() does in Python. The first makes a copy: the caller may reuse its array.
        action = np.maximum(action, self._minus_one)
        return np.minimum(action, self._one, out=action)

    def _to_native(self, action: np.ndarray) -> np.ndarray:
        # The order of operations is that of dm_control's action_scale.
        native = action + self._one
        native *= self._scale
        native += self._low
        return native.clip(self._low, self._high) if self._overshoots else native

    def measured(self) -> np.ndarray:
        """The current state as a flat vector of numbers, also where the agent sees pictures."""
        return self._observation.copy()

    # ---- what data is kept with, to be relabelled later

    def keep_tasks(self) -> None:
        """From now on `task_rewards` is up to date after every step."""

    def task_rewards(self) -> list[float]:
        """What each of `tasks` would have paid for the last step."""
        return []

    def physics_state(self) -> np.ndarray | None:
        """The simulator's state at the current time step, one vector; None where there is none to
        show."""
        return None

    # ---- checkpoints

    def get_state(self) -> dict:
        """Plain Python and tensors: the random source at the episode's start and the actions taken
        since."""
        begun = self._kind is not None
        source = self._source if begun else self._get_source()
        if source is None:
            raise NotRestorable(
                "this environment shows no random source: it needs a numpy RandomState as "
                "`random_state` or `task.random`, or its own get_state() and set_state()"
            )
        taken = np.frombuffer(bytearray().join(self._actions), np.float32)
        actions = taken.reshape(-1, self.action_dim)  # (T, A)
        return {
            "seed": self._seed_value,
            "source": source,
            "begun": begun,
            "actions": torch.from_numpy(actions),
            "observation": torch.from_numpy(self._observation.copy()) if begun else None,
        }

    def set_state(self, state: Mapping) -> dm_env.TimeStep | None:
        """Go back to where `state` was taken; the time step there (None: it was before the first
        reset)."""
        actions = state["actions"].numpy()  # (T, A)
        if actions.shape[1] != self.action_dim:
            raise ValueError(
                f"the state is of an environment with {actions.shape[1]} action dimensions, "
                f"this one has {self.action_dim}"
            )
        self.seed(state["seed"])
        self._set_source(state["source"])
        if not state["begun"]:
            return None
        time_step = self.reset()
        for action in actions:
            time_step = self.step(action)
        # Replay is exact only if nothing hidden drives the environment and the simulator is the
        # same build.
        if not np.array_equal(time_step.observation, state["observation"].numpy(), equal_nan=True):
            raise NotRestorable(
                "replaying the episode led elsewhere: another library version or machine, "
                "other settings, or state that the random source does not cover"
            )
        return time_step


class Adapter(Env):
    """An `Env` around a native environment made by `build(seed)`.

    seed() builds again, whatever the native environment did before, so that a layout or anything
    else drawn while building follows the seed too.
    """

    def __init__(self, build: Callable[[int], Any], *, seed: int, native=None, **kwargs):
        self._build = build
        self._native = build(seed) if native is None else native
        # the seed that the native environment was built with; None once it has been used
        self._untouched: int | None = seed
        super().__init__(seed=seed, **self._describe(), **kwargs)

    @abc.abstractmethod
    def _describe(self) -> dict:
        """obs_dim, low and high of the native environment; ValueError if they do not fit `Env`."""

    @property
    def unwrapped(self):
        return self._native

    def close(self) -> None:
        self._native.close()

    def _seed(self, seed: int) -> None:
        if self._untouched != seed:
            self._native.close()
            self._native = self._build(seed)
            self._untouched = seed

    def reset(self) -> dm_env.TimeStep:
        self._untouched = None
        return super().reset()

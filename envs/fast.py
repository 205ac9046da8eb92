"""dm_control's control steps and rewards, with the same bits and less Python around the engine.

Most of a step of dm_control's environments is named indexing, context managers and rewards of
scalars as arrays. An environment here has all of that too (`reset`, `step`), and beside it
`fast_reset` and `fast_step`, which read cached views of mujoco's data. Their observation is one
float32 vector, the same one at every step, written in place (tests/envs/test_fast_envs.py compares the
two).
"""

from __future__ import annotations

import abc

import mujoco
import numpy as np
from dm_control.rl import control
from mujoco import mj_step, mj_step1, mj_step2

SENSOR = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
ISLAND = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
GAUSSIAN_SCALE = float(np.sqrt(-2 * np.log(0.1)))  # tolerance's default: 0.1 at the margin


# ---- dm_control.utils.rewards.tolerance of one number, in its order of operations


def linear(x: float, bound: float, margin: float, at_margin: float) -> float:
    """1 from the bound on, falling to `at_margin` at the margin and on along that line to 0."""
    if x >= bound:
        return 1.0
    scaled = (bound - x) / margin * (1 - at_margin)
    return 1 - scaled if abs(scaled) < 1 else 0.0


def gaussian(x: float, lower: float, upper: float, margin: float) -> float:
    if lower <= x <= upper:
        return 1.0
    distance = (lower - x if x < lower else x - upper) / margin
    if distance > 1e6:  # 0 far before; the square would overflow some day
        return 0.0
    # The power, not a product, and NumPy's exp, not math's: others differ in the last bit.
    return float(np.exp(-0.5 * (distance * GAUSSIAN_SCALE) ** 2))


# ---- views


def span(first: np.ndarray | list[int], count: int = 1) -> slice:
    """The slice that blocks of `count` entries from each of these addresses make up together."""
    starts = np.ravel(first)
    if (np.diff(starts) != count).any():
        raise ValueError(f"blocks of {count} at {starts.tolist()} are not contiguous")
    return slice(int(starts[0]), int(starts[-1]) + count)


def sensors(model: mujoco.MjModel, names) -> slice:
    """Where the readings of these sensors, of one size, are in sensordata."""
    found = [model.sensor(name) for name in names]
    return span([sensor.adr[0] for sensor in found], int(found[0].dim[0]))


class Joined:
    """Arrays as one float32 vector, brought up to date by `update`."""

    def __init__(self, *parts: np.ndarray):
        self._vector = np.empty(sum(part.size for part in parts), np.float32)
        ends = np.cumsum([part.size for part in parts])
        self._pairs = [
            (self._vector[end - part.size : end].reshape(part.shape), part)
            for part, end in zip(parts, ends, strict=True)
        ]

    def update(self) -> np.ndarray:
        for place, part in self._pairs:  # half the time of np.concatenate
            place[...] = part
        return self._vector


# ---- steps


class Stepper:
    """Sets the controls and does dm_control's `Physics.step(n)`: positions and velocities are up to
    date afterwards."""

    def __init__(self, physics, n_sub_steps: int):
        self.physics, self.model, self.data = physics, physics.model.ptr, physics.data.ptr
        if (
            self.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
            or not physics.legacy_step
            or n_sub_steps < 3
        ):
            raise ValueError(
                "only for dm_control's default steps of three substeps or more, and not for RK4"
            )
        self._between, self._option = n_sub_steps - 2, self.model.opt
        self._control, self._warnings = self.data.ctrl, physics.data.warning.number
        if self.model.ntree == 1:
            # One body tree is one island: looking for islands costs 5 % and leads to the same
            # solution.
            self._option.disableflags |= ISLAND

    def advance(self, action: np.ndarray) -> None:
        model, data, option = self.model, self.data, self._option
        before = self._warnings.tolist()
        self._control[:] = action
        # dm_control's substeps are mj_step2, n - 1 times mj_step, mj_step1, where mj_step is
        # mj_step1, mj_step2. Nothing reads sensors in between: those of forces stay as the last
        # mj_step2 leaves them, those of positions and velocities as the last mj_step1 does.
        flags = option.disableflags
        option.disableflags = flags | SENSOR
        try:
            mj_step2(model, data)
            mj_step(model, data, self._between)
            mj_step1(model, data)
        finally:
            option.disableflags = flags
        mj_step2(model, data)
        mj_step1(model, data)
        if self._warnings.tolist() != before:
            self._report(before)

    def _report(self, before: list[int]) -> None:
        """A PhysicsError where dm_control has one, by its own rule: it compares the counts around a
        `with` block."""
        after = self._warnings.copy()
        self._warnings[:] = before
        with self.physics.check_invalid_state():
            self._warnings[:] = after


class SuiteEnvironment(control.Environment):
    """`fast_step` for tasks that end by their time limit alone; subclasses read the data."""

    def __init__(self, stock: control.Environment, *, time_limit: float, control_timestep: float):
        super().__init__(
            stock.physics, stock.task, time_limit=time_limit, control_timestep=control_timestep
        )
        self._stepper = Stepper(self._physics, self._n_sub_steps)
        self.own_task: int | None = None  # set: a step pays all tasks, of which this is ours
        self.paid: list[float] = []  # to each task, by the last step

    @abc.abstractmethod
    def _observe(self) -> np.ndarray: ...

    @abc.abstractmethod
    def _reward(self) -> float: ...

    @abc.abstractmethod
    def _rewards(self) -> list[float]:
        """What each task of the domain would pay here, in the order of envs.DOMAINS: its tasks have
        one model and differ in nothing but their reward."""

    def fast_reset(self) -> np.ndarray:
        self.reset()
        return self._observe()

    def fast_step(self, action: np.ndarray) -> tuple[np.ndarray, float, float, bool]:
        """Observation, reward, discount, whether the episode ends: the fields of an `Outcome`."""
        self._stepper.advance(action)
        self._step_count += 1
        self._reset_next_step = last = self._step_count >= self._step_limit
        if self.own_task is None:
            return self._observe(), self._reward(), 1.0, last
        self.paid = self._rewards()
        return self._observe(), self.paid[self.own_task], 1.0, last

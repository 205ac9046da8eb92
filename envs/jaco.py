"""URLB's jaco: dm_control's reach task with the brick put at one of four places."""

import copy
import math
from typing import NamedTuple

import numpy as np
from dm_control import composer, mjcf
from dm_control.entities import props
from dm_control.manipulation import reach
from dm_control.manipulation.shared import arenas, constants, observations, robots, workspaces

from envs.fast import Joined, Stepper, gaussian, sensors, span

TIME_LIMIT = 10.0  # seconds: 250 steps
BRICK_Z = 0.001  # just above the table, before it settles
BRICK_XY = {
    "reach_top_left": (-0.09, 0.09),
    "reach_top_right": (0.09, 0.09),
    "reach_bottom_left": (-0.09, -0.09),
    "reach_bottom_right": (0.09, -0.09),
}
# Where the hand may start, as in dm_control's own brick-reaching task.
HAND_BOX = workspaces.BoundingBox(lower=(-0.1, -0.1, 0.2), upper=(0.1, 0.1, 0.4))
TARGET_RADIUS = 0.05  # Reach's: full reward within, a tenth at twice the distance
RESET_ATTEMPTS = 10  # a start pose that cannot be reached is drawn again instead of ending the run
BRICK_SENSORS = ("angular_velocity", "linear_velocity", "orientation", "position")


class Workspace(NamedTuple):
    """The fields that Reach reads."""

    target_bbox: workspaces.BoundingBox
    tcp_bbox: workspaces.BoundingBox
    arm_offset: tuple


class Task(reach.Reach):
    """The target is the brick: free to move, and followed by the reward when it is pushed."""

    def __init__(self, task: str):
        settings = observations.PERFECT_FEATURES
        place = (*BRICK_XY[task], BRICK_Z)
        observed = observations.make_options(settings, observations.FREEPROP_OBSERVABLES)
        self.brick = props.Duplo(observable_options=observed)
        super().__init__(
            arena=arenas.Standard(),
            arm=robots.make_arm(obs_settings=settings),
            hand=robots.make_hand(obs_settings=settings),
            prop=self.brick,
            obs_settings=settings,
            workspace=Workspace(
                workspaces.BoundingBox(lower=place, upper=place), HAND_BOX, robots.ARM_OFFSET
            ),
            control_timestep=constants.CONTROL_TIMESTEP,
        )


class Views:
    """What the observation and the reward are made of, in one compiled physics."""

    def __init__(self, physics: mjcf.Physics, task: Task):
        model, data = physics.model.ptr, physics.data.ptr
        (arm_q, arm_v, arm), (hand_q, hand_v, _) = (
            self._joints(model, part.joints) for part in (task.arm, task.hand)
        )
        pinch = model.site(task.hand.pinch_site.full_identifier).id
        brick = task.brick.mjcf_model
        self._angles = data.qpos[arm_q]
        self._turns = np.empty((len(arm), 2))
        self._torques = data.sensordata[
            sensors(model, [sensor.full_identifier for sensor in task.arm.joint_torque_sensors])
        ].reshape(-1, 3)
        self._axes, self._scaled = model.jnt_axis[arm], np.empty(len(arm))
        self._hand, self._brick = data.site_xpos[pinch], data.body(brick.full_identifier).xpos
        self._joined = Joined(
            self._turns,
            self._scaled,
            data.qvel[arm_v],
            data.qpos[hand_q],
            data.qvel[hand_v],
            self._hand,
            data.site_xmat[pinch],
            *(
                data.sensordata[sensors(model, [brick.find("sensor", name).full_identifier])]
                for name in BRICK_SENSORS
            ),
        )

    @staticmethod
    def _joints(model, joints) -> tuple[slice, slice, np.ndarray]:
        """Of hinges in a row: positions, velocities, indices."""
        ids = np.array([model.joint(joint.full_identifier).id for joint in joints])
        return span(model.jnt_qposadr[ids]), span(model.jnt_dofadr[ids]), ids

    def observe(self) -> np.ndarray:
        np.sin(self._angles, out=self._turns[:, 0])
        np.cos(self._angles, out=self._turns[:, 1])
        torque = np.einsum("ij,ij->i", self._torques, self._axes)
        np.multiply(np.sign(torque), np.log1p(np.abs(torque)), out=self._scaled)
        return self._joined.update()

    def reward(self) -> float:
        gap = self._hand - self._brick
        return gaussian(math.sqrt(gap.dot(gap)), 0.0, TARGET_RADIUS, TARGET_RADIUS)


class Environment(composer.Environment):
    """Adds `fast_reset` and `fast_step` (see envs/fast.py) and compiles a model once.

    One engine call per step is enough: nothing in this task has a hook between substeps, and every
    observable is a buffer of one that is filled after the last of them.
    """

    _physics: mjcf.Physics
    _compiled: tuple | None = None  # size of the brick's studs, model

    def _recompile_physics(self) -> None:
        """dm_control compiles the MJCF at every reset, most of its time. The one thing that a reset
        changes in it is the radius of the brick's studs, always to the same value: a new physics of
        the compiled model is the same.
        """
        stud = tuple(self._task.brick.mjcf_model.default.find("default", "stud").geom.size)
        if self._compiled is None or self._compiled[0] != stud:
            super()._recompile_physics()
            self._compiled = stud, copy.copy(self._physics.model)
        else:
            self._physics.free()
            self._physics = mjcf.Physics.from_model(copy.copy(self._compiled[1]))
            self._physics.legacy_step = self._legacy_step

    def fast_reset(self) -> np.ndarray:
        self.reset()
        self._stepper = Stepper(self._physics, self._n_sub_steps)
        self._views = Views(self._physics, self._task)
        return self._views.observe()

    def fast_step(self, action: np.ndarray) -> tuple[np.ndarray, float, float, bool]:
        self._stepper.advance(action)
        self._reset_next_step = last = self._stepper.data.time >= self._time_limit
        return self._views.observe(), self._views.reward(), 1.0, last


def stock(task: str, seed: int) -> composer.Environment:
    """The task with dm_control's own steps, with which tests compare the fast ones."""
    return composer.Environment(
        Task(task), time_limit=TIME_LIMIT, random_state=seed, max_reset_attempts=RESET_ATTEMPTS
    )


def make(task: str, seed: int) -> Environment:
    return Environment(
        Task(task), time_limit=TIME_LIMIT, random_state=seed, max_reset_attempts=RESET_ATTEMPTS
    )

"""URLB's quadruped: walk and run are the suite's own tasks; stand and jump are added here."""

import mujoco
import numpy as np
from dm_control import suite
from dm_control.rl import control
from dm_control.suite import common, quadruped
from dm_control.utils import rewards

from envs import DOMAINS
from envs.fast import Joined, SuiteEnvironment, linear, sensors

TASKS = DOMAINS["quadruped"]
TIME_LIMIT = 20.0  # seconds: 1000 steps
CONTROL_TIMESTEP = 0.02
FLOOR_SIZE = 10.0  # half-size in metres, as in the suite's walk
JUMP_HEIGHT = 1.0  # of the centre of mass, metres
BOUNDS = {"walk": 0.5, "run": 5.0, "jump": JUMP_HEIGHT}  # from where on the reward is full
LEGS = ("front_left", "front_right", "back_right", "back_left")  # in the model's order
RISE, ATTEMPTS = 0.01, 10_000  # a start is lifted by a centimetre until nothing touches


def upright(physics: quadruped.Physics) -> float:
    """(1 + cosine of the torso's tilt) / 2."""
    return rewards.tolerance(
        physics.torso_upright(),
        bounds=(1, float("inf")),
        margin=2,
        value_at_margin=0,
        sigmoid="linear",
    )


class Stand(quadruped.Move):
    """Reward: how upright. (Move with speed 0 would be a step function of the velocity instead.)"""

    def __init__(self, random):
        super().__init__(desired_speed=0, random=random)  # the speed is not used

    def get_reward(self, physics: quadruped.Physics) -> float:
        return upright(physics)


class Jump(Stand):
    """Reward: how upright, times 1/2 + z/2 for a centre of mass at z below 1 m, 1 above."""

    def get_reward(self, physics: quadruped.Physics) -> float:
        height = physics.named.data.sensordata["center_of_mass"][2]
        high = rewards.tolerance(
            height,
            bounds=(JUMP_HEIGHT, float("inf")),
            margin=JUMP_HEIGHT,
            value_at_margin=0.5,
            sigmoid="linear",
        )
        return upright(physics) * high


class Environment(SuiteEnvironment):
    def __init__(self, stock: control.Environment, task: str):
        super().__init__(stock, time_limit=TIME_LIMIT, control_timestep=CONTROL_TIMESTEP)
        model, data = self._stepper.model, self._stepper.data
        readings, torso = data.sensordata, model.body("torso").id
        self._rotation = data.xmat[torso]
        self._forces = readings[
            sensors(model, [f"{kind}_toe_{leg}" for kind in ("force", "torque") for leg in LEGS])
        ]
        self._scaled = np.empty(self._forces.shape)
        velocity = readings[sensors(model, ["velocimeter"])]
        # The root is a free joint, 7 positions and 6 velocities; all others are hinges.
        self._joined = Joined(
            data.qpos[7:],
            data.qvel[6:],
            data.act,
            velocity,
            self._rotation[8:],
            readings[sensors(model, ["imu_accel", "imu_gyro"])],
            self._scaled,
        )
        height = readings[sensors(model, ["center_of_mass"])][2:]
        # Of the moving tasks, in the order of TASKS: what moves, and where the reward is full.
        self._moves = [
            (velocity, BOUNDS["walk"]),
            (velocity, BOUNDS["run"]),
            (height, BOUNDS["jump"]),
        ]
        self._move = None if task == "stand" else self._moves[TASKS.index(task) - 1]

    def _observe(self) -> np.ndarray:
        np.arcsinh(self._forces, out=self._scaled)
        return self._joined.update()

    def _reward(self) -> float:
        upright = self._upright()
        if self._move is None:
            return upright
        moving, bound = self._move
        return upright * linear(moving.item(0), bound, bound, 0.5)

    def _rewards(self) -> list[float]:
        upright = self._upright()
        return [upright] + [
            upright * linear(moving.item(0), bound, bound, 0.5) for moving, bound in self._moves
        ]

    def _upright(self) -> float:
        return linear(self._rotation.item(8), 1.0, 2.0, 0.0)

    def fast_reset(self) -> np.ndarray:
        """The suite's start: a random orientation at the lowest height, by centimetres, where
        nothing touches.

        The suite does a whole reset at every height; whether something touches depends on the
        positions alone.
        """
        physics, model, data = self._physics, self._stepper.model, self._stepper.data
        orientation = self._task.random.randn(4)
        orientation /= np.linalg.norm(orientation)
        mujoco.mj_resetData(model, data)
        root, height = data.qpos[:7], 0.0
        root[3:] = orientation
        for _ in range(ATTEMPTS):
            root[2] = height
            mujoco.mj_fwdPosition(model, data)
            if data.ncon == 0:
                break
            height += RISE
        else:
            raise RuntimeError("no start without contacts found")
        with physics.reset_context():
            root[:3], root[3:] = (0, 0, height), orientation
        physics.after_reset()  # twice: the suite resets within the environment's own reset
        self._reset_next_step, self._step_count = False, 0
        return self._observe()


def stock(task: str, seed: int) -> control.Environment:
    """The task with dm_control's own steps, with which tests compare the fast ones."""
    added = {"stand": Stand, "jump": Jump}
    if task not in added:
        return suite.load("quadruped", task, task_kwargs={"random": seed})
    physics = quadruped.Physics.from_xml_string(
        quadruped.make_model(floor_size=FLOOR_SIZE), common.ASSETS
    )
    return control.Environment(
        physics, added[task](random=seed), time_limit=TIME_LIMIT, control_timestep=CONTROL_TIMESTEP
    )


def make(task: str, seed: int) -> Environment:
    return Environment(stock(task, seed), task)

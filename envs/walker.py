"""URLB's walker: stand, walk and run are the suite's own tasks; flip is added here."""

import numpy as np
from dm_control import suite
from dm_control.rl import control
from dm_control.suite import walker
from dm_control.utils import rewards

from envs import DOMAINS
from envs.fast import Joined, SuiteEnvironment, gaussian, linear

TASKS = DOMAINS["walker"]
TIME_LIMIT = 25.0  # seconds: 1000 steps
CONTROL_TIMESTEP = 0.025
STAND_HEIGHT = 1.2  # of the torso, metres
FLIP_MOMENTUM = 5.0  # URLB calls it a speed; the quantity is an angular momentum, kg m^2 / s
# How the reward of a moving task rises with its speed or momentum, as `linear` takes it: bound,
# margin, value at the margin.
MOVES = {
    "walk": (1.0, 0.5, 0.5),
    "run": (8.0, 4.0, 0.5),
    "flip": (FLIP_MOMENTUM, FLIP_MOMENTUM, 0.0),
}


class Physics(walker.Physics):
    def angular_momentum(self) -> float:
        """Of the whole body about its centre of mass, y axis: positive is a forward flip.

        Up to date after a step: the model's subtree velocity sensor makes the engine compute it.
        """
        return self.named.data.subtree_angmom["torso", "y"]


class Flip(walker.PlanarWalker):
    """Standing reward times (5 m + 1) / 6, where m = clip(L / 5, 0, 1) and L is the angular
    momentum."""

    def __init__(self, random):
        # with a speed of 0 the parent's reward is the one for standing
        super().__init__(move_speed=0, random=random)

    def get_reward(self, physics: Physics) -> float:
        spin = rewards.tolerance(
            physics.angular_momentum(),
            bounds=(FLIP_MOMENTUM, float("inf")),
            margin=FLIP_MOMENTUM,
            value_at_margin=0,
            sigmoid="linear",
        )
        return super().get_reward(physics) * (5 * spin + 1) / 6


class Environment(SuiteEnvironment):
    def __init__(self, stock: control.Environment, task: str):
        super().__init__(stock, time_limit=TIME_LIMIT, control_timestep=CONTROL_TIMESTEP)
        model, data = self._stepper.model, self._stepper.data
        torso = model.body("torso").id
        orientations = data.xmat[1:, 0:3:2]  # (7, 2): xx and xz of each body
        self._position, self._rotation = data.xpos[torso], data.xmat[torso]
        self._joined = Joined(orientations, self._position[2:], data.qvel)
        speed = data.sensordata[model.sensor("torso_subtreelinvel").adr[0] :]
        spin = data.subtree_angmom[torso, 1:]
        # Of the moving tasks, in the order of TASKS: what moves, and how the reward rises with it.
        self._moves = [(speed, *MOVES["walk"]), (speed, *MOVES["run"]), (spin, *MOVES["flip"])]
        self._move = None if task == "stand" else self._moves[TASKS.index(task) - 1]

    def _observe(self) -> np.ndarray:
        return self._joined.update()

    def _reward(self) -> float:
        posture = self._posture()
        if self._move is None:
            return posture
        moving, *rise = self._move
        return posture * (5 * linear(moving.item(0), *rise) + 1) / 6

    def _rewards(self) -> list[float]:
        posture = self._posture()
        return [posture] + [
            posture * (5 * linear(moving.item(0), bound, margin, at_margin) + 1) / 6
            for moving, bound, margin, at_margin in self._moves
        ]

    def _posture(self) -> float:
        standing = gaussian(self._position.item(2), STAND_HEIGHT, float("inf"), STAND_HEIGHT / 2)
        upright = (1 + self._rotation.item(8)) / 2
        return (3 * standing + upright) / 4


def stock(task: str, seed: int) -> control.Environment:
    """The task with dm_control's own steps, with which tests compare the fast ones."""
    if task != "flip":
        return suite.load("walker", task, task_kwargs={"random": seed})
    physics = Physics.from_xml_string(*walker.get_model_and_assets())
    flip = Flip(random=seed)
    return control.Environment(
        physics, flip, time_limit=TIME_LIMIT, control_timestep=CONTROL_TIMESTEP
    )


def make(task: str, seed: int) -> Environment:
    return Environment(stock(task, seed), task)

"""URLB's quadruped: walk and run are the suite's own tasks; stand and jump are added here."""

from dm_control import suite
from dm_control.rl import control
from dm_control.suite import common, quadruped
from dm_control.utils import rewards

TIME_LIMIT = 20.0  # seconds: 1000 steps
CONTROL_TIMESTEP = 0.02
FLOOR_SIZE = 10.0  # half-size in metres, as in the suite's walk
JUMP_HEIGHT = 1.0  # of the centre of mass, metres


def upright(physics: quadruped.Physics) -> float:
    """(1 + cosine of the torso's tilt) / 2."""
    return rewards.tolerance(physics.torso_upright(), bounds=(1, float("inf")), margin=2, value_at_margin=0,
                             sigmoid="linear")


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
        high = rewards.tolerance(height, bounds=(JUMP_HEIGHT, float("inf")), margin=JUMP_HEIGHT,
                                 value_at_margin=0.5, sigmoid="linear")
        return upright(physics) * high


def make(task: str, seed: int) -> control.Environment:
    added = {"stand": Stand, "jump": Jump}
    if task not in added:
        return suite.load("quadruped", task, task_kwargs={"random": seed})
    physics = quadruped.Physics.from_xml_string(quadruped.make_model(floor_size=FLOOR_SIZE), common.ASSETS)
    return control.Environment(physics, added[task](random=seed), time_limit=TIME_LIMIT,
                               control_timestep=CONTROL_TIMESTEP)

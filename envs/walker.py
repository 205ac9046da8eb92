"""URLB's walker: stand, walk and run are the suite's own tasks; flip is added here."""

from dm_control import suite
from dm_control.rl import control
from dm_control.suite import walker
from dm_control.utils import rewards

TIME_LIMIT = 25.0  # seconds: 1000 steps
CONTROL_TIMESTEP = 0.025
FLIP_MOMENTUM = 5.0  # URLB calls it a speed; the quantity is an angular momentum, kg m^2 / s


class Physics(walker.Physics):
    def angular_momentum(self) -> float:
        """Of the whole body about its centre of mass, y axis: positive is a forward flip.

        Up to date after a step: the model's subtree velocity sensor makes the engine compute it.
        """
        return self.named.data.subtree_angmom["torso", "y"]


class Flip(walker.PlanarWalker):
    """Standing reward times (5 m + 1) / 6, where m = clip(L / 5, 0, 1) and L is the angular momentum."""

    def __init__(self, random):
        super().__init__(move_speed=0, random=random)  # speed 0: the parent's reward is the standing one

    def get_reward(self, physics: Physics) -> float:
        spin = rewards.tolerance(physics.angular_momentum(), bounds=(FLIP_MOMENTUM, float("inf")),
                                 margin=FLIP_MOMENTUM, value_at_margin=0, sigmoid="linear")
        return super().get_reward(physics) * (5 * spin + 1) / 6


def make(task: str, seed: int) -> control.Environment:
    if task != "flip":
        return suite.load("walker", task, task_kwargs={"random": seed})
    physics = Physics.from_xml_string(*walker.get_model_and_assets())
    flip = Flip(random=seed)
    return control.Environment(physics, flip, time_limit=TIME_LIMIT, control_timestep=CONTROL_TIMESTEP)

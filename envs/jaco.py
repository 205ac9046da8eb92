"""URLB's jaco: dm_control's reach task with the brick put at one of four places."""

from typing import NamedTuple

from dm_control import composer
from dm_control.entities import props
from dm_control.manipulation import reach
from dm_control.manipulation.shared import arenas, constants, observations, robots, workspaces

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


class Workspace(NamedTuple):
    """The fields that Reach reads."""

    target_bbox: workspaces.BoundingBox
    tcp_bbox: workspaces.BoundingBox
    arm_offset: tuple


def make(task: str, seed: int) -> composer.Environment:
    """The target is the brick: free to move, and followed by the reward when it is pushed."""
    settings = observations.PERFECT_FEATURES
    place = (*BRICK_XY[task], BRICK_Z)
    observed = observations.make_options(settings, observations.FREEPROP_OBSERVABLES)
    reach_task = reach.Reach(
        arena=arenas.Standard(),
        arm=robots.make_arm(obs_settings=settings),
        hand=robots.make_hand(obs_settings=settings),
        prop=props.Duplo(observable_options=observed),
        obs_settings=settings,
        workspace=Workspace(workspaces.BoundingBox(lower=place, upper=place), HAND_BOX, robots.ARM_OFFSET),
        control_timestep=constants.CONTROL_TIMESTEP,
    )
    # A start pose that cannot be reached is drawn again instead of ending the run.
    return composer.Environment(reach_task, time_limit=TIME_LIMIT, random_state=seed, max_reset_attempts=10)

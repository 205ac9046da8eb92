"""Quantities of each domain by name, and environments whose reward is an expression over them."""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

import numpy as np

from envs import TASKS
from envs.expression import Expression
from envs.maze.core import MazeBatch
from envs.maze.env import IDS, MazeEnv
from utils import UserError

# What an expression may name, and what it is. docs/prompt.md shows the same.
QUANTITIES: dict[str, dict[str, str]] = {
    "walker": {
        "height": "of the torso above the ground, metres (1.3 standing)",
        "speed": "forward, metres per second",
        "upright": "1 upright, 0 lying, -1 upside down",
        "spin": "angular momentum, positive for a forward flip",
        "x": "metres from the start",
    },
    "quadruped": {
        "height": "of the centre of mass, metres",
        "speed": "forward, in the torso's own direction, metres per second",
        "upright": "1 upright, -1 upside down",
        "x": "of the torso, metres",
        "y": "of the torso, metres",
    },
    "jaco": {
        "hand_x": "of the hand, metres",
        "hand_y": "of the hand, metres",
        "hand_z": "of the hand, metres",
        "gap": "between hand and brick, metres",
    },
    "maze": {"x": "to the right, cells", "y": "upwards, cells"},
}
MAZE = re.compile(r"gymnasium:envs\.maze:amped/(\w+)-v0")


def kind_of(env_name: str) -> str:
    """The key of QUANTITIES for an environment by its name."""
    if env_name in TASKS:
        return TASKS[env_name]
    if MAZE.fullmatch(env_name):
        return "maze"
    raise UserError(
        f"{env_name} has no named quantities; expressions are for {', '.join(QUANTITIES)}"
    )


def expression(text: str, kind: str) -> Expression:
    """For a kind of QUANTITIES; mazes also have distance(x0, y0)."""

    def distance(values: Any, x0: float, y0: float) -> Any:
        return np.hypot(values["x"] - x0, values["y"] - y0)

    more = {"distance": (2, distance)} if kind == "maze" else {}
    return Expression(text, QUANTITIES[kind], more)


def quantities(kind: str, native: Any) -> dict[str, Any]:
    """Their values now. A maze gives arrays, an entry per episode side by side."""
    if kind == "maze":
        x, y = native.batch.position.T
        return {"x": x, "y": y}
    if kind == "jaco":
        return _of_jaco(native)
    data = native.physics.named.data
    if kind == "walker":
        return {
            "height": float(data.xpos["torso", "z"]),
            "speed": float(data.sensordata["torso_subtreelinvel"][0]),
            "upright": float(data.xmat["torso", "zz"]),
            "spin": float(data.subtree_angmom["torso", "y"]),
            "x": float(data.xpos["torso", "x"]),
        }
    return {
        "height": float(data.sensordata["center_of_mass"][2]),
        "speed": float(data.sensordata["velocimeter"][0]),
        "upright": float(data.xmat["torso", "zz"]),
        "x": float(data.xpos["torso", "x"]),
        "y": float(data.xpos["torso", "y"]),
    }


def _of_jaco(native: Any) -> dict[str, float]:
    task, model, data = native.task, native.physics.model.ptr, native.physics.data.ptr
    hand = data.site_xpos[model.site(task.hand.pinch_site.full_identifier).id]
    brick = data.body(task.brick.mjcf_model.full_identifier).xpos
    named = dict(zip(("hand_x", "hand_y", "hand_z"), map(float, hand), strict=True))
    return {**named, "gap": float(np.linalg.norm(hand - brick))}


def finite(value: Any, text: str) -> Any:
    if not np.isfinite(value).all():
        raise UserError(f"the expression {text} became {value}; bound it by clip or min")
    return value


class PromptedBatch(MazeBatch):
    """A maze that pays what the expression says."""

    def __init__(self, maze: str, text: str):
        super().__init__(maze)
        self.text, self.pays = text, expression(text, "maze")

    def score(self) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.position.T
        reward = np.broadcast_to(finite(self.pays({"x": x, "y": y}), self.text), x.shape)
        return reward.astype(np.float32), np.zeros(len(x), bool)


def prompted(env_name: str, text: str, seed: int) -> Any:
    """The environment with the expression as its reward: dm_env, or gymnasium for a maze. Written
    as a function of a task's yaml (`some.module:function`) it can be trained on."""
    kind = kind_of(env_name)
    if found := MAZE.fullmatch(env_name):
        env = MazeEnv(IDS[found[1]]["maze"], render_mode="rgb_array")
        env.batch = PromptedBatch(env.batch.maze, text)
        return env
    importlib.import_module("envs.dmc")  # before the domain's module: it settles MUJOCO_GL
    module = importlib.import_module(f"envs.{kind}")
    native = module.stock(env_name.removeprefix(f"{kind}_"), seed)
    pays = expression(text, kind)

    def get_reward(physics: Any) -> float:
        value = float(pays(quantities(kind, native)))
        if not math.isfinite(value):
            finite(value, text)
        return value

    native.task.get_reward = get_reward
    return native

"""From a config to the source of skills: in pre-training, and by each rule of `skills=` but the
learned ones (agent/skills/selector.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from agent.base import Objective, load_class
from agent.keys import keys_of
from agent.skills.sources import Constant, Fixed, SkillSource, SkillSpace, Switching
from agent.skills.trials import Bandit, ByData
from utils import UserError

SOURCES: dict[str, type[SkillSource]] = {
    "switching": Switching,
    "fixed": Fixed,
    "constant": Constant,
    "bandit": Bandit,
    "by_data": ByData,
}


def make_skills(
    config: dict[str, Any],
    space: SkillSpace,
    rng: np.random.Generator,
    pretrained: Callable[[], Objective] | None = None,
    data: tuple[np.ndarray, np.ndarray] | None = None,
) -> SkillSource:
    """Uniform switching in pre-training (Algorithm 2); in fine-tuning what the `skills=` yaml
    names.

    A native rule may be a class of the method's own (`_target_`), which gets a network of the
    pre-trained objective. `data` are the skills (T, dim) of older steps and what the task would
    have paid for them (T,).
    """
    if config["phase"] == "pretrain":
        return Switching(space, rng, interval=config.get("skill_interval", 0), eval="per_episode")
    native = config["agent"]["native_skills"]
    config = native if config["skills"]["name"] == "native" else config["skills"]
    if "_target_" in config:
        settings = {k: v for k, v in config.items() if k not in ("name", "_target_", "features")}
        assert pretrained is not None, "a source that learns from an objective needs one"
        features = getattr(pretrained(), config["features"])
        source = load_class("agent.native_skills._target_", config["_target_"], SkillSource)
        return source(space, rng, features=features, **settings)
    name = config["name"]
    if (name == "none") != (space.dim == 0):
        raise UserError(
            f"skills={name} does not fit an agent with {space.dim} skills; "
            f"use skills={'none' if space.dim == 0 else 'switching or skills=fixed'}"
        )
    if name == "none":
        return SkillSource(space, np.zeros(0, np.float32))
    kind: type = SOURCES[name]
    given = {}
    if "data" in keys_of(kind):
        if data is None:
            raise UserError(
                f"skills={name} looks at the data of the pre-training; give data=relabelled "
                "(after a pre-training with save_replay=true), or another rule"
            )
        given["data"] = data
    settings = {key: config[key] for key in keys_of(kind) if key in config}
    return kind(space, rng, **settings, **given)

"""The trained policy inside a snapshot: load_policy(PATH).act(obs, skill)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from agent.learners.policies import POLICIES
from agent.parts.networks import Actor
from utils import fitting, load_snapshot


class Policy:
    """A trained actor: `load_policy(path).act(obs, skill)` gives the deterministic action."""

    def __init__(self, actor: torch.nn.Module, spec: dict[str, int], frame: int, *, one_hot: bool):
        self.actor, self.frame, self.one_hot = actor.eval(), frame, one_hot
        self.obs_dim, self.action_dim, self.skill_dim = (
            spec[k] for k in ("obs_dim", "action_dim", "skill_dim")
        )

    @torch.no_grad()
    def act(self, obs: np.ndarray, skill: int | np.ndarray | None = None) -> np.ndarray:
        """Obs (obs_dim,) or (N, obs_dim); skill an index, a vector of skill_dim, or None for
        skill-free agents."""
        x = torch.as_tensor(np.asarray(obs, np.float32))
        if x.ndim not in (1, 2) or x.shape[-1] != self.obs_dim:
            raise ValueError(f"obs has shape {tuple(x.shape)}; expected (..., {self.obs_dim})")
        if self.skill_dim:
            z = torch.as_tensor(self._vector(skill)).expand(*x.shape[:-1], self.skill_dim)
            x = torch.cat([x, z], -1)
        return self.actor(x).numpy()

    def _vector(self, skill: int | np.ndarray | None) -> np.ndarray:
        """A skill as a vector; an index stands for a one-hot one."""
        if skill is not None and np.ndim(skill) > 0:
            return np.asarray(skill, np.float32)
        if skill is None or not (self.one_hot and 0 <= skill < self.skill_dim):
            counted = f"an index below {self.skill_dim} or " if self.one_hot else ""
            raise ValueError(
                f"this policy needs a skill: {counted}a vector of {self.skill_dim}; got {skill}"
            )
        return np.eye(self.skill_dim, dtype=np.float32)[skill]


def load_policy(path: str | Path) -> Policy:
    """The policy inside a snapshot, on the CPU, without building an environment or a run."""
    payload = load_snapshot(path)
    spec, learner = payload["spec"], payload["config"]["learner"]
    sizes = {"hidden_dim": learner["hidden_dim"], "layers": learner["layers"]}
    kind: Callable[..., torch.nn.Module] = Actor
    prefix = "actor."
    if learner["name"] == "ppo":
        kind, prefix = POLICIES[learner["policy"]], "policy."
        sizes["normalize"] = learner["normalize_inputs"]
    actor = kind(spec["obs_dim"] + spec["skill_dim"], spec["action_dim"], **sizes)
    state = payload["learner"].items()
    with fitting(path):
        actor.load_state_dict(
            {name.removeprefix(prefix): v for name, v in state if name.startswith(prefix)}
        )
    return Policy(
        actor,
        spec,
        payload["frame"],
        one_hot=payload["config"]["agent"]["skill_space"] == "one_hot",
    )

"""The nouns: Objective (what to want), Learner (acts and learns) and Trainable (state that travels
whole), which both are."""

from __future__ import annotations

import importlib
import importlib.util
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from agent.parts.optim import Adam, descend
from replay_buffer import Batch
from utils import UserError

__all__ = ["Adam", "Learner", "Metrics", "Objective", "RewardStreams", "TaskReward", "Trainable"]
__all__ += ["descend", "load_class"]

RewardStreams = dict[str, Tensor]  # stream name -> (B, 1), no gradient
Metrics = dict[str, Tensor]  # detached scalars; .item() happens in the logger only

# Names of classes in files of older runs, and where the classes are now.
MOVED = {"agent.cesd_learner.CeSDLearner": "agent.cesd.CeSDLearner"}


class Trainable(nn.Module):
    """A module that owns optimisers, which travel in its `state_dict` as extra state."""

    def __init__(self):
        super().__init__()
        self.optimizers: dict[str, Adam] = {}

    def adam(
        self, name: str, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-8
    ) -> Adam:
        self.optimizers[name] = Adam(parameters, lr, eps)
        return self.optimizers[name]

    def get_extra_state(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


class Objective(Trainable):
    """What to want. Owns its networks and running statistics; knows no actor and no critic."""

    streams: tuple[str, ...]  # names of the rewards it returns, in a fixed order
    needs_skills: bool = False  # whether it is about skills, so that it has no sense without any
    batches_per_update: int = 1  # fresh batches per learner update; the last one serves the learner

    def __init__(self):
        super().__init__()
        self.generator: Any = None  # the Draws of an objective that draws random numbers
        # What a method's own learner extension may want to know of the last rewards.
        self.hints: dict[str, Tensor] = {}

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        """Learn its own networks; `final` marks the batch that will serve the learner."""
        return {}

    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        """The reward streams of a batch, and what is worth knowing of their parts."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it wants")

    @property
    def observes(self) -> bool:
        """Whether `observe` does anything."""
        return type(self).observe is not Objective.observe

    def observe(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        """Optional: transitions as they come, one or (N, obs_dim) of them, for objectives that keep
        recent states."""


class TaskReward(Objective):
    """Fine-tuning is the same learner with this objective."""

    streams = ("task",)

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {"task": batch.reward}, {}


class Learner(Trainable):
    """Acts and learns. `memory` is what it learns from: a replay (DDPG), or the rollouts of a cycle
    (PPO)."""

    @abstractmethod
    def act(
        self,
        obs: np.ndarray,
        skill: np.ndarray,
        step: int,
        *,
        explore: bool,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray: ...
    @abstractmethod
    def due(self, memory: Any, step: int) -> bool: ...
    @abstractmethod
    def learn(self, memory: Any, objective: Objective, step: int) -> Metrics: ...
    @abstractmethod
    def warm_start(
        self, state: Mapping[str, Tensor], optimizers: Mapping[str, Any] | None = None
    ) -> None: ...


def _import_method(module: str) -> ModuleType:
    """The module, or the one of this name in agent/: a method's yaml names its class alike
    whether its file lies in a directory of the user's own or in agent/."""
    first = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:  # perhaps of something that the module imports
        if error.name != first or importlib.util.find_spec(f"agent.{first}") is None:
            raise
        return importlib.import_module(f"agent.{module}")


def load_class(key: str, name: str, kind: type) -> type:
    """The class that a yaml names, which must be one of `kind`."""
    module, _, last = MOVED.get(name, name).rpartition(".")
    try:
        found = getattr(_import_method(module), last)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{key}={name} cannot be loaded ({error}); give the full name of a subclass of "
            f"{kind.__module__}.{kind.__name__}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise UserError(
            f"{key}={name} is not valid; give the full name of a subclass of "
            f"{kind.__module__}.{kind.__name__}"
        )
    return found

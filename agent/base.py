"""The nouns: Objective (what to want) and Trainable (state that travels whole); Learner as a protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from replay_buffer import Batch

RewardStreams = dict[str, Tensor]  # stream name -> (B, 1), no gradient
Metrics = dict[str, Tensor]  # detached scalars; .item() happens in the logger only


class Trainable(nn.Module):
    """A module that owns optimisers, which travel in its `state_dict` as extra state."""

    def __init__(self):
        super().__init__()
        self.optimizers: dict[str, torch.optim.Optimizer] = {}

    def adam(self, name: str, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-8) -> torch.optim.Adam:
        parameters = list(parameters)
        fused = parameters[0].device.type != "meta"  # saves a fifth of a small update; meta has no fused step
        self.optimizers[name] = torch.optim.Adam(parameters, lr=lr, eps=eps, fused=fused)
        return self.optimizers[name]

    def get_extra_state(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


def descend(loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """One step on a loss."""
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


class Objective(Trainable):
    """What to want. Owns its networks and running statistics; knows no actor and no critic."""

    streams: tuple[str, ...]  # names of the rewards it returns, in a fixed order
    batches_per_update: int = 1  # fresh batches per learner update; the last one serves the learner

    def __init__(self):
        super().__init__()
        self.generator: torch.Generator | None = None  # set by objectives that draw random numbers
        self.hints: dict[str, Tensor] = {}  # what its own learner extension may want to know of the last rewards

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        """Learn its own networks; `final` marks the batch that will serve the learner."""
        return {}

    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        """The reward streams of a batch, and what is worth knowing of their parts."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it wants")

    def observe(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        """Optional: transitions as they come, for objectives that keep recent states."""


class TaskReward(Objective):
    """Fine-tuning is the same learner with this objective."""

    streams = ("task",)

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {"task": batch.reward}, {}


class Learner(Protocol):
    def act(self, obs: np.ndarray, skill: np.ndarray, step: int, *, explore: bool) -> np.ndarray: ...
    def due(self, memory: Any, step: int) -> bool: ...
    def learn(self, memory: Any, objective: Objective, step: int) -> Metrics: ...
    def warm_start(self, state: Mapping[str, Tensor]) -> None: ...

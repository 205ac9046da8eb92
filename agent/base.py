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


class FlatAdam:
    """torch's Adam on all parameters as one vector, whose parts they become: it costs what the numbers cost, however
    many tensors they are."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float):
        self.parameters = list(parameters)
        self.vector = nn.Parameter(torch.empty(0, device=self.parameters[0].device))
        self._join()
        self.adam = torch.optim.Adam([self.vector], lr=lr, eps=eps, fused=self.vector.device.type != "meta")

    @torch.no_grad()
    def _join(self) -> None:
        """Again after a move to another device, which gives each parameter a place of its own."""
        if self.vector.data_ptr() != self.parameters[0].data_ptr() or not len(self.vector):
            self.vector.data = torch.cat([p.flatten() for p in self.parameters])
            parts = self.vector.split([p.numel() for p in self.parameters])
            for p, part in zip(self.parameters, parts, strict=True):
                p.data = part.view_as(p)

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self, grad: Tensor | None = None) -> None:
        """Along the parameters' own gradients (zero where none arrived), or along one given as a vector."""
        self._join()
        if grad is None:
            grad = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.parameters])
        self.vector.grad = grad
        self.adam.step()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.adam.param_groups

    @property
    def state(self) -> dict:
        return self.adam.state

    def state_dict(self) -> dict[str, Any]:
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._join()  # moments are loaded to where the parameters are
        self.adam.load_state_dict(state)


class Trainable(nn.Module):
    """A module that owns optimisers, which travel in its `state_dict` as extra state."""

    def __init__(self):
        super().__init__()
        self.optimizers: dict[str, FlatAdam] = {}

    def adam(self, name: str, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-8) -> FlatAdam:
        self.optimizers[name] = FlatAdam(parameters, lr, eps)
        return self.optimizers[name]

    def get_extra_state(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


def descend(loss: Tensor, *optimizers: FlatAdam) -> None:
    """One step on a loss."""
    for optimizer in optimizers:
        optimizer.zero_grad()
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
        """Optional: transitions as they come, one or (N, obs_dim) of them, for objectives that keep recent states."""


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

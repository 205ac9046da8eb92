"""The nouns: Objective (what to want) and Trainable (state that travels whole); Learner as a
protocol."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from replay_buffer import Batch
from utils import UserError

RewardStreams = dict[str, Tensor]  # stream name -> (B, 1), no gradient
Metrics = dict[str, Tensor]  # detached scalars; .item() happens in the logger only

MOVED = {
    "agent.cesd_learner.CeSDLearner": "agent.cesd.CeSDLearner"
}  # names in files of older runs -> names now


class FlatVector:
    """Parameters as the parts of one vector, however many tensors they are."""

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.parameters = list(parameters)
        self.shapes, self.sizes = (
            [p.shape for p in self.parameters],
            [p.numel() for p in self.parameters],
        )
        self.vector = nn.Parameter(
            torch.empty(0, device=self.parameters[0].device), requires_grad=False
        )
        self.blanks: dict[str, tuple[Tensor, list[Tensor]]] = {}
        self.join()

    @torch.no_grad()
    def join(self) -> Tensor:
        """The vector; made again after a move to another device, which gives each parameter a place
        of its own."""
        if torch.compiler.is_compiling():  # what is traced has been joined before
            return self.vector
        if self.vector.data_ptr() != self.parameters[0].data_ptr() or not len(self.vector):
            self.vector.data = torch.cat([p.flatten() for p in self.parameters])
            for p, part in zip(self.parameters, self.views(self.vector.data), strict=True):
                p.data = part
            self.blanks = {}
        return self.vector

    def views(self, vector: Tensor) -> list[Tensor]:
        """The parts of a vector like this one, each in its parameter's shape."""
        return [
            part.view(shape)
            for part, shape in zip(vector.split(self.sizes), self.shapes, strict=True)
        ]

    def blank(self, name: str) -> tuple[Tensor, list[Tensor]]:
        """A vector like this one to write a gradient into, and its parts; the same one whenever the
        name is."""
        self.join()
        if name not in self.blanks:
            vector = torch.empty_like(self.vector.data)
            self.blanks[name] = vector, self.views(vector)
        return self.blanks[name]


class FlatAdam(FlatVector):
    """torch's Adam on all parameters as one vector."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, eps: float):
        super().__init__(parameters)
        self.adam = torch.optim.Adam(
            [self.vector], lr=lr, eps=eps, fused=self.vector.device.type != "meta"
        )
        # the parts of parameters and moments, and where those were when they were cut
        self.own: tuple = ()

    def prepare(self) -> list[Tensor]:
        """Its count of steps and its moments, as torch's own optimiser makes them at the first
        step."""
        self.join()
        state = self.adam.state[self.vector]
        if not state:
            state |= {
                "step": torch.zeros((), device=self.vector.device),
                "exp_avg": torch.zeros_like(self.vector.data),
                "exp_avg_sq": torch.zeros_like(self.vector.data),
            }
        return list(state.values())

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def step(self, grad: Tensor | Sequence[Tensor | None] | None = None) -> None:
        """Along one gradient given as a vector, or as a part for each parameter (zero where there
        is none); without it, along the parameters' own."""
        self.join()
        if grad is None:
            grad = [p.grad for p in self.parameters]
        if not isinstance(grad, Tensor):
            grad = [
                torch.zeros_like(p) if g is None else g
                for p, g in zip(self.parameters, grad, strict=True)
            ]
        if torch.compiler.is_compiling():
            self._step_written_out(grad)
        elif self.vector.device.type == "meta":  # which has no kernel
            self.vector.grad = (
                grad if isinstance(grad, Tensor) else torch.cat([g.flatten() for g in grad])
            )
            self.adam.step()
        else:
            self._step_by_kernel(grad)

    def _step_written_out(self, grad: Tensor | Sequence[Tensor]) -> None:
        """For torch.compile, which joins it with what comes before."""
        grad = grad if isinstance(grad, Tensor) else torch.cat([g.flatten() for g in grad])
        group, state = self.adam.param_groups[0], self.adam.state[self.vector]
        (beta1, beta2), step, mean, square = (
            group["betas"],
            state["step"],
            state["exp_avg"],
            state["exp_avg_sq"],
        )
        step.add_(1)
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        # A compiler works out anew for every weight what it can, powers too. Not so behind a scan,
        # here of one number.
        first, second = (
            torch.stack([1 - beta1**step, (1 - beta2**step).sqrt()])
            .unsqueeze(0)
            .cumsum(0)[0]
            .unbind()
        )
        spread = (square.sqrt() / second).add_(group["eps"])
        self.vector.sub_(group["lr"] / first * mean / spread)

    def _step_by_kernel(self, grad: Tensor | Sequence[Tensor]) -> None:
        """torch's own kernel called directly: small networks pay more for the optimiser's Python
        than for its numbers, and large ones for gradients copied into one vector."""
        group, state = self.adam.param_groups[0], self.adam.state[self.vector]
        self.prepare()
        state["step"] += 1
        vectors = self.vector.data, state["exp_avg"], state["exp_avg_sq"]
        if isinstance(grad, Tensor):
            self.vector.grad = grad
            grads, lists = [grad], [[vector] for vector in vectors]
        else:
            places = [vector.data_ptr() for vector in vectors]
            if not self.own or self.own[0] != places:
                self.own = places, [self.views(vector) for vector in vectors]
            grads, lists = [g.contiguous() for g in grad], self.own[1]
        beta1, beta2 = group["betas"]
        torch._fused_adam_(
            lists[0],
            grads,
            lists[1],
            lists[2],
            [],
            [state["step"]] * len(grads),
            lr=group["lr"],
            beta1=beta1,
            beta2=beta2,
            weight_decay=0.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.adam.param_groups

    @property
    def state(self) -> dict:
        return self.adam.state

    def state_dict(self) -> dict[str, Any]:
        return self.adam.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.join()  # moments are loaded to where the parameters are
        self.adam.load_state_dict(state)


class Trainable(nn.Module):
    """A module that owns optimisers, which travel in its `state_dict` as extra state."""

    def __init__(self):
        super().__init__()
        self.optimizers: dict[str, FlatAdam] = {}

    def adam(
        self, name: str, parameters: Iterable[nn.Parameter], lr: float, eps: float = 1e-8
    ) -> FlatAdam:
        self.optimizers[name] = FlatAdam(parameters, lr, eps)
        return self.optimizers[name]

    def get_extra_state(self) -> dict[str, Any]:
        return {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state[name])


def descend(loss: Tensor, *optimizers: FlatAdam) -> None:
    """One step on a loss."""
    grads = iter(
        torch.autograd.grad(loss, [p for o in optimizers for p in o.parameters], allow_unused=True)
    )
    for optimizer in optimizers:
        optimizer.step([next(grads) for _ in optimizer.parameters])


class Objective(Trainable):
    """What to want. Owns its networks and running statistics; knows no actor and no critic."""

    streams: tuple[str, ...]  # names of the rewards it returns, in a fixed order
    batches_per_update: int = 1  # fresh batches per learner update; the last one serves the learner

    def __init__(self):
        super().__init__()
        self.generator: torch.Generator | None = None  # set by objectives that draw random numbers
        self.hints: dict[
            str, Tensor
        ] = {}  # what its own learner extension may want to know of the last rewards

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        """Learn its own networks; `final` marks the batch that will serve the learner."""
        return {}

    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        """The reward streams of a batch, and what is worth knowing of their parts."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it wants")

    def observe(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        """Optional: transitions as they come, one or (N, obs_dim) of them, for objectives that keep
        recent states."""


class TaskReward(Objective):
    """Fine-tuning is the same learner with this objective."""

    streams = ("task",)

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        return {"task": batch.reward}, {}


class Learner(Protocol):
    """Acts and learns. `memory` is what it learns from: a replay (DDPG), or the rollouts of a cycle
    (PPO)."""

    optimizers: dict[str, FlatAdam]

    def act(
        self,
        obs: np.ndarray,
        skill: np.ndarray,
        step: int,
        *,
        explore: bool,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray: ...
    def due(self, memory: Any, step: int) -> bool: ...
    def learn(self, memory: Any, objective: Objective, step: int) -> Metrics: ...
    def warm_start(self, state: Mapping[str, Tensor]) -> None: ...


def load_class(key: str, name: str, kind: type) -> type:
    """The class that a yaml names, which must be one of `kind`."""
    module, _, last = MOVED.get(name, name).rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last)
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

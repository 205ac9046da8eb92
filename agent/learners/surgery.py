"""How the gradients of several reward streams become one. Pure functions of tensors, then the plain
sum and PCGrad; the resolvers of the literature are in resolvers.py."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from agent.base import Metrics
from agent.parts.draws import Draws
from utils import Share

EPS = 1e-12  # keeps a zero gradient from dividing by zero; the public code's value


def flat_grad(loss: Tensor, parameters: Sequence[nn.Parameter], *, retain_graph: bool) -> Tensor:
    """The gradient of a loss over all parameters as one vector; zeros where the loss does not
    reach."""
    grads = torch.autograd.grad(loss, parameters, retain_graph=retain_graph, allow_unused=True)
    return torch.cat(
        [
            torch.zeros_like(p).flatten() if g is None else g.flatten()
            for g, p in zip(grads, parameters, strict=True)
        ]
    )


def split_grad(flat: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """A flat gradient as one tensor for each parameter."""
    parts = flat.split([p.numel() for p in parameters])
    return [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def project(g: Tensor, onto: Tensor) -> Tensor:
    """Remove from g its component against `onto`; clamp makes it the identity where the two agree
    (Algorithm 1)."""
    return g - (g @ onto).clamp(max=0) / (onto @ onto + EPS) * onto


def similarity(a: Tensor, b: Tensor) -> Metrics:
    """The paper's two measures of one update: inner product ("gradient similarity") and its sign
    ("conflict")."""
    dot = a @ b
    cosine = dot / ((a @ a).sqrt() * (b @ b).sqrt() + EPS)
    return {"dot": dot, "cosine": cosine, "conflict": (dot < 0).float()}


def weighted(grads: dict[str, Tensor], weights: Tensor | None) -> dict[str, Tensor]:
    """Each gradient times the weight (K,) of its stream; untouched where there are no weights."""
    if weights is None:
        return grads
    return {
        name: g * weight for (name, g), weight in zip(grads.items(), weights.unbind(), strict=True)
    }


class Surgery(nn.Module, ABC):
    """Makes one gradient of several, given by the names of their streams. `weights` (K,) say how
    much each stream counts; None: all alike.

    A module, so that what one of them accumulates (FAMO) travels in the learner's state.
    """

    def __init__(self, *, generator: Draws | None = None, streams: tuple[str, ...] = ()):
        super().__init__()
        self.generator, self.streams = generator, streams

    @abstractmethod
    def forward(self, grads: dict[str, Tensor], weights: Tensor | None = None) -> Tensor: ...

    def twin(self) -> Surgery:
        """For a second place where gradients of the same streams meet: the same one, unless it has
        a state."""
        return self


class SumGradients(Surgery):
    """No surgery: the plain sum."""

    def forward(self, grads: dict[str, Tensor], weights: Tensor | None = None) -> Tensor:
        return functools.reduce(torch.add, weighted(grads, weights).values())


class ProjectConflict(Surgery):
    """PCGrad. With two streams and a probability p, Algorithm 1: project `first` with probability
    p, else the other.

    With p=None, or more than two streams, the PCGrad paper's rule: every gradient is projected in
    turn, in a random order, against the original gradients of all others, and the results are
    summed.
    """

    def __init__(
        self,
        *,
        p: Share | None,
        first: str | None,
        generator: Draws | None = None,
        streams: tuple[str, ...] = (),
    ):
        draws = generator or Draws(None)
        super().__init__(generator=draws, streams=streams)
        self.p, self.first, self.draws = p, first, draws

    def forward(self, grads: dict[str, Tensor], weights: Tensor | None = None) -> Tensor:
        grads = weighted(grads, weights)
        if self.p is not None and self.first is not None and len(grads) == 2:
            (other,) = (grad for name, grad in grads.items() if name != self.first)
            return self._one_of_two(grads[self.first], other, self.p)
        return self._all(list(grads.values()))

    def _one_of_two(self, g: Tensor, h: Tensor, p: float) -> Tensor:
        """Projects g with probability p, else h."""
        coin = self.draws.uniform() < p
        # project(g, h) + h or g + project(h, g), as weights of g and h: the long vectors are read
        # once.
        against, one = (g @ h).clamp(max=0), g.new_ones(())
        of_g = torch.where(coin, one, 1 - against / (g @ g + EPS))
        of_h = torch.where(coin, 1 - against / (h @ h + EPS), one)
        return (g * of_g).addcmul_(h, of_h)

    def _all(self, grads: list[Tensor]) -> Tensor:
        original = torch.stack(grads)  # (S, P)
        total = torch.zeros_like(original[0])
        for i, g in enumerate(grads):
            # The order stays a tensor, so that no update waits for the device; projecting on itself
            # is a no-op.
            order = self.draws.uniform(len(grads)).argsort()
            for j in order.split(1):
                g = project(g, original.index_select(0, j)[0].where(j != i, torch.zeros_like(g)))
            total = total + g
        return total

"""Random numbers of an update: drawn where they are wanted, or all of them before it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Draw(NamedTuple):
    """One draw that an update makes."""

    kind: str  # uniform | normal | integers
    shape: tuple[int, ...]
    high: int = 0  # of integers


class Draws:
    """What one consumer draws, from a generator of its own; None is torch's global one.

    A compiled or captured update is a function of tensors. What it draws is noted once (`noting`),
    drawn in the same order before every call (`draw`), and handed out inside it (`hand_out`).
    """

    def __init__(self, generator: torch.Generator | None, device: torch.device | str = "cpu"):
        self.generator, self.device = generator, torch.device(device)
        self.noted: list[Draw] | None = None
        self.given: list[Tensor] | None = None

    def uniform(self, *shape: int) -> Tensor:
        """In [0, 1)."""
        return self._next(Draw("uniform", shape))

    def normal(self, *shape: int) -> Tensor:
        return self._next(Draw("normal", shape))

    def integers(self, high: int, *shape: int) -> Tensor:
        """From 0 to high - 1."""
        return self._next(Draw("integers", shape, high))

    def category(self, logits: Tensor) -> Tensor:
        """One index per row from softmax(logits), by the Gumbel trick: (B, n) -> (B,)."""
        return (logits - (-self.uniform(*logits.shape).log()).log()).argmax(1)

    def _next(self, wanted: Draw) -> Tensor:
        if self.given is not None:
            return self.given.pop(0)
        if self.noted is not None:
            self.noted.append(wanted)
            return self.example(wanted)
        return self.draw(wanted)

    def draw(self, wanted: Draw) -> Tensor:
        if wanted.kind == "integers":
            return torch.randint(
                wanted.high, wanted.shape, generator=self.generator, device=self.device
            )
        make = torch.rand if wanted.kind == "uniform" else torch.randn
        return make(wanted.shape, generator=self.generator, device=self.device)

    def example(self, wanted: Draw) -> Tensor:
        """A value of its kind, for which the generator does not move."""
        if wanted.kind == "integers":
            return torch.zeros(wanted.shape, dtype=torch.long, device=self.device)
        return torch.full(wanted.shape, 0.5, device=self.device)

    @contextlib.contextmanager
    def noting(self) -> Iterator[list[Draw]]:
        """The list of all draws inside, for which no random number is used up."""
        self.noted = []
        try:
            yield self.noted
        finally:
            self.noted = None

    def hand_out(self, tensors: Sequence[Tensor] | None) -> None:
        """From now on these tensors in their order, in place of new numbers; None: draw again."""
        assert not self.given, "an update drew less than when it was noted"
        self.given = None if tensors is None else list(tensors)

    def get_state(self) -> Tensor:
        assert self.generator is not None, "the meta device has no random numbers"
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        assert self.generator is not None, "the meta device has no random numbers"
        self.generator.set_state(state)

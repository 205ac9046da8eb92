"""Random numbers of an update: drawn where they are wanted, or all of them before it.

A compiled or captured update is a function of tensors. What it draws is noted once (`noting`),
drawn in the same order from the same generators before every call (`draw`), and handed out inside
(`GIVEN`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

GIVEN: list[Tensor] = []  # handed out before anything is drawn
_noted: list[Draw] | None = None


class Draw(NamedTuple):
    kind: str  # uniform | normal | integers
    shape: tuple[int, ...]
    generator: torch.Generator | None
    device: torch.device
    high: int = 0

    def __call__(self) -> Tensor:
        where = {"generator": self.generator, "device": self.device}
        if self.kind == "integers":
            return torch.randint(self.high, self.shape, **where)
        return (torch.rand if self.kind == "uniform" else torch.randn)(self.shape, **where)

    def example(self) -> Tensor:
        """A value of its kind, for which no generator moves."""
        if self.kind == "integers":
            return torch.zeros(self.shape, dtype=torch.long, device=self.device)
        return torch.full(self.shape, 0.5, device=self.device)


def _draw(draw: Draw) -> Tensor:
    if GIVEN:
        return GIVEN.pop(0)
    if _noted is None:
        return draw()
    _noted.append(draw)
    return draw.example()


def uniform(shape, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """In [0, 1)."""
    return _draw(Draw("uniform", tuple(shape), generator, device))


def normal(shape, generator: torch.Generator | None, device: torch.device) -> Tensor:
    return _draw(Draw("normal", tuple(shape), generator, device))


def integers(high: int, shape, generator: torch.Generator | None, device: torch.device) -> Tensor:
    """From 0 to high - 1."""
    return _draw(Draw("integers", tuple(shape), generator, device, high))


@contextlib.contextmanager
def noting() -> Iterator[list[Draw]]:
    """The list of all draws inside, for which no random number is used up."""
    global _noted
    _noted = []
    try:
        yield _noted
    finally:
        _noted = None

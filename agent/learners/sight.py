"""A batch of pictures as a batch of features, and the way back of gradients to the encoder.

A batch is encoded once. Objective and critic see features in place of observations, as tensors
without a history, and know of no encoder; the gradients of their losses on these features are
collected (`Reach`) and go through the encoder together, in one backward pass and one step of its
optimiser.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from agent.parts.draws import Draws
from agent.parts.optim import Adam, Reach
from agent.parts.pixels import Encoder, random_shift
from replay_buffer import Batch

OBSERVATIONS = ("obs", "next_obs", "next_obs_1")


class Seen:
    """A `Batch` whose obs, next_obs and next_obs_1 are features; `pictures` are the shifted ones that
    these were made of. An observation that nobody asks for is not encoded. `taught` names those whose
    features losses may teach the encoder by."""

    def __init__(
        self,
        batch: Batch,
        encoder: Encoder,
        *,
        shift: int,
        draws: Draws,
        taught: Sequence[str] = (),
    ):
        self.action, self.reward = batch.action, batch.reward
        self.discount, self.skill = batch.discount, batch.skill
        self._batch, self._encoder, self._shift, self._draws = batch, encoder, shift, draws
        self._taught = taught
        self._pictures: dict[str, Tensor] = {}
        self._made: dict[str, Tensor] = {}  # by the encoder, with their history
        self._features: dict[str, Tensor] = {}  # the same numbers without it
        self.reach = Reach()

    @property
    def obs(self) -> Tensor:
        return self._see("obs")

    @property
    def next_obs(self) -> Tensor:
        return self._see("next_obs")

    @property
    def next_obs_1(self) -> Tensor:
        return self._see("next_obs_1")

    def pictures(self, name: str) -> Tensor:
        if name not in self._pictures:
            plain = getattr(self._batch, name)
            self._pictures[name] = random_shift(plain, self._shift, self._draws)
        return self._pictures[name]

    def _see(self, name: str) -> Tensor:
        if name not in self._features:
            pictures = self.pictures(name)
            if name in self._taught:
                with torch.enable_grad():  # a reward may be the first to ask
                    self._made[name] = self._encoder(pictures)
                features = self._made[name].detach().requires_grad_()
                self.reach.add(features)
            else:
                with torch.no_grad():
                    features = self._encoder(pictures)
            self._features[name] = features
        return self._features[name]

    @contextlib.contextmanager
    def teaching(self, wanted: bool) -> Iterator[None]:
        """Losses that are descended inside teach the encoder, if that is wanted."""
        if not wanted:
            yield
            return
        with self.reach:
            yield

    def step(self, optimizer: Adam) -> None:
        """One step of the encoder along all that was collected."""
        made = list(self._made.values())
        pairs = [(m, g) for m, g in zip(made, self.reach.grads, strict=True) if g is not None]
        if pairs:
            outputs, grads = zip(*pairs)
            optimizer.step_along(torch.autograd.grad(outputs, optimizer.parameters, grads))

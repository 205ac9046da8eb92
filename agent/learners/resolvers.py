"""Resolvers of conflicts from the literature, as weights of the streams that follow from the K x K
inner products of their gradients; and FAMO, whose weights follow from the losses alone.

All are on the scale of the plain sum: their weights are K times those of the papers that speak of
means, so that what is added after them (PPO's entropy bonus) keeps its meaning. Nothing here asks
for a value: shapes are fixed, loops have a fixed length, so an update compiles and waits for no
device.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from agent.base import Metrics
from agent.learners.surgery import EPS, Surgery
from utils import NonNegative, Positive, Share

# Rounds over all pairs of streams, of which one is exact for two streams. With these the shortest
# vector of five gradients is found to 1e-4 of their squared length, the eigenvalues of six to the
# rounding of a float64 (tests/agent/learners/test_resolvers.py).
DESCENT_ROUNDS, ROTATION_ROUNDS = 20, 8


def gram_matrix(grads: Sequence[Tensor]) -> Tensor:
    """All inner products, each computed once: (K, K)."""
    products = [[g @ h for h in grads[: i + 1]] for i, g in enumerate(grads)]
    count = len(grads)
    rows = [[products[max(i, j)][min(i, j)] for j in range(count)] for i in range(count)]
    return torch.stack([torch.stack(row) for row in rows])


def weighted_sum(grads: Sequence[Tensor], weights: Tensor) -> Tensor:
    """sum of w_k g_k, each long vector read once."""
    first, *others = weights.unbind()
    total = grads[0] * first
    for g, weight in zip(grads[1:], others, strict=True):
        total = total.addcmul(g, weight)
    return total


def relative(gram: Tensor) -> Tensor:
    """In units of the mean square of the lengths, so that EPS is small beside it."""
    return gram / gram.diagonal().mean().clamp(min=torch.finfo(gram.dtype).tiny)


def pairs_in_turn(count: int, rounds: int) -> list[tuple[int, int]]:
    return list(itertools.combinations(range(count), 2)) * (1 if count == 2 else rounds)


def least_on_simplex(gram: Tensor, slope: Tensor, radius: Tensor) -> Tensor:
    """The shares w (w >= 0, sum 1) at which slope . w + radius |g_w| is least, with g_w = sum of
    w_k g_k.

    A convex problem. It is solved along one edge e_i - e_j of the simplex after the other, where
    the least point has a closed form; a point that no edge improves is the least of all, because
    the edges span every direction that stays inside.
    """
    count = len(gram)
    unit = torch.eye(count, dtype=gram.dtype, device=gram.device)
    w = gram.new_full((count,), 1 / count)
    for i, j in pairs_in_turn(count, DESCENT_ROUNDS):
        edge = unit[i] - unit[j]
        # Along the edge |g_w|^2 is curve (t - middle)^2 + rest, and the slope is tilt.
        turned = gram @ edge
        curve, bend = edge @ turned + EPS, w @ turned
        middle, rest = -bend / curve, (w @ gram @ w - bend.square() / curve).clamp(min=0)
        tilt = slope @ edge
        room = radius.square() * curve - tilt.square()
        inside = -tilt * (rest / (curve * room.clamp(min=EPS))).sqrt()
        # No room: it falls all along the edge, whose length is at most 1.
        t = middle + torch.where(room > 0, inside, -2 * tilt.sign())
        w = w + edge * torch.clamp(t, min=-w[i], max=w[j])
    return w


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (K,) and eigenvectors (columns) of a symmetric matrix, by Jacobi's rotations:
    torch.linalg.eigh waits for a GPU, these do not."""
    count = len(matrix)
    unit = torch.eye(count, dtype=matrix.dtype, device=matrix.device)
    vectors = unit
    for i, j in pairs_in_turn(count, ROTATION_ROUNDS):
        apart = matrix[j, j] - matrix[i, i]
        across = torch.where(apart < 0, -matrix[i, j], matrix[i, j])
        angle = torch.atan2(2 * across, apart.abs()) / 2  # within 45 degrees: the rounds converge
        # The unit matrix but for rows and columns i and j.
        turn = torch.outer(unit[i], unit[j]) - torch.outer(unit[j], unit[i])
        both = torch.outer(unit[i], unit[i]) + torch.outer(unit[j], unit[j])
        rotation = unit + (angle.cos() - 1) * both + angle.sin() * turn
        matrix, vectors = rotation.T @ matrix @ rotation, vectors @ rotation
    return matrix.diagonal(), vectors


class GramSurgery(Surgery):
    """One weighted sum of the gradients, with weights from their inner products."""

    def forward(self, grads: dict[str, Tensor], weights: Tensor | None = None) -> Tensor:
        vectors = list(grads.values())
        gram = gram_matrix(vectors)
        return weighted_sum(
            vectors, self.mix(gram, torch.ones_like(gram[0]) if weights is None else weights)
        )

    @abstractmethod
    def mix(self, gram: Tensor, weights: Tensor) -> Tensor:
        """What multiplies each gradient, (K,)."""


class NormalisedSum(GramSurgery):
    """Every gradient at the mean of their lengths, then the weighted sum. The direction is that of
    unit lengths: for two streams IMTL-G (Liu et al. 2021) and Nash-MTL (Navon et al. 2022)."""

    def mix(self, gram: Tensor, weights: Tensor) -> Tensor:
        lengths = gram.diagonal().sqrt()
        return weights * lengths.mean() / (lengths + EPS)


class MGDA(GramSurgery):
    """The shortest vector in the convex hull of the gradients (Desideri 2012; Sener and Koltun
    2018): no stream loses, and one that is small decides. Weighted streams are scaled first."""

    def mix(self, gram: Tensor, weights: Tensor) -> Tensor:
        scaled = relative(gram * torch.outer(weights, weights))
        shares = least_on_simplex(scaled, torch.zeros_like(weights), torch.ones_like(weights[0]))
        return len(gram) * shares * weights


class CAGrad(GramSurgery):
    """Of all vectors within c |g_0| of the mean gradient g_0 the one that helps the worst stream
    most (Liu et al. 2021, Algorithm 1, by its dual). Weighted streams are scaled first."""

    def __init__(self, *, c: Share, **given):
        super().__init__(**given)
        self.c = c

    def mix(self, gram: Tensor, weights: Tensor) -> Tensor:
        scaled, count = relative(gram * torch.outer(weights, weights)), len(gram)
        towards_mean = scaled.mean(1)  # <g_k, g_0>
        radius = self.c * towards_mean.mean().clamp(min=0).sqrt()  # c |g_0|
        shares = least_on_simplex(scaled, towards_mean, radius)
        length = (shares @ scaled @ shares).clamp(min=0).sqrt()
        return count * (1 / count + radius / (length + EPS) * shares) * weights


class AlignedMTL(GramSurgery):
    """The nearest gradients that are orthogonal and all as long as the least singular value of the
    streams' (Senushkin et al. 2023, Algorithm 1), then the weighted sum."""

    def mix(self, gram: Tensor, weights: Tensor) -> Tensor:
        values, vectors = eigen(relative(gram))
        # What is below the rounding of the largest is no direction of its own.
        there = values > values.max() * len(gram) * torch.finfo(gram.dtype).eps
        least = values.where(there, values.max()).min()
        scale = (least / values.where(there, 1.0)).clamp(min=0).sqrt() * there
        return vectors @ (scale * (vectors.T @ weights))


class FAMO(Surgery):
    """Weights that let the logarithms of all losses fall equally fast (Liu et al. 2023, Algorithm
    1): a stream whose loss fell faster in the last step counts less in the next.

    It needs the losses before and after a step and no gradient per stream: `forward` takes losses
    where other resolvers take gradients, and gives the loss to descend; `settle` sees what the step
    did. The paper's losses are positive, as those of critics and values are. One that has ever been
    0 or below (a policy's) has no logarithm: its change is measured in units of its running mean
    size, which for small changes is the same.
    """

    logits: Tensor  # (K,), as are the other two
    size: Tensor  # running mean of |loss|
    signed: Tensor  # 1 where a loss was not positive
    count: Tensor

    def __init__(self, *, step: Positive, decay: NonNegative, **given):
        super().__init__(**given)
        self.step, self.decay = step, decay
        for name in ("logits", "size", "signed"):
            self.register_buffer(name, torch.zeros(len(self.streams)))
        self.register_buffer("count", torch.zeros(()))

    def twin(self) -> FAMO:
        return FAMO(
            step=self.step, decay=self.decay, generator=self.generator, streams=self.streams
        )

    def forward(self, losses: dict[str, Tensor], weights: Tensor | None = None) -> Tensor:
        now = torch.stack(list(losses.values()))
        with torch.no_grad():
            value = now.detach()
            self.count += 1
            self.size.lerp_(value.abs(), (1 / self.count).clamp(min=self.step))
            self.signed.copy_(torch.maximum(self.signed, (value <= 0).to(value.dtype)))
            share = self.logits.softmax(0) / (self._unit(value) + EPS)
            share = len(now) * share / share.sum()
        return (now * (share if weights is None else share * weights)).sum()

    def _unit(self, value: Tensor) -> Tensor:
        return self.size.where(self.signed > 0, value)

    def shares(self, label: str) -> Metrics:
        share = self.logits.softmax(0)
        return {f"{label}/{name}": s for name, s in zip(self.streams, share.unbind(), strict=True)}

    @torch.no_grad()
    def settle(self, before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
        """Moves the weights by what a step did to the losses."""
        old, new = (torch.stack(list(losses.values())) for losses in (before, after))
        ratio = (old.clamp(min=EPS) / new.clamp(min=EPS)).log()
        fall = ((old - new) / (self.size + EPS)).where(self.signed > 0, ratio)
        share = self.logits.softmax(0)
        slope = share * (fall - (share * fall).sum())  # of sum_k share_k fall_k, in the logits
        self.logits.sub_(self.step * (slope + self.decay * self.logits))

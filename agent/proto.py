"""ProtoRL: prototypes learned by clustering, and novelty as the distance to what they attracted
lately."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from agent.base import Metrics, Objective, RewardStreams, descend
from agent.parts.draws import Draws
from agent.parts.networks import mlp
from agent.parts.optim import follow
from agent.parts.particles import nearest_distances
from agent.parts.prototypes import PrototypeNorm, Prototypes, sinkhorn
from replay_buffer import Batch
from utils import Positive, Repeats, Rows, Share, Size, UserError


@dataclass(frozen=True, kw_only=True)
class QueueSettings:
    """What novelty is measured against: the rows that prototypes put into a queue, and the k-th
    nearest of them."""

    queue_size: Rows
    candidates_per_row: Positive
    k: Size


class ProtoRL(Objective):
    """ProtoRL (Yarats et al. 2021) on states, as in URLB.

    The codes of s' under slow copies, balanced by Sinkhorn, are what the projection of s must
    predict. Each prototype then puts one row of the batch into a queue; the reward of a row is its
    distance to the k-th nearest in there. Batches with fewer rows than `num_protos /
    candidates_per_row` let the prototypes take turns: otherwise most rows would meet k copies of
    themselves and earn 0.

    Metrics:
        proto/loss: Cross-entropy of the codes. Healthy: 6.1 to 5.6.
        proto/in_use: Share of prototypes in use (perplexity / K). Healthy: 0.99.
    """

    streams = ("novelty",)
    queue: Tensor
    enqueued: Tensor

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        generator: Draws,
        lr: Positive,
        pred_dim: Size,
        proj_dim: Size,
        num_protos: Size,
        temperature: Positive,
        sinkhorn_iterations: Repeats,
        prototype_norm: PrototypeNorm,
        encoder_target_tau: Share,
        queue: QueueSettings,
    ):
        super().__init__()
        if queue.queue_size < (least := max(num_protos, queue.k)):
            raise UserError(
                f"agent.objective.queue_size={queue.queue_size} is too small: each update puts in one row "
                f"for each of num_protos={num_protos} prototypes, and takes out k={queue.k} neighbours; "
                f"give {least} or more"
            )
        self.predictor = mlp(obs_dim, pred_dim)
        self.projector = mlp(pred_dim, proj_dim, pred_dim)
        self.prototypes = Prototypes(pred_dim, num_protos, prototype_norm)
        self.opt = self.adam("proto", self.parameters(), lr)
        self.slow_predictor = copy.deepcopy(self.predictor).requires_grad_(False)
        # Until filled: the origin, at distance 1.
        self.register_buffer("queue", torch.zeros(queue.queue_size, pred_dim))
        self.register_buffer("enqueued", torch.zeros((), dtype=torch.long))
        self.temperature, self.sinkhorn_iterations = temperature, sinkhorn_iterations
        self.tau, self.generator = encoder_target_tau, generator
        self.per_row, self.k = queue.candidates_per_row, queue.k

    def update(self, batch: Batch, *, final: bool = True) -> Metrics:
        with torch.no_grad():
            self.prototypes.renormalize()  # else they grow and slow down
            codes = self.prototypes(self.slow_predictor(batch.next_obs)) / self.temperature
            codes = sinkhorn(codes, self.sinkhorn_iterations)  # (B, K)
        scores = self.prototypes(self.projector(self.predictor(batch.obs))) / self.temperature
        guess = scores.log_softmax(1)
        loss = -(codes * guess).sum(1).mean()
        descend(loss, self.opt)
        follow(self.slow_predictor, self.predictor, self.tau)
        with torch.no_grad():
            usage = guess.exp().mean(0)
            # Perplexity / K: 1 = all used alike.
            in_use = torch.special.entr(usage).sum().exp() / len(usage)
        return {"proto/loss": loss.detach(), "proto/in_use": in_use}

    @torch.no_grad()
    def rewards(self, batch: Batch) -> tuple[RewardStreams, Metrics]:
        z = F.normalize(self.predictor(batch.next_obs), dim=1)
        self._enqueue(z[self._candidates(self.prototypes(z).T)])
        return {"novelty": nearest_distances(z, self.queue, self.k)[:, -1:]}, {}

    def _candidates(self, scores: Tensor) -> Tensor:
        """For each prototype whose turn it is one row of the batch, drawn from the softmax of its
        scores (K, B)."""
        count = min(len(scores), max(1, int(self.per_row * scores.shape[1])))
        scores = scores[(self.enqueued + torch.arange(count, device=scores.device)) % len(scores)]
        return self.generator.category(scores)

    def _enqueue(self, rows: Tensor) -> None:
        """Overwrite the oldest rows."""
        at = (self.enqueued + torch.arange(len(rows), device=rows.device)) % len(self.queue)
        self.queue.index_copy_(0, at, rows)
        self.enqueued += len(rows)

"""How much each reward stream counts: a constant, a schedule, or what holds a measure at a target."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from agent.base import Metrics
from utils import Count, NonNegative, Rows, Share, UserError


def information(states: Tensor, skill: Tensor, neighbours: int) -> Tensor:
    """Nats that a state (B, d) tells of its skill, given as indices (B,): the estimate of Ross
    2014. Around each state the k-th nearest of its own skill draws a ball; the fewer states of
    other skills are in it, the more a state tells.

    States that are alone with their skill are left out. A small or high-dimensional sample
    underestimates.
    """
    same = skill.unsqueeze(1) == skill  # (B, B)
    alike = same.sum(1)  # with itself
    kept = alike > 1
    distance = torch.cdist(states, states, compute_mode="donot_use_mm_for_euclid_dist")
    itself = torch.eye(len(states), dtype=torch.bool, device=states.device)
    distance = distance.masked_fill(itself | ~kept, torch.inf)
    of_own = distance.masked_fill(~same, torch.inf)
    k = (alike - 1).clamp(min=1, max=neighbours)
    nearest = of_own.topk(min(neighbours, len(states)), largest=False).values
    ball = nearest.gather(1, (k - 1).unsqueeze(1))
    inside = (distance <= ball).sum(1).clamp(min=1)
    terms = k.float().digamma() - alike.float().digamma() - inside.float().digamma()
    count = kept.sum().clamp(min=1).to(terms.dtype)
    return (count.digamma() + terms.where(kept, 0.0).sum() / count).clamp(min=0)


class StreamWeights(nn.Module):
    """Weights (K,) of the streams, whose sum is K. `share` is that of the stream `of`, the others
    have the rest alike; 1 / K for it are weights of 1 for all.

    Metrics:
        balance/share: With balance=linear or hold, or a share of your own: how much the named
            stream (diversity) counts among all.
    """

    weights: Tensor  # (K,)
    named: Tensor  # (K,): 1 for the stream of which the share is
    watches = False  # it looks at states and skills

    def __init__(self, *, of: str, share: Share | None, streams: tuple[str, ...], updates: int):
        super().__init__()
        if of not in streams:
            raise UserError(
                f"balance.of={of} is no reward stream; choose from {', '.join(streams)}"
            )
        self.updates = updates  # of the whole run
        self.start = 1 / len(streams) if share is None else share
        named = torch.tensor([float(name == of) for name in streams])
        self.register_buffer("named", named, persistent=False)
        self.register_buffer("weights", torch.ones(len(streams)))
        self.set_share(torch.tensor(float(self.start)))

    @torch.no_grad()
    def set_share(self, share: Tensor) -> Metrics:
        count = len(self.weights)
        others = (1 - share) / (count - 1)
        self.weights.copy_(count * (self.named * share + (1 - self.named) * others))
        return {"balance/share": share}

    def advance(self, states: Tensor, skill: Tensor) -> Metrics:
        """Once per update, before the gradients meet."""
        return {"balance/share": (self.weights * self.named).sum() / len(self.weights)}


class LinearShare(StreamWeights):
    """From `share` to `last_share` between `begin` and `finish`, in shares of the run."""

    count: Tensor  # updates so far

    def __init__(self, *, last_share: Share, begin: Share, finish: Share, **given):
        super().__init__(**given)
        if begin >= finish:
            raise UserError(
                f"balance.begin={begin} is not before balance.finish={finish}; give a smaller begin"
            )
        self.last_share, self.begin, self.finish = last_share, begin, finish
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def advance(self, states: Tensor, skill: Tensor) -> Metrics:
        done = self.count / self.updates
        self.count += 1
        way = ((done - self.begin) / (self.finish - self.begin)).clamp(0, 1)
        return self.set_share(self.start + way * (self.last_share - self.start))


class HeldShare(StreamWeights):
    """The share rises while states tell less of their skill than `target` log n nats, and falls
    while they tell more: integral control in the share's logit.

    Metrics:
        balance/information: With balance=hold: nats that a state of the batch or rollout tells of
            its skill (Ross 2014), which is held at balance.target times log n.
    """

    logit: Tensor
    watches = True

    def __init__(
        self,
        *,
        target: Share,
        rate: NonNegative,
        lowest: Share,
        highest: Share,
        rows: Rows,
        neighbours: Count,
        **given,
    ):
        super().__init__(**given)
        if not 0 < lowest <= self.start <= highest < 1:
            raise UserError(
                f"balance.lowest={lowest}, highest={highest}: the share starts at {self.start:g}, "
                "between them, and neither is 0 or 1"
            )
        self.target, self.rate = target, rate
        self.rows, self.neighbours = rows, neighbours
        self.bounds = math.log(lowest / (1 - lowest)), math.log(highest / (1 - highest))
        self.register_buffer("logit", torch.tensor(math.log(self.start / (1 - self.start))))

    @torch.no_grad()
    def advance(self, states: Tensor, skill: Tensor) -> Metrics:
        """Of the first rows of states (B, d) and one-hot skills (B, n)."""
        told = information(states[: self.rows], skill[: self.rows].argmax(1), self.neighbours)
        most = math.log(max(skill.shape[1], 2))
        missing = self.target - told.clamp(max=most) / most
        self.logit.copy_((self.logit + self.rate / self.updates * missing).clamp(*self.bounds))
        return {**self.set_share(self.logit.sigmoid()), "balance/information": told}

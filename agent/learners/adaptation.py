"""How a learner goes from a snapshot to a task: every part of it is a key of `adapt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from utils import Count, Natural, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """URLB's rules are warmup=uniform, actor=true, and nothing of the rest.

    warmup: who acts in the first num_seed_frames: uniform noise, or the policy at hand.
    actor: it starts from the snapshot. (What the critic takes: learner.init_critic, init_heads,
    sync_target.) moments: the optimisers go on with theirs; the snapshot must have been written with
    save_replay=true. critic_first: updates in which the critic learns alone. actor_lr: the actor's
    learning rate, in units of learner.lr. pull: weight of the squared distance to the actor of the
    snapshot, in units of the mean absolute Q of the batch (as in TD3+BC); it falls to 0 in
    pull_updates.
    """

    warmup: Literal["uniform", "policy"]
    actor: bool
    moments: bool
    critic_first: Natural
    actor_lr: Positive
    pull: NonNegative
    pull_updates: Count

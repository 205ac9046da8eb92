"""How a learner goes from a snapshot to a task: every part of it is a key, of `adapt` or of
`learner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from agent.base import Adam
from utils import Count, Natural, NonNegative, Positive, UserError


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


@dataclass(frozen=True, kw_only=True)
class WarmStartSettings:
    """What a fine-tuning takes from a snapshot besides the actor: the critic's trunk, its heads too
    (ProtoRL); and whether the target starts as the critic (the public code leaves it random)."""

    init_critic: bool
    init_heads: bool
    sync_target: bool


def under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The part of a state that belongs to one network, by the names that it has there."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def take_moments(ours: Mapping[str, Adam], stored: Mapping[str, Any] | None) -> None:
    """The optimisers' own learning rates stay; their moments are those of the snapshot."""
    if not stored:
        raise UserError(
            "adapt.moments=true needs a snapshot that holds the optimisers: pre-train with "
            "save_replay=true, or use adapt.moments=false"
        )
    for name, optimizer in ours.items():
        rate = optimizer.param_groups[0]["lr"]
        try:
            optimizer.load_state_dict(stored[name])
        except (KeyError, ValueError) as error:
            raise UserError(
                f"the {name} optimiser of the snapshot does not fit ({error}); "
                "use adapt.moments=false"
            ) from error
        optimizer.param_groups[0]["lr"] = rate

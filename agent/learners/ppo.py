"""PPO as EDL uses it on its mazes, for one reward stream or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from agent.base import Learner, Metrics, Objective, descend
from agent.learners.adaptation import under
from agent.learners.policies import POLICIES
from agent.learners.resolvers import FAMO
from agent.learners.stream_weights import StreamWeights
from agent.learners.surgery import SumGradients, Surgery, flat_grad, similarity, split_grad
from agent.parts.draws import Draws
from agent.parts.moments import InputNorm, WindowedMoments
from agent.parts.networks import layered
from replay_buffer import Batch
from utils import Count, Layers, NonNegative, Positive, Repeats, Rows, Share, Size, Streams


class Rollout(NamedTuple):
    """N episodes of T steps side by side. Every episode ends by a time limit, so the last state is
    bootstrapped."""

    obs: Tensor  # (T, N, obs_dim)
    action: Tensor  # (T, N, action_dim)
    reward: Tensor  # (T, N) the environment's
    next_obs: Tensor  # (T, N, obs_dim)
    skill: Tensor  # (T, N, skill_dim)

    def pooled(self, gamma: float) -> Batch:
        """All transitions of all episodes as one batch: what objectives see."""
        flat = [
            x.flatten(0, 1)
            for x in (self.obs, self.action, self.reward.unsqueeze(2), self.next_obs, self.skill)
        ]
        obs, action, reward, next_obs, skill = flat
        return Batch(obs, action, reward, torch.full_like(reward, gamma), next_obs, skill, next_obs)


def gae(reward: Tensor, value: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates (T, N) within each episode; value (T + 1, N) holds that of
    the last state too."""
    delta = reward + gamma * value[1:] - value[:-1]
    advantage = torch.zeros_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + gamma * lam * following
        advantage[t] = following
    return advantage


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """The policy's density, and the size of its network and of the values'."""

    policy: Literal["beta", "tanh_gaussian"]
    hidden_dim: Size
    layers: Layers
    normalize_inputs: bool


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """Discount and GAE, the clip of the ratio, and the weights of value error and entropy."""

    gamma: Share
    gae_lambda: Share
    clip: Positive
    value_weight: NonNegative
    entropy_weight: NonNegative


@dataclass(frozen=True, kw_only=True)
class CycleSettings:
    """How often a rollout is gone through, by the policy and by the objective's own networks; and
    whether these two have a rollout each."""

    epochs: Repeats
    minibatches: Rows
    objective_epochs: Repeats
    fresh_rollouts: bool


@dataclass(frozen=True, kw_only=True)
class BalanceSettings:
    """What streams share: one value head or one each, the scale of rewards and advantages."""

    value_heads: Literal["per_stream", "shared"]
    adv_norm: Literal["per_stream", "joint", "none"]
    reward_scale: Literal["per_stream", "joint", "none"]
    reward_window: Count


class PPO(Learner):
    """Policy and value nets of (s, z). With several streams each has its own advantages and value
    head, and the gradients of the streams' losses meet in `surgery`; the entropy bonus joins after
    it.

    adv_norm: per_stream (each advantage has unit deviation), joint (their sum has: alpha keeps its
    meaning), none. reward_scale: per_stream or joint centre rewards and divide by a running
    deviation; none leaves them. Episodes have one length, so a constant per step prefers no policy,
    but a value net would have to learn it first.

    Metrics:
        reward/<stream>: Mean of each reward stream in the rollout.
        reward_std/<stream>: Its spread.
        critic_loss/<stream>: Squared error of a stream's values.
        critic/target: Mean target of the values.
        critic/unexplained: Share of the targets' variance that the values miss.
        actor/loss: The clipped surrogate, summed over the streams.
        actor/entropy: Entropy of the policy.
        actor/clipped: Share of ratios outside the clip.
        surgery/conflict: Share of updates in which the two streams' gradients have a negative
            product.
        surgery/cosine: Their angle.
        surgery/dot: Their inner product.
        surgery_share/<stream>: With surgery=famo: the weight that a stream's logarithm has, before
            the size of its loss is counted in.
    """

    # Settings that a snapshot decides for what starts from it.
    shapes_snapshot: tuple[str, ...] = ("hidden_dim", "layers", "policy", "normalize_inputs")
    # Settings that tell one pre-training from another: fine-tuning looks for the one with the same.
    shapes_pretraining: tuple[str, ...] = (*shapes_snapshot, "surgery_scope")

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        streams: tuple[str, ...],
        surgery: Surgery,
        rng: Streams,
        lr: Positive,
        adam_eps: Positive,
        surgery_scope: Literal["all", "policy", "value"],
        frozen: bool,
        networks: PolicySettings,
        weights: LossSettings,
        cycle: CycleSettings,
        balance: BalanceSettings,
        stream_weights: StreamWeights | None = None,
    ):
        super().__init__()
        self.per_stream = balance.value_heads == "per_stream"
        self.adv_norm, self.reward_scale = balance.adv_norm, balance.reward_scale
        in_dim, hidden_dim, layers = obs_dim + skill_dim, networks.hidden_dim, networks.layers
        self.policy = POLICIES[networks.policy](
            in_dim,
            action_dim,
            hidden_dim=hidden_dim,
            layers=layers,
            normalize=networks.normalize_inputs,
        )
        heads = len(streams) if self.per_stream else 1
        self.value = layered(in_dim, *[hidden_dim] * layers, heads)
        self.opt = self.adam("ppo", self.parameters(), lr, eps=adam_eps)
        # Of each stream's rewards, and of their sum.
        self.reward_moments = WindowedMoments(len(streams) + 1, balance.reward_window)
        # Over all parameters at once, or for those of the policy and those of the values alone.
        self.surgery = surgery if surgery_scope == "all" else None
        self.policy_surgery = surgery if surgery_scope == "policy" else SumGradients()
        self.value_surgery = surgery if surgery_scope == "value" else SumGradients()
        # FAMO works on losses: on those of the policy, of the values, or their sums.
        self.famo_scope = surgery_scope in ("all", "policy"), surgery_scope in ("all", "value")
        self.stream_weights = stream_weights  # None: every stream counts alike
        self.streams, self.frozen = streams, frozen
        self.gamma, self.gae_lambda, self.clip = weights.gamma, weights.gae_lambda, weights.clip
        self.value_weight, self.entropy_weight = weights.value_weight, weights.entropy_weight
        self.epochs, self.minibatches = cycle.epochs, cycle.minibatches
        self.objective_epochs, self.fresh_rollouts = cycle.objective_epochs, cycle.fresh_rollouts
        self.device = rng.device
        self.act_rng = rng.numpy("act")
        self.shuffle_rng = Draws(rng.torch("shuffle"), rng.device)
        self.to(self.device)

    # --------------------------------------------------------------------------------------- acting

    @torch.no_grad()
    def act(
        self,
        obs: np.ndarray,
        skill: np.ndarray,
        step: int,
        *,
        explore: bool,
        rng: np.random.Generator | None = None,
    ) -> np.ndarray:
        """Actions (N, A), drawn from `rng` (its own where none is given); the mean action when not
        exploring."""
        x = torch.from_numpy(np.concatenate([obs, skill], -1)).to(self.device)
        if not explore or self.frozen:
            return self.policy(x).cpu().numpy()
        return self.policy.sample(x, rng or self.act_rng).cpu().numpy()

    # ------------------------------------------------------------------------------------- learning

    def minibatch_rows(self, count: int, epochs: int):
        """`minibatches` disjoint parts of all rows, `epochs` times, each time in a new order."""
        for _ in range(epochs):
            order = self.shuffle_rng.uniform(count).argsort()
            yield from order.chunk(self.minibatches)

    def rollouts_wanted(self, objective: Objective) -> int:
        """Per cycle: one for the policy, and with `fresh_rollouts` one before it for an objective
        that learns (EDL)."""
        return 2 if objective.optimizers and self.fresh_rollouts else 1

    def due(self, memory: Sequence[Rollout], step: int) -> bool:
        return not self.frozen

    def learn(self, memory: Sequence[Rollout], objective: Objective, step: int) -> Metrics:
        """One cycle: the objective's networks learn from the first rollout, the policy from the
        last."""
        metrics = self.teach(memory[0], objective) if objective.optimizers else {}
        return metrics | self.improve(memory[-1], objective)

    def teach(self, rollout: Rollout, objective: Objective) -> Metrics:
        """The objective's own networks learn from a rollout, before another one is rewarded by them
        (EDL)."""
        pooled, metrics = rollout.pooled(self.gamma), {}
        for rows in self.minibatch_rows(len(pooled.obs), self.objective_epochs):
            metrics = objective.update(Batch(*(x[rows] for x in pooled)), final=True)
        return metrics

    def improve(self, rollout: Rollout, objective: Objective) -> Metrics:
        """Rewards once on the pooled rollout, then epochs of minibatch steps."""
        rewards, metrics = objective.rewards(rollout.pooled(self.gamma))
        steps, lanes = rollout.reward.shape
        raw = torch.cat(list(rewards.values()), 1)  # (T * N, K)
        metrics |= {f"reward/{name}": r.mean() for name, r in rewards.items()}
        metrics |= {f"reward_std/{name}": r.std() for name, r in rewards.items()}
        metrics |= self.advance_weights(rollout)
        scaled = self.scale(raw).view(steps, lanes, -1)  # (T, N, K), as are the next two
        advantage, target = self.advantages(rollout, scaled)
        metrics |= {
            "critic/target": target.mean(),
            "critic/unexplained": self.unexplained(advantage, target),
        }
        advantage = self.normalize(advantage)
        x = torch.cat([rollout.obs, rollout.skill], 2).flatten(0, 1)
        action = rollout.action.flatten(0, 1)
        with torch.no_grad():  # before the first step changes the policy
            old, _ = self.policy.evaluate(x, action)
        rows = (x, action, old, advantage.flatten(0, 1), target.flatten(0, 1))
        sums: Metrics = {}
        for index in self.minibatch_rows(len(x), self.epochs):
            for key, value in self.step(*(part[index] for part in rows)).items():
                sums[key] = sums[key] + value if key in sums else value
        # From the next rollout on: this one acted and learned with one and the same.
        if isinstance(self.policy.norm, InputNorm):
            self.policy.norm.update(x)
        return metrics | {
            key: value / (self.epochs * self.minibatches) for key, value in sums.items()
        }

    def advance_weights(self, rollout: Rollout) -> Metrics:
        """What the streams count for in this cycle, perhaps by what the rollout's states tell of
        their skills."""
        if self.stream_weights is None:
            return {}
        states, skill = rollout.obs.flatten(0, 1), rollout.skill.flatten(0, 1)
        if self.stream_weights.watches:  # of all lanes and times, in a random order
            order = self.shuffle_rng.uniform(len(states)).argsort()
            states, skill = states[order], skill[order]
        return self.stream_weights.advance(states, skill)

    @torch.no_grad()
    def scale(self, raw: Tensor) -> Tensor:
        """Rewards (B, K) as the values and advantages see them; their moments average
        `reward_window` rollouts."""
        both = torch.cat([raw, raw.sum(1, keepdim=True)], 1)
        self.reward_moments.update(both)
        if self.reward_scale == "none":
            return raw
        deviation = self.reward_moments.var.sqrt() + 1e-8
        deviation = deviation[:-1] if self.reward_scale == "per_stream" else deviation[-1]
        return (raw - self.reward_moments.mean[:-1]) / deviation

    @torch.no_grad()
    def advantages(self, rollout: Rollout, reward: Tensor) -> tuple[Tensor, Tensor]:
        """GAE per stream and episode, and the value heads' regression targets."""
        obs = torch.cat([rollout.obs, rollout.next_obs[-1:]])  # (T + 1, N, obs_dim)
        skill = torch.cat([rollout.skill, rollout.skill[-1:]])
        value = self.value(self.policy.norm(torch.cat([obs, skill], 2)))  # (T + 1, N, K or 1)
        value = value.expand(*value.shape[:2], reward.shape[2])
        advantage = gae(reward, value, gamma=self.gamma, lam=self.gae_lambda)
        return advantage, advantage + value[:-1]

    def unexplained(self, advantage: Tensor, target: Tensor) -> Tensor:
        """Share of the targets' variance that the values miss."""
        return advantage.var() / (target.var() + 1e-8)

    def normalize(self, advantage: Tensor) -> Tensor:
        centred = advantage - advantage.mean((0, 1))
        if self.adv_norm == "none":
            return advantage
        if self.adv_norm == "joint":
            return centred / (centred.sum(2).std() + 1e-8)
        return centred / (centred.std((0, 1)) + 1e-8)

    def losses(
        self, log_prob: Tensor, value: Tensor, old: Tensor, advantage: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Per stream the clipped surrogate and half the value's squared error, (K,) each; and the
        ratios (B, 1)."""
        ratio = (log_prob - old).exp().unsqueeze(1)
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        surrogate = -torch.minimum(ratio * advantage, clipped * advantage).mean(0)
        error = 0.5 * (value - target).square().mean(0)  # a shared head is broadcast
        return surrogate, error, ratio

    def step(
        self, x: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor
    ) -> Metrics:
        """One minibatch: the streams' gradients through the surgery, plus the entropy's."""
        log_prob, entropy = self.policy.evaluate(x, action)
        value = self.value(self.policy.norm(x))
        surrogate, error, ratio = self.losses(log_prob, value, old, advantage, target)
        bonus = -self.entropy_weight * entropy.mean()
        famo = self.famo()
        if famo is not None and len(self.streams) > 1:

            def losses_now() -> tuple[Tensor, Tensor]:
                now, _ = self.policy.evaluate(x, action)
                value = self.value(self.policy.norm(x))
                return self.losses(now, value, old, advantage, target)[:2]

            metrics = self._step_by_losses(famo, surrogate, error, bonus, losses_now)
        else:
            metrics = self._step_by_gradients(surrogate, error, bonus)
        metrics |= {
            f"critic_loss/{name}": e for name, e in zip(self.streams, error.detach(), strict=True)
        }
        return metrics | {
            "actor/loss": surrogate.detach().sum(),
            "actor/entropy": entropy.detach().mean(),
            "actor/clipped": ((ratio.detach() - 1).abs() > self.clip).float().mean(),
        }

    def _step_by_gradients(self, surrogate: Tensor, error: Tensor, bonus: Tensor) -> Metrics:
        """A gradient for each stream, and one of the entropy bonus, which joins after the
        surgery."""
        parameters = self.opt.parameters
        losses = surrogate + self.value_weight * error  # (K,)
        grads = {
            name: flat_grad(loss, parameters, retain_graph=True)
            for name, loss in zip(self.streams, losses, strict=True)
        }
        of_bonus = flat_grad(bonus, parameters, retain_graph=False)
        self.opt.step_along(split_grad(self.combine(grads) + of_bonus, parameters))
        if len(grads) != 2:
            return {}
        return {f"surgery/{k}": v for k, v in similarity(*grads.values()).items()}

    def _step_by_losses(
        self,
        famo: FAMO,
        surrogate: Tensor,
        error: Tensor,
        bonus: Tensor,
        losses_now: Callable[[], tuple[Tensor, Tensor]],
    ) -> Metrics:
        """FAMO: one gradient of all, then a look at what the step did to the losses."""

        def parts(surrogate: Tensor, error: Tensor) -> tuple[dict[str, Tensor], Tensor]:
            """The losses that it weighs, and those that are only summed, (K,)."""
            policy, value = surrogate, self.value_weight * error
            weighed = policy * self.famo_scope[0] + value * self.famo_scope[1]
            others = policy * (not self.famo_scope[0]) + value * (not self.famo_scope[1])
            return dict(zip(self.streams, weighed.unbind(), strict=True)), others

        losses, others = parts(surrogate, error)
        weights = self.weights()
        summed = (others if weights is None else others * weights).sum()
        descend(famo(losses, weights) + summed + bonus, self.opt)
        with torch.no_grad():
            famo.settle(losses, parts(*losses_now())[0])
        return famo.shares("surgery_share")

    def famo(self) -> FAMO | None:
        """The surgery that was chosen, if it is this one."""
        places = (self.surgery, self.policy_surgery, self.value_surgery)
        return next((each for each in places if isinstance(each, FAMO)), None)

    def weights(self) -> Tensor | None:
        return None if self.stream_weights is None else self.stream_weights.weights

    def combine(self, grads: dict[str, Tensor]) -> Tensor:
        """One gradient of the streams', whose policy entries come first; one stream needs no
        surgery."""
        if len(grads) == 1:
            return next(iter(grads.values()))
        weights = self.weights()
        if self.surgery is not None:
            return self.surgery(grads, weights)
        split = sum(p.numel() for p in self.policy.parameters())
        policy = self.policy_surgery({name: g[:split] for name, g in grads.items()}, weights)
        value = self.value_surgery({name: g[split:] for name, g in grads.items()}, weights)
        return torch.cat([policy, value])

    def warm_start(
        self, state: Mapping[str, Tensor], optimizers: Mapping[str, Any] | None = None
    ) -> None:
        """The policy survives pre-training; values of another reward do not."""
        self.policy.load_state_dict(under(state, "policy."))

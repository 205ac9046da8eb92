"""PPO as EDL uses it on its mazes, for one reward stream or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Objective, Trainable
from agent.surgery import SumGradients, assign_grad, flat_grad, similarity
from replay_buffer import Batch
from utils import Streams, choose

Surgery = Callable[[dict[str, Tensor]], Tensor]


class Rollout(NamedTuple):
    """N episodes of T steps side by side. Every episode ends by a time limit, so the last state is bootstrapped."""

    obs: Tensor  # (T, N, obs_dim)
    action: Tensor  # (T, N, action_dim)
    log_prob: Tensor  # (T, N) of the action when it was chosen
    reward: Tensor  # (T, N) the environment's
    next_obs: Tensor  # (T, N, obs_dim)
    skill: Tensor  # (T, N, skill_dim)

    def pooled(self, gamma: float) -> Batch:
        """All transitions of all episodes as one batch: what objectives see."""
        flat = [x.flatten(0, 1) for x in (self.obs, self.action, self.reward.unsqueeze(2), self.next_obs, self.skill)]
        obs, action, reward, next_obs, skill = flat
        return Batch(obs, action, reward, torch.full_like(reward, gamma), next_obs, skill, next_obs)


def gae(reward: Tensor, value: Tensor, *, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimates (T, N) within each episode; value (T + 1, N) holds that of the last state too."""
    delta = reward + gamma * value[1:] - value[:-1]
    advantage = torch.zeros_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + gamma * lam * following
        advantage[t] = following
    return advantage


def layered(in_dim: int, hidden_dim: int, layers: int, out_dim: int) -> nn.Sequential:
    """EDL's MLP: ReLU between linear layers with PyTorch's own initialisation."""
    sizes = [in_dim, *[hidden_dim] * layers, out_dim]
    parts: list[nn.Module] = []
    for a, b in pairwise(sizes):
        parts += [nn.ReLU()] * bool(parts) + [nn.Linear(a, b)]
    return nn.Sequential(*parts)


class BetaPolicy(nn.Module):
    """EDL's: an action is 2x - 1 with x ~ Beta(c0, c1), c = 1.05 + softplus, so that density has one peak."""

    def __init__(self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int):
        super().__init__()
        self.net = layered(in_dim, hidden_dim, layers, 2 * action_dim)

    def _beta(self, x: Tensor) -> torch.distributions.Beta:
        c0, c1 = (F.softplus(self.net(x)) + 1.05).chunk(2, -1)
        return torch.distributions.Beta(c0, c1, validate_args=False)

    def forward(self, x: Tensor) -> Tensor:
        """The mean action."""
        return 2 * self._beta(x).mean - 1

    def sample(self, x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Action (..., A) and its log-density. Drawn by NumPy: torch's Beta takes no generator."""
        beta = self._beta(x)
        c0, c1 = (c.double().cpu().numpy() for c in (beta.concentration1, beta.concentration0))
        unit = torch.from_numpy(rng.beta(c0, c1)).to(x).clamp(1e-6, 1 - 1e-6)
        return 2 * unit - 1, beta.log_prob(unit).sum(-1)

    def evaluate(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log-density of actions, up to the constant of 2x - 1, and entropy averaged over their entries."""
        beta = self._beta(x)
        return beta.log_prob((action + 1) / 2).sum(-1), beta.entropy().mean(-1)


class TanhGaussian(nn.Module):
    """The paper's appendix: a tanh of a Gaussian, with one learned deviation per entry."""

    def __init__(self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int):
        super().__init__()
        self.net = layered(in_dim, hidden_dim, layers, action_dim)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.net(x))

    def _density(self, x: Tensor, before: Tensor, action: Tensor) -> Tensor:
        noise = (before - self.net(x)) / self.log_std.exp()
        gaussian = -0.5 * noise.square() - self.log_std - 0.5 * math.log(2 * math.pi)
        return (gaussian - torch.log1p(-action.square() + 1e-6)).sum(-1)

    def sample(self, x: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        mean = self.net(x)
        noise = torch.from_numpy(rng.standard_normal(mean.shape, np.float32)).to(mean)
        before = mean + self.log_std.exp() * noise
        action = torch.tanh(before).clamp(-1 + 1e-6, 1 - 1e-6)
        return action, self._density(x, torch.atanh(action), action)

    def evaluate(self, x: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """The entropy is the Gaussian's: that of its tanh has no closed form."""
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).mean()
        return self._density(x, torch.atanh(action), action), entropy.expand(x.shape[:-1])


POLICIES = {"beta": BetaPolicy, "tanh_gaussian": TanhGaussian}


class PPO(Trainable):
    """Policy and value nets of (s, z). With several streams each has its own advantages and value head, and the
    gradients of the streams' losses meet in `surgery`; the entropy bonus joins after it.

    adv_norm: per_stream (each advantage has unit deviation), joint (their sum has: alpha keeps its meaning), none.
    reward_scale: per_stream or joint centre rewards and divide by a running deviation; none leaves them. Episodes have
    one length, so a constant per step prefers no policy, but a value net would have to learn it first.
    """

    def __init__(self, *, obs_dim: int, action_dim: int, skill_dim: int, streams: tuple[str, ...], surgery: Surgery,
                 rng: Streams, policy: str, hidden_dim: int, layers: int, lr: float, adam_eps: float, gamma: float,
                 gae_lambda: float, clip: float, value_weight: float, entropy_weight: float, epochs: int,
                 minibatches: int, objective_epochs: int, fresh_rollouts: bool, value_heads: str, adv_norm: str,
                 reward_scale: str, reward_window: int, surgery_scope: str, frozen: bool):
        super().__init__()
        self.per_stream = choose("learner.value_heads", value_heads, ("per_stream", "shared")) == "per_stream"
        self.adv_norm = choose("learner.adv_norm", adv_norm, ("per_stream", "joint", "none"))
        self.reward_scale = choose("learner.reward_scale", reward_scale, ("per_stream", "joint", "none"))
        scope = choose("learner.surgery_scope", surgery_scope, ("all", "policy", "value"))
        in_dim = obs_dim + skill_dim
        self.policy = POLICIES[choose("learner.policy", policy, tuple(POLICIES))](
            in_dim, action_dim, hidden_dim=hidden_dim, layers=layers)
        self.value = layered(in_dim, hidden_dim, layers, len(streams) if self.per_stream else 1)
        self.opt = self.adam("ppo", self.parameters(), lr, eps=adam_eps)
        # Running moments of the rewards: of each stream, and of their sum.
        self.register_buffer("reward_mean", torch.zeros(len(streams) + 1))
        self.register_buffer("reward_var", torch.zeros(len(streams) + 1))
        self.register_buffer("reward_count", torch.zeros(()))
        self.policy_surgery = surgery if scope in ("all", "policy") else SumGradients()
        self.value_surgery = surgery if scope in ("all", "value") else SumGradients()
        self.surgery = surgery if scope == "all" else None
        self.streams, self.frozen, self.reward_window = streams, frozen, reward_window
        self.gamma, self.gae_lambda, self.clip = gamma, gae_lambda, clip
        self.value_weight, self.entropy_weight = value_weight, entropy_weight
        self.epochs, self.minibatches = epochs, minibatches
        self.objective_epochs, self.fresh_rollouts = objective_epochs, fresh_rollouts
        self.device, self.act_rng, self.shuffle_rng = rng.device, rng.numpy("act"), rng.torch("shuffle")
        self.to(self.device)

    # ---------------------------------------------------------------------------------------------- acting

    @torch.no_grad()
    def act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool) -> tuple[np.ndarray, np.ndarray]:
        """Actions (N, A) and their log-densities (N,); the mean action when not exploring."""
        x = torch.from_numpy(np.concatenate([obs, skill], -1)).to(self.device)
        if not explore or self.frozen:
            return self.policy(x).cpu().numpy(), np.zeros(len(obs), np.float32)
        action, log_prob = self.policy.sample(x, self.act_rng)
        return action.cpu().numpy(), log_prob.cpu().numpy()

    # -------------------------------------------------------------------------------------------- learning

    def minibatch_rows(self, count: int, epochs: int):
        """`minibatches` disjoint parts of all rows, `epochs` times, each time in a new order."""
        for _ in range(epochs):
            order = torch.rand(count, generator=self.shuffle_rng, device=self.device).argsort()
            yield from order.chunk(self.minibatches)

    def teach(self, rollout: Rollout, objective: Objective) -> Metrics:
        """The objective's own networks learn from a rollout, before another one is rewarded by them (EDL)."""
        pooled, metrics = rollout.pooled(self.gamma), {}
        for rows in self.minibatch_rows(len(pooled.obs), self.objective_epochs):
            metrics = objective.update(Batch(*(x[rows] for x in pooled)), final=True)
        return metrics

    def learn(self, rollout: Rollout, objective: Objective) -> Metrics:
        """Rewards once on the pooled rollout, then epochs of minibatch steps."""
        rewards, metrics = objective.rewards(rollout.pooled(self.gamma))
        steps, lanes = rollout.log_prob.shape
        raw = torch.cat(list(rewards.values()), 1)  # (T * N, K)
        metrics |= {f"reward/{name}": r.mean() for name, r in rewards.items()}
        metrics |= {f"reward_std/{name}": r.std() for name, r in rewards.items()}
        advantage, target = self.advantages(rollout, self.scale(raw).view(steps, lanes, -1))  # (T, N, K) each
        metrics |= {"critic/target": target.mean(), "critic/unexplained": self.unexplained(advantage, target)}
        advantage = self.normalize(advantage)
        x = torch.cat([rollout.obs, rollout.skill], 2).flatten(0, 1)
        rows = (x, rollout.action.flatten(0, 1), rollout.log_prob.flatten(), advantage.flatten(0, 1),
                target.flatten(0, 1))
        sums: Metrics = {}
        count = self.epochs * self.minibatches
        for index in self.minibatch_rows(len(x), self.epochs):
            for key, value in self.step(*(part[index] for part in rows)).items():
                sums[key] = sums.get(key, 0) + value / count
        return metrics | sums

    @torch.no_grad()
    def scale(self, raw: Tensor) -> Tensor:
        """Rewards (B, K) as the values and advantages see them; their moments average `reward_window` rollouts."""
        both = torch.cat([raw, raw.sum(1, keepdim=True)], 1)
        self.reward_count += 1
        share = 1 / self.reward_count.clamp(max=self.reward_window)
        self.reward_mean += share * (both.mean(0) - self.reward_mean)
        self.reward_var += share * (both.var(0) - self.reward_var)
        if self.reward_scale == "none":
            return raw
        deviation = self.reward_var.sqrt() + 1e-8
        deviation = deviation[:-1] if self.reward_scale == "per_stream" else deviation[-1]
        return (raw - self.reward_mean[:-1]) / deviation

    @torch.no_grad()
    def advantages(self, rollout: Rollout, reward: Tensor) -> tuple[Tensor, Tensor]:
        """GAE per stream and episode, and the value heads' regression targets."""
        obs = torch.cat([rollout.obs, rollout.next_obs[-1:]])  # (T + 1, N, obs_dim)
        skill = torch.cat([rollout.skill, rollout.skill[-1:]])
        value = self.value(torch.cat([obs, skill], 2))  # (T + 1, N, K or 1)
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

    def losses(self, x: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor):
        """Per stream the clipped surrogate plus the value's squared error; and the entropy."""
        log_prob, entropy = self.policy.evaluate(x, action)
        ratio = (log_prob - old).exp().unsqueeze(1)  # (B, 1)
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        surrogate = -torch.minimum(ratio * advantage, clipped * advantage).mean(0)  # (K,)
        error = 0.5 * (self.value(x) - target).square().mean(0)  # (K,): a shared head is broadcast
        share = ((ratio - 1).abs() > self.clip).float().mean()
        return surrogate, error, entropy.mean(), share

    def step(self, x: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> Metrics:
        """One minibatch: the streams' gradients through the surgery, plus the entropy's."""
        surrogate, error, entropy, clipped = self.losses(x, action, old, advantage, target)
        policy, value = list(self.policy.parameters()), list(self.value.parameters())
        totals = {name: surrogate[k] + self.value_weight * error[k] for k, name in enumerate(self.streams)}
        grads = {name: flat_grad(loss, policy + value, retain_graph=True) for name, loss in totals.items()}
        bonus = flat_grad(-self.entropy_weight * entropy, policy + value, retain_graph=False)
        assign_grad(policy + value, self.combine(grads, sum(p.numel() for p in policy)) + bonus)
        self.opt.step()
        metrics = {f"critic_loss/{name}": error[k].detach() for k, name in enumerate(self.streams)}
        metrics |= {"actor/loss": surrogate.sum().detach(), "actor/entropy": entropy.detach(), "actor/clipped": clipped}
        if len(grads) == 2:
            metrics |= {f"surgery/{k}": v for k, v in similarity(*grads.values()).items()}
        return metrics

    def combine(self, grads: dict[str, Tensor], split: int) -> Tensor:
        """One gradient of the streams' (policy entries first, `split` of them); one stream needs no surgery."""
        if len(grads) == 1:
            return next(iter(grads.values()))
        if self.surgery is not None:
            return self.surgery(grads)
        return torch.cat([self.policy_surgery({name: g[:split] for name, g in grads.items()}),
                          self.value_surgery({name: g[split:] for name, g in grads.items()})])

    def warm_start(self, state: Mapping[str, Tensor]) -> None:
        """The policy survives pre-training; values of another reward do not."""
        self.policy.load_state_dict({k.removeprefix("policy."): v for k, v in state.items() if k.startswith("policy.")})

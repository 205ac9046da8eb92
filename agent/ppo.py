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
from agent.surgery import SumGradients, similarity
from replay_buffer import Batch
from utils import Streams, choose

Surgery = Callable[[dict[str, Tensor]], Tensor]


class Rollout(NamedTuple):
    """N episodes of T steps side by side. Every episode ends by a time limit, so the last state is bootstrapped."""

    obs: Tensor  # (T, N, obs_dim)
    action: Tensor  # (T, N, action_dim)
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


@torch.no_grad()
def trace(net: nn.Sequential, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """What a `layered` net says of x, and the input of each linear layer."""
    inputs = []
    for layer in net[::2]:
        x = x.relu() if inputs else x
        inputs.append(x)
        x = layer(x)
    return x, inputs


@torch.no_grad()
def pull_back(net: nn.Sequential, inputs: list[Tensor], grad: Tensor) -> Tensor:
    """Gradients (K, P) of K losses over all parameters, from those over the outputs (K, B, out).

    autograd would go through the net once for each loss; the K gradients differ in the first factor alone, so here
    they share every product.
    """
    count, size = grad.shape[:2]
    flat: list[Tensor] = []
    for layer, x in zip(reversed(net[::2]), reversed(inputs), strict=True):
        turned = grad.transpose(1, 2).reshape(-1, size)  # (K * out, B)
        flat = [(turned @ x).view(count, -1), turned.sum(1).view(count, -1), *flat]
        if x is not inputs[0]:
            grad = (grad.reshape(count * size, -1) @ layer.weight).view(count, size, -1).mul_(x > 0)
    return torch.cat(flat, 1)


class InputNorm(nn.Module):
    """EDL's: inputs, the skill's too, centred and divided by the deviation of all that was learned from; within +-5."""

    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("var", torch.ones(dim))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.var.clamp(min=0.01).sqrt()).clamp(-5, 5)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Moments over the rows of all updates."""
        share = len(x) / (self.count + len(x))
        delta, var = x.mean(0) - self.mean, x.var(0, unbiased=False)
        self.var += share * (var - self.var + (1 - share) * delta.square())
        self.mean += share * delta
        self.count += len(x)


class BetaPolicy(nn.Module):
    """EDL's: an action is 2x - 1 with x ~ Beta(c0, c1), c = 1.05 + softplus, so that density has one peak."""

    def __init__(self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False):
        super().__init__()
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, hidden_dim, layers, 2 * action_dim)

    def concentrations(self, raw: Tensor) -> tuple[Tensor, Tensor]:
        return (F.softplus(raw) + 1.05).chunk(2, -1)

    def forward(self, x: Tensor) -> Tensor:
        """The mean action."""
        c0, c1 = self.concentrations(self.net(self.norm(x)))
        return 2 * c0 / (c0 + c1) - 1

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Actions (..., A). Drawn by NumPy: torch's Beta takes no generator."""
        c0, c1 = (c.double().cpu().numpy() for c in self.concentrations(self.net(self.norm(x))))
        return 2 * torch.from_numpy(rng.beta(c0, c1)).to(x).clamp(1e-6, 1 - 1e-6) - 1

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        return trace(self.net, self.norm(x))

    def pull_back(self, inputs: list[Tensor], grad: Tensor) -> Tensor:
        return pull_back(self.net, inputs, grad)

    def evaluate(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log-density of actions, up to the constant of 2x - 1, and entropy averaged over their entries: (B,) each."""
        return self.slopes(raw, action)[:2]

    def slopes(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The two of `evaluate`, and their derivatives over raw (B, 2A)."""
        c = F.softplus(raw) + 1.05  # c0, c1
        both, excess = sum(c.chunk(2, -1)), c - 1
        x = (action + 1) / 2
        log_x = torch.cat([x, 1 - x], -1).log()
        psi, psi_both = torch.digamma(c), torch.digamma(both)
        log_beta = sum(torch.lgamma(c).chunk(2, -1)) - torch.lgamma(both)
        log_prob = sum((excess * log_x).chunk(2, -1)) - log_beta
        entropy = log_beta - sum((excess * psi).chunk(2, -1)) + (both - 2) * psi_both
        inner = torch.sigmoid(raw)  # dc / draw
        by_c = torch.polygamma(1, both) * (both - 2)
        d_log_prob = inner * (log_x - psi + psi_both.repeat(1, 2))
        d_entropy = inner * (by_c.repeat(1, 2) - excess * torch.polygamma(1, c)) / action.shape[-1]
        return log_prob.sum(-1), entropy.mean(-1), d_log_prob, d_entropy


class TanhGaussian(nn.Module):
    """The paper's appendix: a tanh of a Gaussian, with one learned deviation per entry."""

    def __init__(self, in_dim: int, action_dim: int, *, hidden_dim: int, layers: int, normalize: bool = False):
        super().__init__()
        self.log_std = nn.Parameter(torch.zeros(action_dim))
        self.norm = InputNorm(in_dim) if normalize else nn.Identity()
        self.net = layered(in_dim, hidden_dim, layers, action_dim)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.net(self.norm(x)))

    def sample(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        mean = self.net(self.norm(x))
        noise = torch.from_numpy(rng.standard_normal(mean.shape, np.float32)).to(mean)
        return torch.tanh(mean + self.log_std.exp() * noise).clamp(-1 + 1e-6, 1 - 1e-6)

    def trace(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        mean, inputs = trace(self.net, self.norm(x))
        return torch.cat([mean, self.log_std.detach().expand_as(mean)], -1), inputs

    def pull_back(self, inputs: list[Tensor], grad: Tensor) -> Tensor:
        mean, log_std = grad.chunk(2, -1)
        return torch.cat([log_std.sum(1), pull_back(self.net, inputs, mean)], 1)  # in the order of parameters()

    def evaluate(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """As BetaPolicy's. The entropy is the Gaussian's: that of its tanh has no closed form."""
        return self.slopes(raw, action)[:2]

    def slopes(self, raw: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        mean, log_std = raw.chunk(2, -1)
        noise = (torch.atanh(action) - mean) / log_std.exp()
        gaussian = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_prob = gaussian - torch.log1p(-action.square() + 1e-6)
        entropy = log_std + 0.5 * math.log(2 * math.pi * math.e)
        d_log_prob = torch.cat([noise / log_std.exp(), noise.square() - 1], -1)
        d_entropy = torch.cat([torch.zeros_like(mean), torch.full_like(log_std, 1 / action.shape[-1])], -1)
        return log_prob.sum(-1), entropy.mean(-1), d_log_prob, d_entropy


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
                 reward_scale: str, reward_window: int, normalize_inputs: bool, surgery_scope: str, frozen: bool):
        super().__init__()
        self.per_stream = choose("learner.value_heads", value_heads, ("per_stream", "shared")) == "per_stream"
        self.adv_norm = choose("learner.adv_norm", adv_norm, ("per_stream", "joint", "none"))
        self.reward_scale = choose("learner.reward_scale", reward_scale, ("per_stream", "joint", "none"))
        scope = choose("learner.surgery_scope", surgery_scope, ("all", "policy", "value"))
        in_dim = obs_dim + skill_dim
        self.policy = POLICIES[choose("learner.policy", policy, tuple(POLICIES))](
            in_dim, action_dim, hidden_dim=hidden_dim, layers=layers, normalize=normalize_inputs)
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
        self.normalize_inputs = normalize_inputs
        self.gamma, self.gae_lambda, self.clip = gamma, gae_lambda, clip
        self.value_weight, self.entropy_weight = value_weight, entropy_weight
        self.epochs, self.minibatches = epochs, minibatches
        self.objective_epochs, self.fresh_rollouts = objective_epochs, fresh_rollouts
        self.device, self.act_rng, self.shuffle_rng = rng.device, rng.numpy("act"), rng.torch("shuffle")
        self.to(self.device)

    # ---------------------------------------------------------------------------------------------- acting

    @torch.no_grad()
    def act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool) -> np.ndarray:
        """Actions (N, A); the mean action when not exploring."""
        x = torch.from_numpy(np.concatenate([obs, skill], -1)).to(self.device)
        if not explore or self.frozen:
            return self.policy(x).cpu().numpy()
        return self.policy.sample(x, self.act_rng).cpu().numpy()

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
        steps, lanes = rollout.reward.shape
        raw = torch.cat(list(rewards.values()), 1)  # (T * N, K)
        metrics |= {f"reward/{name}": r.mean() for name, r in rewards.items()}
        metrics |= {f"reward_std/{name}": r.std() for name, r in rewards.items()}
        advantage, target = self.advantages(rollout, self.scale(raw).view(steps, lanes, -1))  # (T, N, K) each
        metrics |= {"critic/target": target.mean(), "critic/unexplained": self.unexplained(advantage, target)}
        advantage = self.normalize(advantage)
        x, action = torch.cat([rollout.obs, rollout.skill], 2).flatten(0, 1), rollout.action.flatten(0, 1)
        with torch.no_grad():
            old, _ = self.policy.evaluate(self.policy.trace(x)[0], action)  # before the first step changes the policy
        rows = (x, action, old, advantage.flatten(0, 1), target.flatten(0, 1))
        sums: Metrics = {}
        count = self.epochs * self.minibatches
        for index in self.minibatch_rows(len(x), self.epochs):
            for key, value in self.step(*(part[index] for part in rows)).items():
                sums[key] = sums.get(key, 0) + value / count
        if self.normalize_inputs:  # from the next rollout on: this one acted and learned with one and the same
            self.policy.norm.update(x)
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

    def losses(self, log_prob: Tensor, value: Tensor, old: Tensor, advantage: Tensor, target: Tensor):
        """Per stream the clipped surrogate and half the value's squared error, (K,) each; and the ratios (B, 1)."""
        ratio = (log_prob - old).exp().unsqueeze(1)
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        surrogate = -torch.minimum(ratio * advantage, clipped * advantage).mean(0)
        return surrogate, 0.5 * (value - target).square().mean(0), ratio  # a shared head is broadcast

    def step(self, x: Tensor, action: Tensor, old: Tensor, advantage: Tensor, target: Tensor) -> Metrics:
        """One minibatch: the streams' gradients through the surgery, plus the entropy's.

        autograd sees the last, small part alone: losses as functions of log-densities and values. What the streams
        share is gone through once.
        """
        (raw, policy_inputs), (value, value_inputs) = self.policy.trace(x), trace(self.value, self.policy.norm(x))
        log_prob, entropy, d_log_prob, d_entropy = self.policy.slopes(raw, action)
        ends = log_prob.requires_grad_(), value.requires_grad_()
        surrogate, error, ratio = self.losses(*ends, old, advantage, target)
        by_stream = [torch.autograd.grad(s + self.value_weight * e, ends, retain_graph=True)
                     for s, e in zip(surrogate, error, strict=True)]
        policy_grad = [by_log_prob.unsqueeze(1) * d_log_prob for by_log_prob, _ in by_stream]
        policy_grad.append(-self.entropy_weight / len(x) * d_entropy)
        policy_grad = self.policy.pull_back(policy_inputs, torch.stack(policy_grad))  # (K + 1, P)
        value_grad = pull_back(self.value, value_inputs, torch.stack([by_value for _, by_value in by_stream]))
        grads = {name: torch.cat([policy_grad[k], value_grad[k]]) for k, name in enumerate(self.streams)}
        split = policy_grad.shape[1]
        total = self.combine(grads, split)
        total[:split] += policy_grad[-1]
        self.opt.step(total)
        metrics = {f"critic_loss/{name}": error[k].detach() for k, name in enumerate(self.streams)}
        metrics |= {"actor/loss": surrogate.sum().detach(), "actor/entropy": entropy.mean(),
                    "actor/clipped": ((ratio.detach() - 1).abs() > self.clip).float().mean()}
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

"""What learns p(z | s) in fine-tuning: a discrete Soft Actor-Critic over skills (the paper's section
3.4 and Algorithm 3), and the variant of the public code."""

from __future__ import annotations

import copy
import functools
import math
from abc import abstractmethod
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Trainable, descend
from agent.parts.draws import Draws
from agent.parts.networks import mlp, trunk
from agent.parts.optim import follow
from replay_buffer import Batch
from utils import Layers, Positive, Share, Size


def soft_value(q: Tensor, log_p: Tensor, temperature: Tensor | float) -> Tensor:
    """V(s) = sum_z p(z|s) (Q(s, z) - temperature * log p(z|s)); q and log_p (B, n), result (B,
    1)."""
    return (log_p.exp() * (q - temperature * log_p)).sum(1, keepdim=True)


def entropy(log_p: Tensor) -> Tensor:
    return -(log_p.exp() * log_p).sum(1)  # (B,)


class SelectorNetworks(Trainable):
    """An actor with a logit per skill, critics with a value per skill and their slow targets.

    Metrics:
        skills/critic_loss: Squared error of the selector's critics. Healthy: bounded.
        skills/actor_loss: Loss of the selector's actor. Healthy: bounded.
        skills/entropy: Mean entropy of p(z given s) over log n. Healthy: held at target_entropy
            where the temperature is learned.
        skills/temperature: Weight of the entropy in the loss.
        skills/value: Mean Q.
        skills/value_spread: Largest minus smallest Q of a state: what there is to choose between.
            Healthy: far below the value where one step under another skill changes little.
    """

    temperature: Tensor

    def __init__(
        self,
        *,
        obs_dim: int,
        skill_dim: int,
        critics: int,
        hidden_dim: Size,
        layers: Layers,
        lr: Positive,
        target_tau: Share,
        extra_discount: Share,
        temperature: Positive,
        generator: Draws,
    ):
        super().__init__()

        def network() -> nn.Sequential:
            return nn.Sequential(
                trunk(obs_dim, hidden_dim), mlp(*[hidden_dim] * (layers + 1), skill_dim)
            )

        self.actor = network()
        self.critics = nn.ModuleList(network() for _ in range(critics))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_opt = self.adam("actor", self.actor.parameters(), lr)
        self.critic_opt = self.adam("critic", self.critics.parameters(), lr)
        self.tau, self.extra_discount, self.generator = target_tau, extra_discount, generator
        self.register_buffer("temperature", torch.tensor(temperature))

    def log_p(self, obs: Tensor) -> Tensor:
        return F.log_softmax(self.actor(obs), 1)  # (B, n)

    def q(self, critics: Iterable[nn.Module], obs: Tensor) -> Tensor:
        return torch.stack([critic(obs) for critic in critics]).amin(0)  # (B, n)

    @abstractmethod
    def next_value(self, next_obs: Tensor) -> Tensor: ...

    @abstractmethod
    def actor_loss(self, log_p: Tensor, q: Tensor) -> Tensor: ...

    def learn(self, batch: Batch) -> Metrics:
        """One step of critics, actor and targets on the task's reward; `batch.skill` is the one
        that acted."""
        target = self.target(batch)
        chosen = [(critic(batch.obs) * batch.skill).sum(1, keepdim=True) for critic in self.critics]
        critic_loss = functools.reduce(torch.add, [F.mse_loss(q, target) for q in chosen])
        descend(critic_loss, self.critic_opt)
        with torch.no_grad():
            q = self.q(self.critics, batch.obs)
        log_p = self.log_p(batch.obs)
        actor_loss = self.actor_loss(log_p, q)
        self.descend_actor(actor_loss)
        follow(self.targets, self.critics, self.tau)
        spread = (q.amax(1) - q.amin(1)).mean()  # what there is to choose between
        return {
            "skills/critic_loss": critic_loss.detach(),
            "skills/actor_loss": actor_loss.detach(),
            "skills/entropy": entropy(log_p.detach()).mean() / math.log(max(q.shape[1], 2)),
            "skills/value": q.mean(),
            "skills/value_spread": spread,
            "skills/temperature": self.temperature.clone(),
        } | self.after(log_p.detach())

    @torch.no_grad()
    def target(self, batch: Batch) -> Tensor:
        """y = R + gamma^n V(s_n); extra_discount 0.99 repeats the public code, which applies gamma
        once more."""
        return batch.reward + self.extra_discount * batch.discount * self.next_value(batch.next_obs)

    def descend_actor(self, loss: Tensor) -> None:
        descend(loss, self.actor_opt)

    def after(self, log_p: Tensor) -> Metrics:
        return {}


class SkillSAC(SelectorNetworks):
    """Discrete Soft Actor-Critic: twin critics, soft targets, and the actor's expectation in closed
    form.

    learn_temperature holds the mean entropy at `target_entropy` (a share of log n); otherwise it
    stays as given.
    """

    def __init__(
        self,
        *,
        learn_temperature: bool,
        target_entropy: Share,
        lr: Positive,
        skill_dim: int,
        **settings,
    ):
        super().__init__(critics=2, lr=lr, skill_dim=skill_dim, **settings)
        self.target_entropy = target_entropy * math.log(skill_dim)
        self.learn_temperature = learn_temperature
        if learn_temperature:
            self.log_temperature = nn.Parameter(self.temperature.log())
            self.temperature_opt = self.adam("temperature", [self.log_temperature], lr)

    def next_value(self, next_obs: Tensor) -> Tensor:
        return soft_value(self.q(self.targets, next_obs), self.log_p(next_obs), self.temperature)

    def actor_loss(self, log_p: Tensor, q: Tensor) -> Tensor:
        return -soft_value(q, log_p, self.temperature).mean()

    def after(self, log_p: Tensor) -> Metrics:
        """The temperature falls while the entropy is above its target, and rises below it."""
        if self.learn_temperature:
            descend(
                self.log_temperature.exp() * (entropy(log_p).mean() - self.target_entropy),
                self.temperature_opt,
            )
            self.temperature.copy_(self.log_temperature.detach().exp())
        return {}


class ReleaseSelector(SelectorNetworks):
    """The public code's: one critic, the target's maximum, and REINFORCE on a sampled skill without
    a baseline."""

    def __init__(self, *, grad_clip: Positive, **settings):
        super().__init__(critics=1, **settings)
        self.grad_clip = grad_clip

    def next_value(self, next_obs: Tensor) -> Tensor:
        return self.q(self.targets, next_obs).amax(1, keepdim=True)

    def actor_loss(self, log_p: Tensor, q: Tensor) -> Tensor:
        drawn = self.generator.category(log_p.detach()).unsqueeze(1)
        return (
            -(log_p.gather(1, drawn) * q.gather(1, drawn)).mean()
            - self.temperature * entropy(log_p).mean()
        )

    def descend_actor(self, loss: Tensor) -> None:
        grads = torch.autograd.grad(loss, self.actor_opt.parameters)
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        share = (self.grad_clip / (norm + 1e-6)).clamp(max=1)  # as torch's clip_grad_norm_
        self.actor_opt.step_along([share * grad for grad in grads])


ALGORITHMS: dict[str, type[SelectorNetworks]] = {
    "selector": SkillSAC,
    "selector_release": ReleaseSelector,
}

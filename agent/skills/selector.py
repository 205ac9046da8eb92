"""Learned choice of the skill in fine-tuning, p(z | s): the paper's section 3.4 and Algorithm 3."""

from __future__ import annotations

import copy
import functools
import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agent.base import Metrics, Trainable, descend
from agent.keys import arguments, keys_of
from agent.parts.draws import Draws
from agent.parts.networks import mlp, trunk
from agent.parts.optim import follow
from agent.skills.sources import SkillSource, SkillSpace
from replay_buffer import Batch
from utils import Count, Layers, Natural, Positive, Rows, Share, Size, Streams


def epsilon(step: int, *, start: float, end: float, decay: float) -> float:
    """The share of uniform choices: from `start` to `end`, exponentially with time constant
    `decay`."""
    return end + (start - end) * math.exp(-step / decay)


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
        self.actor_opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.actor.parameters(), self.grad_clip)
        self.actor_opt.step()


class Usage:
    """Which skills the last `window` steps used: how many, and how evenly."""

    def __init__(self, count: int, window: int):
        self.recent, self.counts, self.steps = np.full(window, -1), np.zeros(count, int), 0

    def add(self, index: int) -> None:
        slot = self.steps % len(self.recent)
        if self.recent[slot] >= 0:
            self.counts[self.recent[slot]] -= 1
        self.recent[slot] = index
        self.counts[index] += 1
        self.steps += 1

    @property
    def distinct(self) -> int:
        return int((self.counts > 0).sum())

    @property
    def evenness(self) -> float:
        """Entropy of the shares over log n: 0 one skill, 1 all alike."""
        p = self.counts[self.counts > 0] / self.counts.sum()
        return float(-(p * np.log(p)).sum() / math.log(max(len(self.counts), 2)))

    def state_dict(self) -> dict[str, Any]:
        return {"recent": torch.from_numpy(self.recent), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.recent, self.steps = state["recent"].numpy().copy(), state["steps"]
        self.counts = np.bincount(self.recent[self.recent >= 0], minlength=len(self.counts))


class Greedy(SkillSource):
    """The selector in evaluation: the most probable skill."""

    rule = "greedy"
    network: SelectorNetworks

    def __init__(
        self, space: SkillSpace, network: SelectorNetworks, device: torch.device, interval: int
    ):
        super().__init__(space, np.zeros(space.dim, np.float32))
        self.network, self.device, self.interval = network, device, interval

    @torch.no_grad()
    def logits(self, obs: np.ndarray) -> np.ndarray:
        return self.network.actor(torch.from_numpy(obs).to(self.device)).cpu().numpy()  # (n,)

    def due(self, step: int, first: bool) -> bool:
        return first or bool(self.interval and step % self.interval == 0)

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.due(step, first):
            self.skill = self.space.vector(int(self.logits(obs).argmax()))
        return self.skill

    def select_many(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.due(step, first):
            self.many = np.stack([self.space.vector(int(z)) for z in self.logits(obs).argmax(1)])
        return self.many


@dataclass(frozen=True, kw_only=True)
class ExplorationSettings:
    """The schedule of epsilon, in steps."""

    epsilon_start: Share
    epsilon_end: Share
    epsilon_decay: Positive

    def at(self, step: int) -> float:
        return epsilon(
            step, start=self.epsilon_start, end=self.epsilon_end, decay=self.epsilon_decay
        )


class Selector(Greedy):
    """In training: uniform with probability epsilon, else drawn from p(z | s); learns from its own
    batches.

    Metrics:
        skills/epsilon: Share of uniform choices. Healthy: 1 to 0.01.
        skills/distinct_acted: Skills used in the last 5000 steps. Healthy: nearly all, as epsilon
            alone tries them.
        skills/distinct_greedy: Skills that were the most probable one in the last 5000 steps.
            Healthy: what the selector wants.
        skills/evenness_acted: Entropy of the counts of used skills over log n.
        skills/evenness_greedy: Entropy of the counts of most probable skills over log n. Healthy:
            falls as the selector settles.
    """

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        network: SelectorNetworks,
        device: torch.device,
        *,
        interval: Natural,
        batch_size: Rows,
        update_every_steps: Count,
        warmup_steps: int,
        exploration: ExplorationSettings,
        window: Rows,
    ):
        super().__init__(space, network, device, interval)
        self.rng, self.batch_size = rng, batch_size
        self.update_every_steps, self.warmup_steps = update_every_steps, warmup_steps
        self.exploration = exploration
        self.usage = {"acted": Usage(space.dim, window), "greedy": Usage(space.dim, window)}
        self.favourite = 0

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.due(step, first):
            logits = self.logits(obs)
            self.favourite, self.skill = int(logits.argmax()), self.draw(logits, step)
        self._count(self.favourite, self.skill)
        return self.skill

    def select_many(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.due(step, first):
            logits = self.logits(obs)
            self.favourites = logits.argmax(1)
            self.many = np.stack([self.draw(each, step) for each in logits])
        for favourite, skill in zip(self.favourites, self.many, strict=True):
            self._count(int(favourite), skill)
        return self.many

    def draw(self, logits: np.ndarray, step: int) -> np.ndarray:
        """A skill for one state."""
        coin, u = self.rng.random(2)  # two numbers at every choice, whatever comes of them
        if coin < self.exploration.at(step):
            return self.space.vector(int(u * self.space.dim))
        p = np.exp(logits.astype(np.float64) - logits.max()).cumsum()
        return self.space.vector(
            min(int(np.searchsorted(p, u * p[-1], side="right")), self.space.dim - 1)
        )

    def _count(self, favourite: int, skill: np.ndarray) -> None:
        self.usage["acted"].add(int(skill.argmax()))
        self.usage["greedy"].add(favourite)

    def update(self, memory, step: int) -> Metrics:
        due = step >= self.warmup_steps and step % self.update_every_steps == 0 and len(memory) > 0
        return self.improve(memory, step) if due else self.report(step)

    def improve(self, memory, step: int) -> Metrics:
        """One update from a batch of its own."""
        return self.report(step) | self.network.learn(memory.sample(self.batch_size))

    def report(self, step: int) -> Metrics:
        metrics: Metrics = {"skills/epsilon": torch.tensor(self.exploration.at(step))}
        for name, usage in self.usage.items():
            metrics[f"skills/distinct_{name}"] = torch.tensor(float(usage.distinct))
            metrics[f"skills/evenness_{name}"] = torch.tensor(usage.evenness)
        return metrics

    def stand_in(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.space.sample_many(rng, count)

    def evaluation(self, rng: np.random.Generator) -> SkillSource:
        return Greedy(self.space, self.network, self.device, self.interval)

    def state_dict(self) -> dict[str, Any]:
        usage = {name: usage.state_dict() for name, usage in self.usage.items()}
        return {
            **super().state_dict(),
            "network": self.network.state_dict(),
            "favourite": self.favourite,
            "usage": usage,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.network.load_state_dict(state["network"])
        self.favourite = state["favourite"]
        for name, usage in self.usage.items():
            usage.load_state_dict(state["usage"][name])


ALGORITHMS: dict[str, type[SelectorNetworks]] = {
    "selector": SkillSAC,
    "selector_release": ReleaseSelector,
}


def make_selector(
    config: dict[str, Any], space: SkillSpace, obs_dim: int, rng: Streams
) -> Selector:
    """Keys of `skills` go to the networks or to the selector, by the arguments that these take."""
    kind = ALGORITHMS[config["skills"]["name"]]
    settings = {k: v for k, v in config["skills"].items() if k not in ("name", "warmup_frames")}
    own = {k: settings.pop(k) for k in list(settings) if k in keys_of(kind)}
    network = kind(
        obs_dim=obs_dim,
        skill_dim=space.dim,
        generator=Draws(rng.torch("selector"), rng.device),
        **arguments(kind, own),
    ).to(rng.device)
    return Selector(
        space,
        rng.numpy("skills"),
        network,
        rng.device,
        warmup_steps=config["skills"]["warmup_frames"] // config["action_repeat"],
        **arguments(Selector, settings),
    )

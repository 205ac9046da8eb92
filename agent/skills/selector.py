"""Who chooses the skill by p(z | s): epsilon-greedy in training, the most probable one in evaluation
(the paper's section 3.4 and Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agent.base import Metrics
from agent.keys import arguments, keys_of
from agent.learners.compiled import Capture, Job
from agent.parts.draws import Draws
from agent.skills.selector_networks import ALGORITHMS, SelectorNetworks
from agent.skills.sources import SkillSource, SkillSpace
from utils import Count, Natural, Positive, Rows, Share, Streams


def epsilon(step: int, *, start: float, end: float, decay: float) -> float:
    """The share of uniform choices: from `start` to `end`, exponentially with time constant
    `decay`."""
    return end + (start - end) * math.exp(-step / decay)


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
        self.capture: Capture | None = None  # how an update runs; None: as it stands

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
        batch = memory.sample(self.batch_size)
        if self.capture is None:
            return self.report(step) | self.network.learn(batch)
        return self.report(step) | self.capture(self.job(), [batch])

    def job(self) -> Job:
        """An update, for a compiler or a recorder."""
        return Job(
            {"selector": self.network},
            (self.network.generator,),
            lambda batches: self.network.learn(batches[0]),
            self.device,
        )

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

"""One skill for a task, found by trying them (Bandit) or from data that is already there (ByData)."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Interval

from agent.base import Metrics
from agent.skills.sources import SkillSource, SkillSpace
from utils import Count, NonNegative, UserError


class Best(SkillSource):
    """In evaluation: the skill that looks best so far."""

    rule = "best"


class Bandit(SkillSource):
    """Numbered skills are tried while the policy learns; when the budget is spent, the best one
    stays.

    halving: successive halving (Karnin et al. 2013). The budget is shared equally among
    ceil(log2 n) rounds, a round equally among the skills that are left, and the worse half of them,
    by the mean reward of all their steps, leaves after it. ucb: UCB1 (Auer et al. 2002) over trials
    of `trial` steps; a trial's value is its mean reward, and the bonus is `bonus` * sqrt(2 ln t / n).

    Metrics:
        skills/alive: Skills that may still be chosen. Healthy: falls to 1 within the budget.
        skills/best_reward: Mean reward per step of the skill that looks best. Healthy: rises.
    """

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        *,
        method: Literal["halving", "ucb"],
        budget: Count,
        trial: Count,
        bonus: NonNegative,
    ):
        super().__init__(space, np.zeros(space.dim, np.float32))
        self.method, self.budget, self.trial, self.bonus = method, budget, trial, bonus
        self.rng, self.steps = rng, 0
        self.sums, self.counts = np.zeros(space.dim), np.zeros(space.dim, np.int64)
        self.alive = rng.permutation(space.dim).tolist()  # the order of a round's trials
        self.queue: list[int] = []  # skills of this round that were not tried yet
        self.current, self.left = -1, 0  # the skill on trial, and the steps that are left to it
        rounds = max(math.ceil(math.log2(space.dim)), 1)
        self.round_steps = budget // rounds
        if method == "halving" and self.round_steps < space.dim:
            raise UserError(
                f"skills.budget={budget} is too small: {rounds} rounds over {space.dim} skills take "
                f"{rounds * space.dim} steps or more"
            )

    def means(self) -> np.ndarray:
        """Mean reward per step of every skill, (n,); -inf where it was not tried."""
        return np.where(self.counts > 0, self.sums / np.maximum(self.counts, 1), -np.inf)

    def best(self) -> int:
        """Among those that may still be chosen."""
        means = self.means()
        return max(self.alive, key=lambda skill: means[skill])

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.left == 0 and self.current != self.committed:
            self._next_trial()
        return self.skill

    @property
    def committed(self) -> int | None:
        return self.alive[0] if len(self.alive) == 1 else None

    def _next_trial(self) -> None:
        if self.steps >= self.budget:
            self.alive = [self.best()]
        elif self.method == "halving":
            self._next_of_round()
        if self.committed is not None:
            self.current, self.left = self.committed, 0
        elif self.method == "ucb":
            self.current, self.left = self._most_promising(), self.trial
        self.skill = self.space.vector(self.current)

    def _next_of_round(self) -> None:
        if not self.queue:
            if self.counts[self.alive].all():  # a round is over; before the first, none was tried
                means = self.means()
                self.alive.sort(key=lambda skill: -means[skill])
                self.alive = self.alive[: math.ceil(len(self.alive) / 2)]
            self.queue = list(self.alive)
        self.current = self.queue.pop(0)
        self.left = self.round_steps // len(self.alive)

    def _most_promising(self) -> int:
        trials = self.counts / self.trial
        if not trials.all():
            return next(skill for skill in self.alive if not trials[skill])
        bonus = self.bonus * np.sqrt(2 * np.log(trials.sum()) / trials)
        return int((self.means() + bonus).argmax())

    def observe(self, reward: float) -> None:
        self.sums[self.current] += reward
        self.counts[self.current] += 1
        self.steps += 1
        self.left = max(self.left - 1, 0)

    def update(self, memory, step: int) -> Metrics:
        if not self.counts.any():
            return {}
        return {
            "skills/alive": torch.tensor(float(len(self.alive))),
            "skills/best_reward": torch.tensor(self.means()[self.best()]),
        }

    def settled(self) -> np.ndarray:
        return self.space.vector(self.best())

    def evaluation(self, rng: np.random.Generator) -> SkillSource:
        return Best(self.space, self.space.vector(self.best()))

    def stand_in(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Any of the skills that may still be chosen."""
        return np.eye(self.space.dim, dtype=np.float32)[rng.choice(self.alive, size=count)]

    def state_dict(self) -> dict[str, Any]:
        plain = {
            name: getattr(self, name) for name in ("steps", "alive", "queue", "current", "left")
        }
        return {
            **super().state_dict(),
            **plain,
            "sums": self.sums.tolist(),
            "counts": self.counts.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name in ("steps", "alive", "queue", "current", "left"):
            setattr(self, name, state[name])
        self.sums, self.counts = np.array(state["sums"]), np.array(state["counts"], np.int64)


Recent = Annotated[float, Interval(gt=0, le=1)]


class ByData(SkillSource):
    """The skill whose stored transitions would have paid best under the task: no frame of the task
    is spent on finding it. `recent` is the share of the data that counts, the newest: the policy
    behind older transitions was another one."""

    rule = "fixed"

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        *,
        recent: Recent,
        data: tuple[np.ndarray, np.ndarray],
    ):
        skills, rewards = data  # (T, dim), (T,)
        newest = max(round(recent * len(rewards)), 1)
        super().__init__(space, best_by_data(skills[-newest:], rewards[-newest:], space))

    def settled(self) -> np.ndarray:
        return self.skill


def best_by_data(skills: np.ndarray, rewards: np.ndarray, space: SkillSpace) -> np.ndarray:
    """A numbered skill by the mean reward of its steps; where skills are vectors, the one of the
    stretch of steps under one skill that paid best per step."""
    if space.one_hot:
        index = skills.argmax(1)
        counts = np.bincount(index, minlength=space.dim)
        sums = np.bincount(index, rewards, minlength=space.dim)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
        return space.vector(int(means.argmax()))
    changes = np.flatnonzero((skills[1:] != skills[:-1]).any(1)) + 1
    starts = np.concatenate([[0], changes])
    lengths = np.diff(np.append(starts, len(skills)))
    means = np.add.reduceat(rewards.astype(np.float64), starts) / lengths
    whole = lengths >= np.median(lengths)  # a stretch that was cut short says little
    return skills[starts[np.where(whole, means, -np.inf).argmax()]].astype(np.float32)

"""Which skill to act under: one interface in pre-training, fine-tuning and evaluation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from agent.base import Metrics, Trainable
from utils import Natural, UserError

SpaceKind = Literal["none", "one_hot", "cube", "sphere", "gaussian"]


class SkillSpace:
    """Where skills come from: one of `dim` one-hot vectors, or vectors of `dim` numbers."""

    def __init__(self, kind: SpaceKind, dim: int):
        self.kind = kind
        self.dim = 0 if kind == "none" else dim

    @property
    def one_hot(self) -> bool:
        return self.kind == "one_hot"

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        if self.kind == "none":
            return np.zeros(0, np.float32)
        if self.one_hot:
            return self.vector(int(rng.integers(self.dim)))
        if self.kind == "cube":  # U(0, 1)^dim
            return rng.random(self.dim, np.float32)
        normal = rng.standard_normal(self.dim, np.float32)
        return normal / np.linalg.norm(normal) if self.kind == "sphere" else normal

    def sample_many(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """(count, dim)."""
        if self.one_hot:
            return np.eye(self.dim, dtype=np.float32)[rng.integers(self.dim, size=count)]
        return np.stack([self.sample(rng) for _ in range(count)])

    def vector(self, index: int) -> np.ndarray:
        if not self.one_hot:
            raise UserError(
                f"skills.index={index}: a {self.kind} space has no numbered skills; use index -1"
            )
        return np.eye(self.dim, dtype=np.float32)[index]

    def panel(self, rng: np.random.Generator, count: int) -> list[np.ndarray]:
        """Skills that stand for the whole space: every one-hot, else `count` draws, or the empty
        one."""
        if self.one_hot:
            return [self.vector(index) for index in range(self.dim)]
        return [self.sample(rng) for _ in range(count if self.dim else 1)]


SkillIndex = Annotated[int, Interval(ge=-1, le=2**16)]  # -1: a random one


class SkillSource:
    """What all sources share: the space, the current skill, and how it is saved. By itself: no
    skill at all."""

    rule = "none"  # how evaluation draws skills, for eval.csv
    network: Trainable | None = None  # of a source that learns; it goes into snapshots

    def __init__(self, space: SkillSpace, skill: np.ndarray):
        self.space, self.skill = space, skill

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        """The skill to act under now; `first` marks the first step of an episode."""
        return self.skill

    def select_many(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        """The same for N episodes side by side, obs (N, obs_dim): (N, dim). Unless a source says
        more, one for all."""
        return np.tile(self.select(obs[0], step, first=first), (len(obs), 1))

    def update(self, memory, step: int) -> Metrics:
        """Learn, where there is something to learn; called once per step in fine-tuning and
        pre-training."""
        return {}

    def observe(self, reward: float) -> None:
        """What the step under the selected skill was paid."""

    def evaluation(self, rng: np.random.Generator) -> SkillSource:
        """The source that an evaluation uses; it draws from the evaluation's own generator."""
        return self

    def settled(self) -> np.ndarray | None:
        """The one skill that evaluations act under now; None where they draw or choose it."""
        return None

    def stand_in(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Skills such as this source acts under, for transitions that were made under others:
        (count, dim)."""
        return np.tile(self.skill, (count, 1))

    def state_dict(self) -> dict[str, Any]:
        return {"skill": self.skill.tolist()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skill = np.array(state["skill"], np.float32)


class Fixed(SkillSource):
    """One skill throughout; index -1 draws it once."""

    rule = "fixed"

    def __init__(self, space: SkillSpace, rng: np.random.Generator, *, index: SkillIndex):
        if not -1 <= index < max(space.dim, 1):
            raise UserError(
                f"skills.index={index} is outside the {space.dim} skills; "
                f"choose 0 to {space.dim - 1}, or -1 for a random one"
            )
        super().__init__(space, space.sample(rng) if index < 0 else space.vector(index))


class Constant(SkillSource):
    """One and the same vector, every entry `value`: CIC's public rule."""

    rule = "constant"

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        *,
        value: Annotated[float, Interval(ge=-1, le=1)],
    ):
        super().__init__(space, np.full(space.dim, value, np.float32))


class Switching(SkillSource):
    """A new skill at every episode's start and, with interval > 0, whenever the step is a multiple
    of it.

    The step counts over all episodes, as in URLB. `eval`: a fresh skill per evaluation
    episode, one for the whole evaluation (the public code), or switching as in training.
    """

    def __init__(
        self,
        space: SkillSpace,
        rng: np.random.Generator,
        *,
        interval: Natural,
        eval: Literal["per_episode", "switching", "per_call"],
    ):
        super().__init__(space, np.zeros(space.dim, np.float32))
        self.rule = self.eval = eval
        self.rng, self.interval, self.many = rng, interval, np.zeros((0, space.dim), np.float32)

    def due(self, step: int, first: bool) -> bool:
        return first or bool(self.interval and step % self.interval == 0)

    def select(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        if self.due(step, first):
            self.skill = self.space.sample(self.rng)
        return self.skill

    def select_many(self, obs: np.ndarray, step: int, *, first: bool) -> np.ndarray:
        # Episodes side by side start together, so a checkpoint needs no skill of theirs.
        if self.due(step, first):
            self.many = np.stack([self.space.sample(self.rng) for _ in obs])
        return self.many

    def stand_in(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.space.sample_many(rng, count)

    def evaluation(self, rng: np.random.Generator) -> SkillSource:
        if self.eval == "per_call":
            return Fixed(self.space, rng, index=-1)
        interval = self.interval if self.eval == "switching" else 0
        return Switching(self.space, rng, interval=interval, eval=self.eval)

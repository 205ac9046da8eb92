"""Evaluations: whole episodes of the current policy.

They draw from random streams of their own, so that how often a run is evaluated does not change
what it learns.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from agent.skills.sources import SkillSource
from envs import Env
from run import video
from run.directory import RunDirectory
from run.parts import Parts, require_finite
from run.seeing import Sight
from utils import stream_seed

EVAL_SKILLS = 16  # skills drawn for the log of a pre-training whose skills cannot be counted

# observations (N, obs_dim), skills (N, dim) -> actions
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]


class Episode(NamedTuple):
    """What an evaluation keeps of an episode of T steps."""

    total: float  # return
    states: np.ndarray  # (T, obs_dim), after each step; also where the agent sees pixels
    skills: np.ndarray  # (T, skill_dim)


class Lane:
    """An episode of an evaluation while it is played."""

    def __init__(self, env: Env, source: SkillSource, seed: int, sight: Sight | None = None):
        env.seed(seed)
        self.env, self.source, self.last, self.sight = env, source, env.reset(), sight
        self.film: video.Recorder | None = None
        self.total = 0.0
        self.states: list[np.ndarray] = []
        self.skills: list[np.ndarray] = []

    def choose(self) -> np.ndarray:
        step, obs = len(self.states), self.last.observation
        shown = obs if self.sight is None else self.sight.for_choice(self.source, obs)
        return self.source.select(shown, step, first=step == 0)

    def step(self, action: np.ndarray, skill: np.ndarray) -> None:
        self.last = self.env.step(action)
        self.total += self.last.reward
        self.states.append(self.last.observation if self.sight is None else self.env.measured())
        self.skills.append(skill)
        if self.film:
            self.film.add(self.env, skill, self.last.reward)


class Evaluator:
    """Pre-training: each skill once, from one start. Fine-tuning: `num_eval_episodes` episodes of
    the task.

    `act` gives the deterministic action; `pause` is called between steps and may raise, so that a
    signal does not wait for the end of an evaluation.

    Metrics:
        return_mean: Task reward of an episode. Pre-training: each skill once; fine-tuning:
            num_eval_episodes episodes. Healthy: 139 untrained, 360 at frame 20,000, 256 to 325
            after.
        skill_variance: Share of state variance between skills, all from one start: 0 = skills do
            not differ. Healthy: 0.24 at frame 10,000, 0.11 at 20,000, about 0.02 from 70,000 on.
    """

    def __init__(
        self,
        config: dict[str, Any],
        directory: RunDirectory,
        parts: Parts,
        *,
        act: Act,
        pause: Callable[[], None],
    ):
        self.config, self.directory, self.parts = config, directory, parts
        self.act, self.pause = act, pause
        self.episodes: list[Episode] = []  # of the last evaluation

    def evaluate(self, frame: int) -> dict[str, Any]:
        """A row of eval.csv."""
        return self.skills(frame) if self.config["phase"] == "pretrain" else self.task(frame)

    def task(self, frame: int) -> dict[str, Any]:
        """Episodes of the task with mean actions. Their starts depend on nothing but the run's
        seed, the frame and the number of the episode, so that all methods are judged on the same
        ones."""
        seed, rule = self.config["seed"], self.parts.skills.rule
        sources, seeds = [], []
        for i in range(self.config["num_eval_episodes"]):
            # with the rule per_call one draw serves all episodes of the evaluation
            draw = ("eval skills", frame) if rule == "per_call" else ("eval skills", frame, i)
            sources.append(
                self.parts.skills.evaluation(np.random.default_rng(stream_seed(seed, *draw)))
            )
            seeds.append(stream_seed(seed, "eval", frame, i))
        self.play(frame, sources, seeds)
        return self.row(rule)

    def skills(self, frame: int) -> dict[str, Any]:
        """One episode of each skill, or of some draws where they cannot be counted. All begin at
        the same start, so that differences come from the skill."""
        seed, space = self.config["seed"], self.parts.skills.space
        # seeded without the frame: every evaluation has the same draws
        rng = np.random.default_rng(stream_seed(seed, "eval skills"))
        sources = [SkillSource(space, skill) for skill in space.panel(rng, EVAL_SKILLS)]
        self.play(frame, sources, [stream_seed(seed, "eval", frame)] * len(sources))
        return {
            **self.row("each_skill"),
            "skill_variance": explained_variance([e.states for e in self.episodes]),
        }

    def row(self, rule: str) -> dict[str, Any]:
        returns = [episode.total for episode in self.episodes]
        return {
            "return_mean": float(np.mean(returns)),
            "return_std": float(np.std(returns)),
            "skills": rule,
            "episodes": len(returns),
            "returns": " ".join(f"{r:.6g}" for r in returns),
        }

    def describe(self, row: dict[str, Any]) -> tuple[str, str]:
        """An evaluation in a line for the screen, and in a few words for the progress bar."""
        line = f"return {row['return_mean']:8.2f} +- {row['return_std']:.2f}"
        if "skill_variance" in row:
            line += f"  skill variance {row['skill_variance']:.3f}"
        return line, f"eval {row['return_mean']:.1f}"

    def play(self, frame: int, sources: list[SkillSource], seeds: list[int]) -> None:
        """One deterministic episode for each source and seed, as many side by side as there are
        environments. They are left in `episodes`."""
        self.episodes, count = [], len(self.parts.eval_envs)
        for first in range(0, len(seeds), count):
            self.episodes += self._side_by_side(
                frame, sources[first : first + count], seeds[first : first + count]
            )

    def _side_by_side(
        self, frame: int, sources: list[SkillSource], seeds: list[int]
    ) -> list[Episode]:
        limit = self.config["eval_episode_steps"] or math.inf
        with contextlib.ExitStack() as films:
            lanes = [
                Lane(env, source, seed, self.parts.sight)
                for env, source, seed in zip(self.parts.eval_envs, sources, seeds)
            ]
            for number, lane in enumerate(lanes, len(self.episodes)):
                if self.config["save_video"] and number < self.config["video_episodes"]:
                    lane.film = films.enter_context(self._recorder(frame, lane.env, number))
            while going := [
                lane for lane in lanes if not lane.last.last() and len(lane.states) < limit
            ]:
                self.pause()
                obs = np.stack([lane.last.observation for lane in going])
                skills = np.stack([lane.choose() for lane in going])
                for lane, action, skill in zip(going, self.act(obs, skills), skills, strict=True):
                    lane.step(action, skill)
                    require_finite(
                        frame, observation=lane.last.observation, reward=lane.last.reward
                    )
        return [Episode(lane.total, np.array(lane.states), np.array(lane.skills)) for lane in lanes]

    def _recorder(self, frame: int, env: Env, number: int) -> video.Recorder:
        every, fps = video.pace(env, self.config["action_repeat"])
        path = self.directory.path / "videos" / f"eval_{frame}_{number}.mp4"
        return video.Recorder(path, size=self.config["video_size"], fps=fps, every=every)


def explained_variance(groups: list[np.ndarray]) -> float:
    """The share of the variance of states that lies between groups (skills), from 0 to 1, averaged
    over the dimensions that vary."""
    pooled = np.concatenate(groups).astype(np.float64)
    total = ((pooled - pooled.mean(0)) ** 2).sum(0)
    between = sum(len(g) * (g.astype(np.float64).mean(0) - pooled.mean(0)) ** 2 for g in groups)
    varies = total > 1e-12 * len(pooled)
    return float((between[varies] / total[varies]).mean()) if varies.any() else 0.0

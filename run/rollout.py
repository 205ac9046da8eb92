"""The loop for PPO: many episodes side by side, one update per cycle. The rest is the Runner's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.learners.ppo import PPO, Rollout
from agent.skills.selector import Selector
from envs.maze.measures import coverage, mi_grid
from run.evaluation import EVAL_SKILLS, Episode, Evaluator, explained_variance
from run.loop import Runner
from run.parts import require_finite
from utils import stream_seed

# paths (E, T, 2), skills (E,), maze, file
DrawPaths = Callable[[np.ndarray, np.ndarray, str, Path], None]


def maze_measures(maze: str, paths: np.ndarray, skill: np.ndarray) -> dict[str, float]:
    """What paths (E, T, 2) under the skills numbered (E,) show: how much of the maze is covered,
    how much a state tells of its skill, and the share of variance between skills."""
    states, label = paths.reshape(-1, paths.shape[2]), np.repeat(skill, paths.shape[1])
    return {
        "coverage": coverage(states, maze),
        "mi_grid": mi_grid(states, label),
        "skill_variance": explained_variance([states[label == z] for z in np.unique(label)]),
    }


class RolloutEvaluator(Evaluator):
    """All episodes of an evaluation at once. `draw_paths` draws the skills of a pre-training, if
    there is one.

    Metrics:
        coverage: Share of the free 0.25-squares visited at least a 20th as often as under uniform
            visits.
        mi_grid: Information of the square about the skill, in nats, at most log n.
        success: On goals: share of the episodes that reach it.
    """

    draw_paths: DrawPaths | None = None

    def skills(self, frame: int) -> dict[str, Any]:
        """`num_eval_episodes` stochastic episodes of each skill: what they cover, what a state says
        of its skill."""
        space, count = self.parts.skills.space, self.config["num_eval_episodes"]
        panel = space.panel(
            np.random.default_rng(stream_seed(self.config["seed"], "eval skills")), EVAL_SKILLS
        )
        number = np.repeat(np.arange(len(panel)), count)  # (n * count,)
        skill, maze = np.stack(panel)[number], self.parts.eval_envs[0].maze
        paths, _ = self.play_all(frame, len(skill), lambda obs, step: skill, explore=True)
        if self.draw_paths:  # watch them appear
            self.draw_paths(paths, number, maze, self.directory.path / f"skills_{frame}.png")
        return {**self.row("each_skill"), "returns": "", **maze_measures(maze, paths, number)}

    def task(self, frame: int) -> dict[str, Any]:
        """Episodes of the task with mean actions. `success` is the share of them that get a reward
        at least once."""
        skills = self.parts.skills.evaluation(
            np.random.default_rng(stream_seed(self.config["seed"], "eval skills", frame))
        )
        _, total = self.play_all(
            frame,
            self.config["num_eval_episodes"],
            lambda obs, step: skills.select_many(obs, step, first=step == 0),
            explore=False,
        )
        return {**self.row(self.parts.skills.rule), "success": float((total > 0).mean())}

    def describe(self, row: dict[str, Any]) -> tuple[str, str]:
        if "coverage" not in row:
            line, words = super().describe(row)
            return f"{line}  success {row['success']:.2f}", words
        skills = len(self.parts.skills.space.panel(np.random.default_rng(), EVAL_SKILLS))
        return (
            f"coverage {row['coverage']:.2f}  MI {row['mi_grid']:.2f} of {np.log(skills):.2f} nats",
            f"coverage {row['coverage']:.2f}, MI {row['mi_grid']:.2f}",
        )

    def play_all(
        self,
        frame: int,
        count: int,
        choose_skill: Callable[[np.ndarray, int], np.ndarray],
        *,
        explore: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """States (N, T, obs_dim) and returns (N,) of episodes side by side, kept in `episodes` too.
        Actions are drawn from the evaluation's own generator, so that it moves no number of the
        training."""
        learner, seed, env = self.parts.learner, self.config["seed"], self.parts.eval_envs[0]
        rng = np.random.default_rng(stream_seed(seed, "eval actions", frame))
        obs = env.reset(np.random.default_rng(stream_seed(seed, "eval", frame)), count)
        states, skills, total = [], [], np.zeros(count)
        for step in range(env.steps):
            skills.append(choose_skill(obs, step))
            obs, reward = env.step(learner.act(obs, skills[-1], step, explore=explore, rng=rng))
            require_finite(frame, observation=obs, reward=reward)
            states.append(obs)
            total += reward
        paths, chosen = np.stack(states, 1), np.stack(skills, 1)
        self.episodes = [
            Episode(float(t), s, z) for t, s, z in zip(total, paths, chosen, strict=True)
        ]
        return paths, total


class RolloutRunner(Runner):
    """A step of this loop is a whole cycle. Pre-training: a rollout for the objective's networks,
    then a fresh one for the policy (EDL), one skill per episode. Fine-tuning: one rollout, whose
    skills the source chooses step by step; a selector learns from a replay of its own.

    Between cycles no episode is open, so a checkpoint needs nothing of the environment but its
    random stream.
    """

    evaluator_class = RolloutEvaluator
    evaluator: RolloutEvaluator

    @property
    def ppo(self) -> PPO:
        assert isinstance(self.parts.learner, PPO), "the learner of rollouts"
        return self.parts.learner

    @property
    def kept(self) -> tuple[str, ...]:
        return tuple(name for name in super().kept if getattr(self.parts, name) is not None)

    def _advance(self) -> None:
        p = self.parts
        rollouts = self._collect(self.ppo.rollouts_wanted(p.objective))
        if p.learner.due(rollouts, self.step):
            self.logger.add(p.learner.learn(rollouts, p.objective, self.step))
        if p.memory is not None:
            self._teach_selector(rollouts[-1])
        self._require_finite()  # a cycle is long, so each one can afford to look

    def _collect(self, count: int) -> list[Rollout]:
        """`count` rollouts of `env.count` whole episodes. The policy rests meanwhile, so all are
        played at once."""
        p, rows = self.parts, []
        obs = p.env.reset(p.rng.numpy("env"), count * p.env.count)  # (N, obs_dim)
        lane_step = self.step // len(obs)  # steps that each lane has made
        for t in range(p.env.steps):
            if t == 0 or self.config["phase"] == "finetune":
                skill = p.skills.select_many(obs, lane_step + t, first=t == 0)
            action = p.learner.act(obs, skill, lane_step + t, explore=True)
            following, reward = p.env.step(action)
            require_finite(self.frame, observation=following, reward=reward)
            rows.append((obs, action, reward, following, skill))
            p.objective.observe(obs, following)
            obs = following
        self.step += len(obs) * p.env.steps
        self.episodes += len(obs)
        self.logger.add(
            {"episode/return": torch.tensor(float(np.mean(np.sum([row[2] for row in rows], 0))))}
        )
        fields = [
            torch.from_numpy(np.stack(field)).to(self.ppo.device)
            for field in zip(*rows, strict=True)
        ]
        return [
            Rollout(*parts)
            for parts in zip(*(field.split(p.env.count, 1) for field in fields), strict=True)
        ]

    def _teach_selector(self, rollout: Rollout) -> None:
        """The selector's replay takes the episodes one after the other, and the selector makes as
        many updates as it would make over that many single steps."""
        memory, selector = self.parts.replay, self.parts.skills
        assert isinstance(selector, Selector), "who else would need a memory"
        obs, action, reward, following, skill = (
            getattr(rollout, name).cpu().numpy()
            for name in ("obs", "action", "reward", "next_obs", "skill")
        )
        steps, lanes = reward.shape
        for n in range(lanes):
            memory.begin(obs[0, n])
            for t in range(steps):
                memory.add(action[t, n], skill[t, n], float(reward[t, n]), 1.0, following[t, n])
        for _ in range(steps * lanes // selector.update_every_steps):
            self.logger.add(selector.improve(memory, self.step // lanes))

    # -------------------------------------------------------------------------------------- records

    def _env_state(self) -> dict[str, Any]:
        return {}

    def _restore_env(self, state: dict[str, Any] | None) -> None:
        pass

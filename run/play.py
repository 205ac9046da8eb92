"""evaluate(policy, task): whole episodes of any policy on a task, judged as a run judges itself."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import yaml

import envs
from run.cli import own
from run.seeing import render_settings
from utils import UserError, stream_seed


class Acts(Protocol):
    """What is asked of a policy: ours, or any object with this method."""

    def act(self, obs: np.ndarray) -> np.ndarray: ...


class Evaluation(NamedTuple):
    returns: np.ndarray  # (episodes,)
    lengths: np.ndarray  # (episodes,), in steps
    skills: list[np.ndarray | None]  # the skill of each episode; None where the policy chose itself

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        return float(self.returns.std())


def env_name(task: str) -> str:
    """The environment of a task of configs/task, or the name of an environment itself."""
    file = own.yamls("task").get(task)
    return yaml.safe_load(file.read_text())["task"]["env"] if file else task


def evaluate(
    policy: Acts,
    task: str,
    episodes: int = 10,
    seed: int = 1,
    *,
    skill: Any = None,
    steps: int | None = None,
) -> Evaluation:
    """Play deterministic episodes. They begin where the evaluation of a run of this seed begins
    them, at the policy's frame, so that a run's own policy gets its own returns.

    `skill`: for all episodes; without one, the policy's own choice, or a fresh draw per episode.
    """
    if episodes < 1:
        raise UserError(f"episodes={episodes} is not valid; give 1 or more")
    frame, own = getattr(policy, "frame", 0), getattr(policy, "config", {})
    env = make(task, seed, own)
    draws = skill is None and not getattr(policy, "chooses", True)
    returns, lengths, played = [], [], []
    try:
        for number in range(episodes):
            if draws:
                rng = np.random.default_rng(stream_seed(seed, "eval skills", frame, number))
                chosen = policy.space.sample(rng)  # type: ignore[attr-defined]
            else:
                chosen = skill
            env.seed(stream_seed(seed, "eval", frame, number))
            total, length = play(env, policy, chosen, steps)
            returns.append(total)
            lengths.append(length)
            played.append(chosen)
    finally:
        env.close()
    return Evaluation(np.array(returns), np.array(lengths), played)


def make(task: str, seed: int, config: dict[str, Any]) -> envs.Env:
    """As the policy's run had it; of a stranger's, states and no repeated actions."""
    try:
        return envs.make(
            env_name(task),
            seed=seed,
            obs_type=config.get("obs_type", "states"),
            action_repeat=config.get("action_repeat", 1),
            render=render_settings(config),
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def play(env: envs.Env, policy: Acts, skill: Any, steps: int | None) -> tuple[float, int]:
    """One episode: its return and its length."""
    if hasattr(policy, "reset"):
        policy.reset()
    time_step, total, length = env.reset(), 0.0, 0
    while not time_step.last() and (steps is None or length < steps):
        obs = time_step.observation
        action = policy.act(obs) if skill is None else policy.act(obs, skill)  # type: ignore[call-arg]
        time_step = env.step(action)
        total += time_step.reward
        length += 1
    return total, length

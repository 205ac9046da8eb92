"""A task whose best skill is known in every state, to see whether a selector finds it: python -m analysis.contextual

A point drifts on the unit circle, whatever the agent does. The circle has one sector per skill, and a step is worth 1
if the skill is that of the sector, else 0. Only the choice of the skill matters, and the best choice is known.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from tqdm import tqdm

from agent.selector import ALGORITHMS, make_selector
from agent.settings import resolve
from agent.skills import SkillSource, SkillSpace, make_skills
from replay_buffer import ReplayBuffer
from utils import Streams

CONFIGS = str(Path(__file__).resolve().parent.parent / "configs")
EPISODE, DRIFT = 50, 0.5


class Circle:
    """The drifting point; `best` is the skill of its sector. Sectors lie in a random order."""

    def __init__(self, rng: np.random.Generator, skills: int):
        self.rng, self.order = rng, rng.permutation(skills)
        self.angle = 0.0

    def move(self, *, reset: bool) -> np.ndarray:
        self.angle = (self.rng.random() * 2 * np.pi if reset else self.angle + DRIFT * self.rng.normal()) % (2 * np.pi)
        return np.array([np.cos(self.angle), np.sin(self.angle)], np.float32)

    @property
    def best(self) -> int:
        return int(self.order[int(self.angle / (2 * np.pi) * len(self.order)) % len(self.order)])


def settings(regime: str, steps: int) -> dict[str, Any]:
    """The regime's own yaml; its schedule keeps the paper's share of the run (20,000 of 100,000 steps)."""
    sizes = ["skills.hidden_dim=64", f"skills.epsilon_decay={steps // 5}", "skills.warmup_frames=100"]
    with hydra.initialize_config_dir(CONFIGS, version_base="1.3"):
        return resolve(hydra.compose("finetune", ["preset=cpu", "task=walker_run", f"skills={regime}",
                                                  *(sizes if regime in ALGORITHMS else [])]))


def train(regime: str, seed: int, *, skills: int, steps: int, **overrides: Any) -> tuple[float, float]:
    """Share of right choices in evaluation, and mean reward of the last fifth of training."""
    config, rng = settings(regime, steps), Streams(seed)
    config["skills"] |= overrides
    torch.manual_seed(seed)
    space = SkillSpace("one_hot", skills)
    if regime in ALGORITHMS:
        source = make_selector(config, space, 2, rng)
    else:
        source = make_skills(config, space, rng.numpy("skills"))
    memory = ReplayBuffer(obs_dim=2, action_dim=1, skill_dim=skills, rng=rng.numpy("replay"),
                          **{**config["replay"], "capacity": steps + steps // EPISODE + 2})
    circle, rewards = Circle(rng.numpy("circle"), skills), []
    for step in range(steps):
        first = step % EPISODE == 0
        if first:
            obs = circle.move(reset=True)
            memory.begin(obs)
        skill = source.select(obs, step, first=first)
        rewards.append(float(skill.argmax() == circle.best))
        obs = circle.move(reset=False)
        memory.add(np.zeros(1, np.float32), skill, rewards[-1], 1.0, obs)
        source.update(memory, step)
    return accuracy(source, circle, rng.numpy("evaluation")), float(np.mean(rewards[-steps // 5:]))


def accuracy(source: SkillSource, circle: Circle, rng: np.random.Generator, episodes: int = 40) -> float:
    judge, right = source.evaluation(rng), []
    for _ in range(episodes):
        for step in range(EPISODE):
            obs = circle.move(reset=step == 0)
            right.append(judge.select(obs, step, first=step == 0).argmax() == circle.best)
    return float(np.mean(right))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skills", type=int, default=8, help="and sectors (%(default)s)")
    parser.add_argument("--steps", type=int, default=6000, help="of training per run (%(default)s)")
    parser.add_argument("--seeds", type=int, default=5, help="runs per regime (%(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for regime in ("selector", "selector_release", "switching"):
        runs = [train(regime, seed, skills=args.skills, steps=args.steps)
                for seed in tqdm(range(args.seeds), desc=regime, disable=None, leave=False)]
        right, reward = np.array(runs).T
        lines.append(f"| {regime} | {right.mean():.3f} | {right.min():.3f} to {right.max():.3f} | "
                     f"{reward.mean():.3f} |")
    print(f"{args.skills} skills, chance {1 / args.skills:.3f}; {args.steps} steps, {args.seeds} seeds\n")
    print("| skills | right choices | range over seeds | reward per step, last fifth of training |\n|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

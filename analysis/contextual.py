"""Does a selector find the best skill, in a task where it is known for every state?

    python -m analysis.contextual [--out FILE.csv]

A point drifts on the unit circle, whatever the agent does. The circle has one sector per skill, and
a step is worth 1 if the skill is that of the sector, else 0. Only the choice of the skill matters.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

from agent.skills.regimes import make_skills
from agent.skills.selector import make_selector
from agent.skills.selector_networks import ALGORITHMS
from agent.skills.sources import SkillSource, SkillSpace
from analysis.maze.measure import commit_of
from analysis.text import markdown_records
from replay_buffer import ReplayBuffer
from run.cli.console import Parser, at_least
from run.cli.schema import resolve
from run.results import git_state
from utils import CONFIGS, Streams, write_text

EPISODE, DRIFT = 50, 0.5
REGIMES = {  # name in the table: yaml, and what is changed in it
    "selector": ("selector", {}),
    "selector, temperature fixed at 0.01": (
        "selector",
        {"learn_temperature": False, "temperature": 0.01},
    ),
    "selector_release": ("selector_release", {}),
    "switching": ("switching", {}),
}


class Outcome(NamedTuple):
    """Shares of right choices in evaluation, and mean reward of the last fifth of training."""

    right: float
    critic: float  # if the skill of largest Q were chosen instead; NaN without a critic
    reward: float


NUMBERS = ("right", "critic", "reward")


class Circle:
    """The drifting point; `best` is the skill of its sector. Sectors lie in a random order."""

    def __init__(self, rng: np.random.Generator, skills: int):
        self.rng, self.order = rng, rng.permutation(skills)
        self.angle = 0.0

    def move(self, *, reset: bool) -> np.ndarray:
        self.angle = (
            self.rng.random() * 2 * np.pi if reset else self.angle + DRIFT * self.rng.normal()
        ) % (2 * np.pi)
        return np.array([np.cos(self.angle), np.sin(self.angle)], np.float32)

    @property
    def best(self) -> int:
        return int(self.order[int(self.angle / (2 * np.pi) * len(self.order)) % len(self.order)])


def settings(regime: str, steps: int) -> dict[str, Any]:
    """The regime's own yaml; its schedule keeps the paper's share of the run (20,000 of 100,000
    steps)."""
    sizes = [
        "skills.hidden_dim=64",
        f"skills.epsilon_decay={steps // 5}",
        "skills.warmup_frames=100",
    ]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return resolve(
            hydra.compose(
                "finetune",
                [
                    "preset=cpu",
                    "task=walker_run",
                    f"skills={regime}",
                    *(sizes if regime in ALGORITHMS else []),
                ],
            )
        )


def train(regime: str, seed: int, *, skills: int, steps: int, **overrides: Any) -> Outcome:
    config, rng = settings(regime, steps), Streams(seed)
    config["skills"] |= overrides
    torch.manual_seed(seed)
    space = SkillSpace("one_hot", skills)
    source: SkillSource
    if regime in ALGORITHMS:
        source = make_selector(config, space, 2, rng)
    else:
        source = make_skills(config, space, rng.numpy("skills"))
    ring = {k: v for k, v in config["replay"].items() if k not in ("capacity", "on_device")}
    memory = ReplayBuffer(
        obs_dim=2,
        action_dim=1,
        skill_dim=skills,
        rng=rng.numpy("replay"),
        capacity=steps + steps // EPISODE + 2,
        **ring,
    )
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
    return Outcome(
        *accuracy(source, circle, rng.numpy("evaluation")), float(np.mean(rewards[-steps // 5 :]))
    )


@torch.no_grad()
def accuracy(
    source: SkillSource, circle: Circle, rng: np.random.Generator, episodes: int = 40
) -> tuple[float, float]:
    judge, network, chosen, valued = source.evaluation(rng), source.network, [], []
    for _ in range(episodes):
        for step in range(EPISODE):
            obs = circle.move(reset=step == 0)
            chosen.append(judge.select(obs, step, first=step == 0).argmax() == circle.best)
            if network is not None:
                valued.append(
                    int(network.q(network.critics, torch.from_numpy(obs)[None]).argmax())
                    == circle.best
                )
    return float(np.mean(chosen)), float(np.mean(valued)) if valued else float("nan")


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(description=__doc__)
    parser.add_argument(
        "--skills", type=at_least(2, 1024), default=8, help="and sectors (%(default)s)"
    )
    parser.add_argument(
        "--steps", type=at_least(EPISODE), default=6000, help="of training per run (%(default)s)"
    )
    parser.add_argument(
        "--seeds", type=at_least(1), default=5, help="runs per regime (%(default)s)"
    )
    parser.add_argument("--out", type=Path, help="CSV with a row per run")
    return parser.parse_args(arguments)


def records(args: argparse.Namespace) -> list[dict[str, str]]:
    """A row per regime and seed, with the command and the commit behind it."""
    torch.set_num_threads(1)
    command = f"python -m analysis.contextual --skills {args.skills} --steps {args.steps} --seeds {args.seeds}"
    commit = commit_of(git_state())
    rows = []
    for name, (regime, overrides) in REGIMES.items():
        for seed in tqdm(range(args.seeds), desc=name, disable=None, leave=False):
            found = train(regime, seed, skills=args.skills, steps=args.steps, **overrides)
            numbers = dict(zip(NUMBERS, (f"{value:.4f}" for value in found), strict=True))
            about = {"commit": commit, "command": command}
            rows.append({"skills": name, "seed": str(seed), **numbers, **about})
    return rows


def table(rows: list[dict[str, str]]) -> str:
    """Means over seeds, and the range of the right choices."""
    shown = []
    for name in dict.fromkeys(row["skills"] for row in rows):
        numbers = [[float(row[n]) for n in NUMBERS] for row in rows if row["skills"] == name]
        right, critic, reward = np.array(numbers).T
        shown.append(
            {
                "skills": name,
                "right choices (range over seeds)": f"{right.mean():.2f} ({right.min():.2f} to {right.max():.2f})",
                "right if Q chose": "-" if np.isnan(critic).all() else f"{critic.mean():.2f}",
                "reward per step, last fifth of training": f"{reward.mean():.2f}",
            }
        )
    return markdown_records(shown)


def main() -> None:
    args = options()
    rows = records(args)
    print(
        f"{args.skills} skills, chance {1 / args.skills:.3f}; {args.steps} steps, {args.seeds} seeds\n"
    )
    print(table(rows))
    if args.out:
        frame = pd.DataFrame(rows)
        write_text(args.out, frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()

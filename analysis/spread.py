"""How far and how differently the skills of snapshots move, on walker and other bodies.

    python -m analysis.spread SNAPSHOT ... --out ROWS.csv

Every skill plays a few whole episodes with mean actions. A row per snapshot: the share of the states'
variance that lies between skills; how often a state's nearest neighbours of other episodes name its
skill; how far apart the states lie in the features of a random network that is the same for all snapshots
(particle entropy); what each skill is paid by the task of the environment that it was trained in; and
how often the contrastive encoder was right at the end of the training. The mazes have analysis.maze.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.policy import Policy, load_policy, snapshot_of
from agent.skills.sources import SkillSpace
from analysis.maze.estimators import particle_entropy, separability
from analysis.maze.measure import as_text, commit_of, describe
from run.build import make_env
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.evaluation import EVAL_SKILLS, explained_variance
from run.files import read_log, read_result
from utils import load_snapshot, stream_seed, write_text

FEATURES, WIDTH = 16, 128  # of the random network
ACCURACY = "diversity/accuracy"  # of train.csv
EPISODES = 2  # of each skill: its own other episode must not be what names a state
COLUMNS = (
    "domain",
    "agent",
    "variant",
    "seed",
    "skills",
    "frame",
    "skill_variance",
    "separability",
    "random_entropy",
    "contrast_accuracy",
    "return_mean",
    "return_max",
    "returns",
    "commit",
    "command",
)


def random_features(states: np.ndarray, seed: int = 0) -> np.ndarray:
    """States (N, d) through a network that is drawn once and never learns: (N, 16). Inputs are
    neither centred nor scaled, so that snapshots of one body can be compared."""
    rng = np.random.default_rng(stream_seed(seed, "random features"))
    first = rng.normal(size=(states.shape[1], WIDTH)) / np.sqrt(states.shape[1])
    last = rng.normal(size=(WIDTH, FEATURES)) / np.sqrt(WIDTH)
    return np.maximum(states @ first, 0) @ last


def play_skills(
    policy: Policy, config: dict[str, Any], episodes: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """States (T, d) of each episode, the number of its skill (E,) and its return (E,)."""
    seed = config["seed"]
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    panel = space.panel(np.random.default_rng(stream_seed(seed, "eval skills")), EVAL_SKILLS)
    env = make_env(config["domain"]["primal_task"], stream_seed(seed, "spread"), config)
    paths, skills, returns = [], [], []
    try:
        for number, skill in enumerate(panel):
            for episode in range(episodes):
                env.seed(stream_seed(seed, "spread", number, episode))  # no start twice
                time_step, states, total = env.reset(), [], 0.0
                while not time_step.last():
                    time_step = env.step(policy.act(time_step.observation, skill))
                    states.append(time_step.observation)
                    total += time_step.reward
                paths.append(np.stack(states))
                skills.append(number)
                returns.append(total)
    finally:
        env.close()
    return paths, np.array(skills), np.array(returns)


def spread(paths: list[np.ndarray], skills: np.ndarray, seed: int) -> dict[str, float]:
    """What the states (T, d) of episodes under numbered skills (E,) show."""
    states = np.concatenate(paths).astype(float)
    lengths = [len(path) for path in paths]
    label, episode = np.repeat(skills, lengths), np.repeat(np.arange(len(paths)), lengths)
    return {
        "skill_variance": explained_variance([states[label == z] for z in np.unique(label)]),
        "separability": separability(states, label, seed=seed, episode=episode),
        "random_entropy": particle_entropy(random_features(states)),
    }


def contrast_accuracy(run: Path) -> float | str:
    """Mean of the last tenth of train.csv; nothing where the method has no such encoder."""
    kept = [float(row[ACCURACY]) for row in read_log(run / "train.csv") if row.get(ACCURACY)]
    return float(np.mean(kept[-max(len(kept) // 10, 1) :])) if kept else ""


def measure(path: Path, episodes: int) -> dict[str, Any]:
    payload, policy = load_snapshot(path), load_policy(path)
    config, run = payload["config"], path.resolve().parent.parent
    variant, command = describe(config, path)
    paths, skills, returns = play_skills(policy, config, episodes)
    by_skill = [float(returns[skills == z].mean()) for z in np.unique(skills)]
    return {
        "domain": config["domain"]["name"],
        "agent": config["agent"]["name"],
        "variant": variant,
        "seed": config["seed"],
        "skills": len(by_skill),
        "frame": payload["frame"],
        **spread(paths, skills, config["seed"]),
        "contrast_accuracy": contrast_accuracy(run),
        "return_mean": float(np.mean(by_skill)),
        "return_max": max(by_skill),
        "returns": " ".join(f"{value:.1f}" for value in by_skill),
        "commit": commit_of((read_result(run) or {}).get("git")),
        "command": command,
    }


def run(snapshots: list[Path], out: Path, episodes: int) -> None:
    torch.set_num_threads(1)
    rows = [as_text(measure(snapshot_of(path), episodes)) for path in snapshots]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(out, text.getvalue())
    print(text.getvalue(), end="")


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument(
        "snapshots", nargs="+", type=Path, help="of pretrain.py, or run directories"
    )
    parser.add_argument("--out", type=Path, required=True, help="CSV to write")
    parser.add_argument(
        "--episodes", type=at_least(2), default=EPISODES, help="per skill (%(default)s)"
    )
    args = parser.parse_args()
    run_command(lambda: run(args.snapshots, args.out, args.episodes))


if __name__ == "__main__":
    main()

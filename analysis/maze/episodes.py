"""Episodes of skills in the mazes, played by snapshots of PPO, and their measures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from agent.policy import Policy, load_policy, snapshot_of
from agent.skills.sources import SkillSpace
from analysis.maze.estimators import kl_entropy, mi_mine, particle_entropy, separability
from envs.maze.lanes import Lanes
from envs.maze.measures import coverage, mi_grid
from run.evaluation import EVAL_SKILLS
from utils import CONFIGS, UserError, load_snapshot, stream_seed

Act = Callable[[np.ndarray], np.ndarray]


def sampler(policy: Policy | torch.nn.Module, skill: np.ndarray, rng: np.random.Generator) -> Act:
    """Stochastic actions of a loaded policy or of a PPO learner, for skills (E, dim) side by
    side."""
    network = policy.actor if isinstance(policy, Policy) else policy.policy
    device = next(network.parameters()).device

    @torch.no_grad()
    def act(obs: np.ndarray) -> np.ndarray:
        return (
            network.sample(torch.from_numpy(np.concatenate([obs, skill], 1)).to(device), rng)
            .cpu()
            .numpy()
        )

    return act


def walk(lanes: Lanes, act: Act, count: int, rng: np.random.Generator, start=None) -> np.ndarray:
    """States (count, T + 1, 2) of whole episodes, the first one included; `start` None draws it as
    training does."""
    states = [lanes.batch.reset(rng, count, start)]
    for _ in range(lanes.steps):
        states.append(lanes.step(act(states[-1]))[0])
    return np.stack(states, 1)


def play(
    policy: Policy | torch.nn.Module,
    lanes: Lanes,
    skills: np.ndarray,
    episodes: int,
    rng: np.random.Generator,
    start=None,
) -> tuple[np.ndarray, np.ndarray]:
    """`episodes` of each of the skills (n, dim): states as in `walk`, and which skill (n *
    episodes,)."""
    skill = np.repeat(np.arange(len(skills)), episodes)
    return walk(lanes, sampler(policy, skills[skill], rng), len(skill), rng, start), skill


def measures(
    paths: np.ndarray, skill: np.ndarray, maze: str, *, seed: int, mine_steps: int
) -> dict[str, float]:
    """Of states (E, T, 2) and the skill of each episode (E,). mi_shuffled is what mi_grid says of
    as many episodes that know nothing of their skill. Without steps for MINE, which take a minute,
    there is no mi_mine."""
    states, steps = paths.reshape(-1, 2), paths.shape[1]
    label, episode = np.repeat(skill, steps), np.repeat(np.arange(len(skill)), steps)
    shuffled = np.random.default_rng(stream_seed(seed, "maze shuffle")).permutation(skill)
    return {
        "coverage": coverage(states, maze),
        "entropy_particle": particle_entropy(states),
        "entropy_kl": kl_entropy(states),
        **({"mi_mine": mi_mine(states, label, seed=seed, steps=mine_steps)} if mine_steps else {}),
        "mi_grid": mi_grid(states, label),
        "mi_shuffled": mi_grid(states, np.repeat(shuffled, steps)),
        "separability": separability(states, label, seed=seed, episode=episode),
    }


# ---------------------------------------------------------------------------------------- snapshots


class Trained(NamedTuple):
    """What a snapshot of a PPO pre-training on a maze holds."""

    path: Path
    config: dict[str, Any]
    frame: int
    policy: Policy
    lanes: Lanes
    skills: np.ndarray  # (n, dim): every numbered skill, or the draws that evaluations show

    def episodes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """States (E, T, 2) after each step, and skills (E,): what is measured."""
        rng = np.random.default_rng(stream_seed(self.config["seed"], "maze measures"))
        paths, skill = play(self.policy, self.lanes, self.skills, count, rng)
        return paths[:, 1:], skill


def maze_domains() -> dict[str, str]:
    """Domains that are mazes, with their environments."""
    found = (
        yaml.safe_load(path.read_text()) for path in sorted((CONFIGS / "domain").glob("*.yaml"))
    )
    domains = [each.get("domain", each) for each in found]
    return {
        d["name"]: d["primal_task"]
        for d in domains
        if d["primal_task"].startswith("gymnasium:envs.maze:")
    }


def load(path: str | Path) -> Trained:
    path = snapshot_of(path)
    payload = load_snapshot(path)
    config, domain = payload["config"], payload["domain"]
    try:
        lanes = Lanes(config["domain"]["primal_task"], 1)
    except ValueError:
        raise UserError(
            f"{path} was trained on {domain}, which is no maze; give snapshots of domain="
            f"{' or '.join(maze_domains())}"
        ) from None
    if config["learner"]["name"] != "ppo":
        raise UserError(
            f"{path} was trained by learner={config['learner']['name']}, whose policy draws no actions; "
            "give snapshots of learner=ppo"
        )
    if config["phase"] != "pretrain":
        raise UserError(f"{path} was fine-tuned; give snapshots of pretrain.py")
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    panel = space.panel(
        np.random.default_rng(stream_seed(config["seed"], "eval skills")), EVAL_SKILLS
    )
    return Trained(path, config, payload["frame"], load_policy(path), lanes, np.stack(panel))

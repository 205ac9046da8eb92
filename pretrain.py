"""Reward-free pre-training: python pretrain.py agent=amped domain=walker (see --help)."""

from run.signals import hear_early, started_as

if started_as("pretrain"):
    hear_early()  # what follows takes seconds

import functools
from pathlib import Path

import hydra
import numpy as np
from omegaconf import DictConfig

from run.cli.guard import guard
from run.pretraining import pretrain
from utils import CONFIGS


def draw_paths(paths: np.ndarray, skill: np.ndarray, maze: str, file: Path) -> None:
    from analysis.maze.pictures import draw_paths  # matplotlib takes a second

    draw_paths(paths, skill, maze, file)


@hydra.main(config_path=str(CONFIGS), config_name="pretrain", version_base="1.3")
def hydra_main(cfg: DictConfig) -> None:
    guard.task(functools.partial(pretrain, draw_paths=draw_paths), cfg)


def main() -> None:
    guard.launch(hydra_main, "pretrain")


if __name__ == "__main__":
    main()

"""Fine-tuning on a task reward: python finetune.py agent=amped task=walker_run (see --help)."""

from run.signals import hear_early, started_as

if started_as("finetune"):
    hear_early()  # what follows takes seconds

import functools
import sys
from pathlib import Path

import hydra
from omegaconf import DictConfig

from run.cli.guard import guard
from run.finetuning import finetune
from utils import CONFIGS


def draw_choices(path: Path) -> None:
    from analysis.choices import draw  # matplotlib takes a second

    draw(path)


@hydra.main(config_path=str(CONFIGS), config_name="finetune", version_base="1.3")
def hydra_main(cfg: DictConfig) -> None:
    guard.task(functools.partial(finetune, draw_choices=draw_choices), cfg)


def main() -> None:
    if {"--help", "-h"} & set(sys.argv) and not any(word.startswith("task=") for word in sys.argv):
        sys.argv.append("task=walker_run")  # help needs some task to show the keys of a run
    guard.launch(hydra_main, "finetune")


if __name__ == "__main__":
    main()

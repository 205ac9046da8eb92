"""Configs of the user's own, in a directory beside the project's: `--config-dir DIR`.

It may hold agent/, domain/, task/, experiment/ and expert_scores.csv, and the Python modules that
its yamls name. Every command takes the option; processes that a command starts find the directory in
the environment.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from utils import CONFIGS, UserError

VARIABLE = "AMPED_CONFIG_DIR"


def use(directory: str | Path | None) -> None:
    """From now on, in this process and in those that it starts."""
    before = os.environ.pop(VARIABLE, None)
    if before in sys.path:
        sys.path.remove(before)
    if directory is None:
        return
    path = Path(directory).absolute()
    if not path.is_dir():
        raise UserError(
            f"--config-dir {directory} is no directory; give one that holds agent/, domain/ or task/"
        )
    os.environ[VARIABLE] = str(path)
    sys.path.append(str(path))  # behind ours: a file there replaces none of the project's modules


def directory() -> Path | None:
    found = os.environ.get(VARIABLE)
    return Path(found) if found else None


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-dir",
        metavar="DIR",
        help="your own agent/, domain/, task/, experiment/ and expert_scores.csv",
    )


def yamls(group: str) -> dict[str, Path]:
    """The yamls of a group by name, the user's own among them."""
    found: dict[str, Path] = {}
    for folder in (CONFIGS, directory()):
        if folder is not None:
            found |= {path.stem: path for path in sorted((folder / group).glob("*.yaml"))}
    return dict(sorted(found.items()))


def options() -> list[str]:
    """What a command of ours is told, so that it finds the same configs."""
    found = directory()
    return ["--config-dir", str(found)] if found else []


def search_words() -> list[str]:
    """What hydra.compose is told."""
    found = directory()
    return [f"hydra.searchpath=['file://{found}']"] if found else []

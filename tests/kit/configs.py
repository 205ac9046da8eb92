"""Configs as the command line composes them, and the names that the yamls define."""

from __future__ import annotations

import copy
import functools
from typing import Any

import hydra
from omegaconf import DictConfig

from run.cli.schema import resolve
from utils import CONFIGS

AGENTS = sorted(path.stem for path in (CONFIGS / "agent").glob("*.yaml"))
PRETRAINED = [agent for agent in AGENTS if agent != "ddpg"]


def composed(phase: str, *words: str) -> dict[str, Any]:
    """The config of `python <phase>.py <words>`, resolved and checked.

    It is the paper's size unless the words name another preset.
    """
    return copy.deepcopy(_composed_once(phase, words))


@functools.cache
def _composed_once(phase: str, words: tuple[str, ...]) -> dict[str, Any]:
    return resolve(unchecked(phase, *words))


def unchecked(phase: str, *words: str) -> DictConfig:
    """As Hydra composes it, before anything is resolved or checked."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(phase, list(words))

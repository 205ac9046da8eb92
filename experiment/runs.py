"""Runs before they are run: from a command's words to its config, its directory and its state."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import torch
import yaml
from omegaconf import DictConfig

from experiment.labels import label
from run import machine
from run.cli import own
from run.cli.schema import require_valid, resolve
from run.cli.words import check_words, parse_value, quote_words
from run.directory import RunDirectory
from run.paths import run_path, variant_name
from utils import CONFIGS, UserError, choose

FIRST, LAST = ("agent", "domain", "task", "preset"), ("seed", "run_root")  # of a command's words


class Run(NamedTuple):
    """One run of an experiment. `words` is what the script is told, `point` where the run lies in
    the grid of its experiment."""

    method: str
    point: dict[str, str]
    words: list[str]
    config: dict[str, Any]
    device: torch.device
    path: Path
    after: Path | None = None  # the pre-training whose snapshot a fine-tuning starts from

    @property
    def label(self) -> str:
        return label(self.method)

    @property
    def phase(self) -> str:
        return self.config["phase"]

    @property
    def name(self) -> str:
        return ", ".join([self.label, *spell(self.point)])

    @property
    def command(self) -> str:
        return shlex.join(["python", f"{self.phase}.py", *own.options(), *self.words])

    @property
    def state(self) -> str:
        directory = RunDirectory(self.path, self.config)
        if directory.finished or not (self.path / "config.yaml").exists():
            return "finished" if directory.finished else "missing"
        newest = directory.checkpoints()[:1]
        return f"unfinished ({int(newest[0].stem.partition('_')[2]) if newest else 0:,})"

    def snapshot(self, frame: int | None = None) -> Path:
        return RunDirectory(self.path, self.config).snapshot_path(
            self.config["num_train_frames"] if frame is None else frame
        )


def spell(point: dict[str, str]) -> list[str]:
    """{"skill_dim": "6", "seed": "1"} -> ["6 skills", "seed 1"]."""
    forms = {"domain": "{}", "task": "{}", "skill_dim": "{} skills", "seed": "seed {}"}
    return [forms.get(key, key + "={}").format(value) for key, value in point.items()]


def as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def order(words: dict[str, str]) -> list[str]:
    """The words of a command in a fixed order: agent, domain or task, and preset first, the seed
    last. Paths are quoted as the scripts quote them."""
    middle = [key for key in words if key not in FIRST + LAST]
    return quote_words([f"{key}={words[key]}" for key in (*FIRST, *middle, *LAST) if key in words])


def compose(words: list[str], phase: str = "pretrain") -> DictConfig:
    check_words(words)
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose(phase, [*words, *own.search_words()])


def tasks() -> dict[str, dict[str, str]]:
    """Every task by its name, with its name, domain and environment."""
    return _tasks(tuple(own.yamls("task").values()))


@functools.cache
def _tasks(paths: tuple[Path, ...]) -> dict[str, dict[str, str]]:
    found = [yaml.safe_load(path.read_text())["task"] for path in paths]
    return {task["name"]: task for task in found}


def tasks_of(domain: str) -> list[str]:
    return [name for name, task in tasks().items() if task["domain"] == domain]


def composed(phase: str, words: tuple[str, ...]) -> tuple[dict[str, Any], torch.device]:
    return _composed(phase, words, own.directory())


@functools.lru_cache(maxsize=512)
def _composed(
    phase: str, words: tuple[str, ...], _: Path | None
) -> tuple[dict[str, Any], torch.device]:
    return machine.settle_machine(resolve(compose(list(words), phase)))


def config_of(phase: str, words: dict[str, str]) -> tuple[dict[str, Any], torch.device]:
    """The config as the script would compose it. Composing takes Hydra a tenth of a second, and an
    experiment may have a thousand runs: those that differ only in their seed, or in their task
    within a domain, are composed once."""
    words = dict(words)
    own: dict[str, Any] = {}
    if "seed" in words:
        own["seed"] = require_valid("seed", parse_value("seed", words.pop("seed")))
    if "task" in words:
        own["task"] = tasks()[choose("task", words["task"], tuple(tasks()))]
        words["task"] = tasks_of(own["task"]["domain"])[0]
    config, device = composed(phase, tuple(order(words)))
    return {**config, **own}, device


def pretraining(method: str, point: dict[str, str], words: dict[str, str]) -> Run:
    config, device = config_of("pretrain", words)
    listed = order(words)
    return Run(method, point, listed, config, device, run_path(config, listed))


def finetuning(
    method: str, point: dict[str, str], words: dict[str, str], source: Run | None
) -> Run:
    """The fine-tuning that starts from `source`. Where its words alone would lead to another
    pre-training, pretrain_variant= names this one."""
    config, device = config_of("finetune", words)
    if source is not None and source.path.parts[-2] != (
        config["variant"] or variant_name(config, order(words), method_only=True)
    ):
        words = {**words, "pretrain_variant": source.path.parts[-2]}
    if config["agent"]["objective"] is not None and source is None:
        raise UserError(
            f"{method} on {config['task']['name']} has no pre-training in this experiment"
        )
    listed = order(words)
    return Run(
        method,
        point,
        listed,
        config,
        device,
        run_path(config, listed),
        source.path if source else None,
    )

"""Experiments: configs/experiment/<name>.yaml -> the exact list of its runs, each with its command and directory.

    methods: [diayn, {label: AMPED without surgery, agent: amped, surgery: sum}]   an agent, or words for pretrain.py
    grid: {domain: tree_maze, skill_dim: [5, 10], seed: [1, 2]}                    every combination; or a list of grids
    preset: cpu, or {name: cpu, num_train_frames: 1250000}                         the size; preset= replaces all of it
    figure: {kind: ..., ...}                                                       how to show them (analysis.figure)
"""

from __future__ import annotations

import difflib
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import torch
import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

import pretrain
from agent import build
from agent.cli import one_line, quote_paths
from agent.rundir import RunDirectory, run_path
from agent.settings import resolve
from analysis.maze_episodes import CONFIGS
from utils import UserError

KEYS = ("title", "preset", "methods", "grid", "figure")
LABELS = {"amped": "AMPED", "amped_literal": "AMPED literal", "amped_release": "AMPED release", "becl": "BeCL",
          "cesd": "CeSD", "cic": "CIC", "comsd": "ComSD", "diayn": "DIAYN"}  # as the paper writes them
FIRST, LAST = ("agent", "domain", "preset"), ("seed", "run_root")  # of a command's words

Grid = dict[str, list[str]]


class Run(NamedTuple):
    """A pre-training: `words` is what pretrain.py is told, `point` where it lies in the grid."""

    label: str
    point: dict[str, str]
    words: list[str]
    config: dict[str, Any]
    device: torch.device
    path: Path

    @property
    def name(self) -> str:
        return ", ".join([self.label, *spell(self.point)])

    @property
    def command(self) -> str:
        return shlex.join(["python", "pretrain.py", *self.words])

    @property
    def state(self) -> str:
        directory = RunDirectory(self.path, self.config)
        if directory.finished or not (self.path / "config.yaml").exists():
            return "finished" if directory.finished else "missing"
        newest = directory.checkpoints()[:1]
        return f"unfinished ({int(newest[0].stem.partition('_')[2]) if newest else 0:,})"

    def snapshot(self, frame: int | None = None) -> Path:
        return RunDirectory(self.path, self.config).snapshot_path(
            self.config["num_train_frames"] if frame is None else frame)


class Experiment(NamedTuple):
    name: str
    title: str
    runs: list[Run]
    figure: dict[str, Any]


def spell(point: dict[str, str]) -> list[str]:
    """{"skill_dim": "6", "seed": "1"} -> ["6 skills", "seed 1"]."""
    forms = {"domain": "{}", "skill_dim": "{} skills", "seed": "seed {}"}
    return [forms.get(key, key + "={}").format(value) for key, value in point.items()]


def as_word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def as_list(value: Any) -> list:
    return value if isinstance(value, list) else [value]


# ------------------------------------------------------------------------------------------------------- reading


def names() -> list[str]:
    return sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))


def read(name: str) -> dict[str, Any]:
    """One of configs/experiment, or a yaml file of the user's own."""
    own = name.endswith(".yaml")
    path = Path(name) if own else CONFIGS / "experiment" / f"{name}.yaml"
    if not path.exists() or (not own and name not in names()):
        close = difflib.get_close_matches(name, names(), 1)
        raise UserError(f"experiment={name} is not known; choose from {', '.join(names())}, or give a FILE.yaml"
                        + (f" (did you mean {close[0]}?)" if close else ""))
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or set(found) != set(KEYS):
        raise UserError(f"{path} must have the keys {', '.join(KEYS)}, and no others")
    if not isinstance(found["figure"], dict) or not all(isinstance(g, dict) for g in as_list(found["grid"])):
        raise UserError(f"{path}: figure is a mapping, grid a mapping or a list of mappings")
    return found


def split_words(words: list[str]) -> dict[str, str]:
    given = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise UserError(f"{word} is not key=value")
        if key in given:
            raise UserError(f"{key}= is given twice")
        given[key] = value
    return given


def make_methods(entries: list, chosen: str | None) -> list[tuple[str, dict[str, str]]]:
    """Label and words of each; `chosen` picks some by label or agent, or brings agents that are not in the list."""
    methods = {}
    for entry in entries:
        words = {"agent": entry} if isinstance(entry, str) else {k: as_word(v) for k, v in entry.items()}
        if "agent" not in words:
            raise UserError(f"method {entry} has no agent")
        methods[words.pop("label", LABELS.get(words["agent"], words["agent"]))] = words
    if chosen is None:
        return list(methods.items())
    known = {name.lower(): label for label, words in methods.items()
             for name in ((label, words["agent"]) if len(words) == 1 else (label,))}
    picked = [known.get(name.lower(), name) for name in dict.fromkeys(chosen.split(","))]
    return [(LABELS.get(label, label), methods.get(label, {"agent": label})) for label in picked]


def make_grids(entries: Any, given: dict[str, str]) -> list[Grid]:
    """With the values on the command line in place of a key's own. A key that tells several grids apart picks among
    them instead: domain=tree_maze leaves the grid of that maze."""
    grids = [{key: list(dict.fromkeys(map(as_word, as_list(values)))) for key, values in entry.items()}
             for entry in as_list(entries)]
    keys = [key for key in given if any(key in grid for grid in grids)]
    known = {key: {value for grid in grids for value in grid.get(key, [])} for key in keys}
    for key in sorted(keys, key=lambda key: not set(given[key].split(",")) <= known[key]):  # first those that may pick
        values = list(dict.fromkeys(given[key].split(",")))
        own = [grid.get(key, []) for grid in grids]
        if all(each == own[0] for each in own):
            grids = [{**grid, key: values} for grid in grids]
            continue
        kept = [{**grid, key: [v for v in grid.get(key, []) if v in values]} for grid in grids]
        choices = list(dict.fromkeys(itertools.chain(*own)))
        if missing := [value for value in values if value not in choices]:
            raise UserError(f"{key}={','.join(missing)} is in no grid; choose from {', '.join(choices)}")
        grids = [grid for grid in kept if grid[key]]
    return grids


# ----------------------------------------------------------------------------------------------------- composing


def compose(words: list[str]) -> DictConfig:
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("pretrain", words)


def order(words: dict[str, str]) -> list[str]:
    """Agent, domain and preset first, the seed last; paths quoted as pretrain.py quotes them."""
    middle = [key for key in words if key not in FIRST + LAST]
    return quote_paths([f"{key}={words[key]}" for key in (*FIRST, *middle, *LAST) if key in words])


def make_run(label: str, point: dict[str, str], words: list[str]) -> Run:
    config, device = build.settle_machine(resolve(compose(words)))
    return Run(label, point, words, config, device, run_path(config, words))


def train(words: list[str]) -> None:
    """One run as `python pretrain.py` makes it, in a process of its own."""
    pretrain.pretrain(compose(words), words)


def load(words: list[str]) -> Experiment:
    """experiment=NAME and any other key=value. A key of the grid replaces its values, methods= picks, figure.* is for
    the drawing; everything else goes to every run."""
    given = split_words(words)
    if "experiment" not in given:
        raise UserError(f"experiment= is missing; choose from {', '.join(names())}")
    name = given.pop("experiment")
    found = read(name)
    if "agent" in given:
        raise UserError("agent= is what the methods differ in; give methods=AGENT,AGENT")
    methods, grids = make_methods(found["methods"], given.pop("methods", None)), make_grids(found["grid"], given)
    figure = {**found["figure"], **{key[7:]: yaml.safe_load(given.pop(key)) for key in list(given)
                                    if key.startswith("figure.")}}
    keys = {key for grid in grids for key in grid}
    size = found["preset"] if isinstance(found["preset"], dict) else {"name": found["preset"]}
    size = {"preset" if key == "name" else key: as_word(value) for key, value in size.items() if "preset" not in given}
    shared = {**size, **{key: value for key, value in given.items() if key not in keys}}
    points = [dict(zip(grid, values, strict=True)) for grid in grids for values in itertools.product(*grid.values())]
    try:
        runs = [make_run(label, point, order({**point, **own, **shared})) for point in points for label, own in methods]
    except (HydraException, OmegaConfBaseException) as error:
        line = re.sub("--help lists the keys and groups", "python pretrain.py --help lists them; " + (
            f"{name} itself has methods, {', '.join(sorted(keys))} and figure.{{{','.join(found['figure'])}}}"),
            one_line(error))
        raise UserError(line) from error
    for one, other in itertools.combinations(runs, 2):
        if one.path == other.path:
            raise UserError(f"{one.name} and {other.name} would be the same run; change or drop one")
    for run in runs:
        RunDirectory(run.path, run.config).check()
    return Experiment(Path(name).stem, found["title"], runs, figure)

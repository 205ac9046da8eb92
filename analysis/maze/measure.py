"""A row of measures per snapshot: its run, its command, and what the estimators say of its
episodes."""

from __future__ import annotations

import argparse
import csv
import io
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hydra
import numpy as np
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from analysis.maze.episodes import Trained, maze_domains, measures, walk
from envs.maze.geometry import EPISODE_STEPS, uniform
from envs.maze.lanes import Lanes
from run.cli.schema import flatten
from run.directory import SILENT, variant_name
from run.results import git_state
from utils import CONFIGS, UserError, read_json, stream_seed, write_text

MINE_STEPS = 20_000  # of MINE's network, for a row
COLUMNS = (
    "domain",
    "agent",
    "variant",
    "seed",
    "skills",
    "frame",
    "env_steps",
    "coverage",
    "entropy_particle",
    "entropy_kl",
    "mi_mine",
    "mi_grid",
    "mi_shuffled",
    "separability",
    "commit",
    "command",
)
KEY = ("domain", "agent", "variant", "seed", "frame")  # one row each


def recover_overrides(config: dict[str, Any], words: list[str]) -> list[str]:
    """What pretrain.py must be told beside `words` for the settings of a snapshot, which holds them
    and not the words that made them. One that differs is overridden until none does; those that
    others are made from come first."""
    wanted, overrides, settled = flatten(config), [], SILENT | {"variant", "seed"}
    while True:
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            now = flatten(
                OmegaConf.to_container(hydra.compose("pretrain", words + overrides), resolve=True)
            )
        differ = [key for key in now.keys() & wanted.keys() - settled if now[key] != wanted[key]]
        if not differ:
            return overrides
        key = min(
            differ,
            key=lambda key: (key != "surgery.name", "." in key, not key.startswith("preset."), key),
        )
        value = (
            wanted[key]
            if isinstance(wanted[key], str)
            else json.dumps(wanted[key], separators=(",", ":"))
        )
        overrides.append(f"{'surgery' if key == 'surgery.name' else key}={value}")
        settled = settled | {key}


def describe(trained: Trained) -> tuple[str, str]:
    """The run's variant, and the command that makes it."""
    config = trained.config
    words = [f"{name}={config[name]['name']}" for name in ("agent", "domain", "preset")]
    try:
        overrides = recover_overrides(config, words)
    except (
        HydraException,
        OmegaConfBaseException,
    ):  # an agent or domain from somebody's --config-dir
        overrides, words = [f"skill_dim={config['skill_dim']}"], ["--config-dir", "DIR", *words]
    command = [*words, *overrides, f"seed={config['seed']}"]
    if config["variant"]:
        command.append(f"variant={config['variant']}")
    run = trained.path.resolve().parent.parent
    placed = run.name == f"seed_{config['seed']}" and (run / "config.yaml").exists()
    variant = config["variant"] or (run.parent.name if placed else variant_name(config, overrides))
    return variant, shlex.join(["python", "pretrain.py", *command])


def commit_of(git: dict[str, Any] | None) -> str:
    return "" if git is None else git["commit"] + "-dirty" * git["dirty"]


# --------------------------------------------------------------------------------------------- rows


def measure_snapshot(trained: Trained, args: argparse.Namespace) -> dict[str, Any]:
    """`commit` is that of the code that trained the run: a finished one says it in result.json."""
    config, frame = trained.config, trained.frame
    variant, command = describe(trained)
    result = trained.path.resolve().parent.parent / "result.json"
    values = measures(
        *trained.episodes(args.episodes),
        trained.lanes.maze,
        seed=config["seed"],
        mine_steps=args.mine_steps,
    )
    return {
        "domain": config["domain"]["name"],
        "agent": config["agent"]["name"],
        "variant": variant,
        "seed": config["seed"],
        "skills": len(trained.skills),
        "frame": frame,
        "env_steps": frame // config["action_repeat"],
        **values,
        "commit": commit_of(read_json(result).get("git") if result.exists() else None),
        "command": command,
    }


def measure_bound(kind: str, domain: str, args: argparse.Namespace) -> dict[str, Any]:
    """floor: uniform actions in episodes with a skill that they ignore. ceiling: as many states,
    uniform over the free cells, each with a skill drawn at random."""
    domains = maze_domains()
    if domain not in domains:
        raise UserError(f"--{kind} {domain}: no maze; choose from {', '.join(domains)}")
    if not args.skills:
        raise UserError(
            f"--{kind} needs --skills N, the number of skills of the runs it stands beside"
        )
    rng = np.random.default_rng(stream_seed(args.seed, f"maze {kind}"))
    lanes, skill = Lanes(domains[domain], 1), np.repeat(np.arange(args.skills), args.episodes)
    if kind == "floor":
        paths = walk(lanes, lambda obs: rng.uniform(-1, 1, obs.shape), len(skill), rng)[:, 1:]
    else:
        paths = uniform(lanes.maze, rng, len(skill) * EPISODE_STEPS)[
            :, None
        ]  # (N, 1, 2): no two states are related
        skill = rng.integers(args.skills, size=len(paths))
    command = [
        "python",
        "-m",
        "analysis.maze",
        "measure",
        f"--{kind}",
        domain,
        "--skills",
        args.skills,
        "--seed",
        args.seed,
        "--episodes",
        args.episodes,
        "--mine-steps",
        args.mine_steps,
        "--out",
        args.out.name,
    ]
    return {
        "domain": domain,
        "agent": {"floor": "random", "ceiling": "uniform"}[kind],
        "variant": f"skill_dim={args.skills}",
        "seed": args.seed,
        "skills": args.skills,
        "frame": 0,
        "env_steps": 0,
        **measures(paths, skill, lanes.maze, seed=args.seed, mine_steps=args.mine_steps),
        "commit": commit_of(git_state()),
        "command": shlex.join(map(str, command)),
    }


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise UserError(f"{path} has other columns than these measures; give --out another file")
    return rows


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {
        name: f"{value:.4f}" if isinstance(value, float) else str(value)
        for name, value in row.items()
    }


def write_rows(path: Path, rows: Iterable[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def put_row(path: Path, row: dict[str, Any]) -> None:
    """Into the CSV, in place of the row with the same KEY if there is one."""
    row = as_text(row)
    rows = {tuple(old[name] for name in KEY): old for old in read_rows(path)}
    rows[tuple(row[name] for name in KEY)] = row
    write_rows(path, rows.values())
    print("  ".join(f"{name} {row[name]}" for name in (*KEY, *COLUMNS[7:14])), flush=True)

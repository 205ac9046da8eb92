"""A row of measures per snapshot: which run it is, the command that made it, and its measures."""

from __future__ import annotations

import argparse
import csv
import io
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from analysis.frames.lines import read_table
from analysis.maze.episodes import Trained, maze_domains, measures, walk
from envs.maze.geometry import EPISODE_STEPS, uniform
from envs.maze.lanes import Lanes
from run.cli.console import printable
from run.files import Damaged, read_result
from run.paths import ONCE_NAMED, SILENT, variant_name
from run.results import git_state
from utils import CONFIGS, UserError, stream_seed, write_text

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
NUMBERS = COLUMNS[3:14]
KEY = ("domain", "agent", "variant", "seed", "frame")  # one row each


def overridden(config: dict[str, Any], directory: str) -> list[str]:
    """The words of the run's command that are neither its agent, domain, preset, seed and variant
    nor about the machine. A snapshot from before runs kept their words has them only in the name of
    its directory, `cpu,beta=0,skill_dim=6`, where special characters became underscores."""
    if "overrides" not in config:
        return re.split(r",(?=[^,=]+=)", directory)[1:]
    known = SILENT - ONCE_NAMED | {"agent", "domain", "preset", "seed", "variant"}
    return [word for word in config["overrides"] if word.partition("=")[0] not in known]


def describe(config: dict[str, Any], snapshot: Path) -> tuple[str, str]:
    """The variant of the run that left a snapshot, and the command that makes it."""
    run = snapshot.resolve().parent.parent
    placed = run.name == f"seed_{config['seed']}" and (run / "config.yaml").exists()
    overrides = overridden(config, run.parent.name if placed else "")
    groups = {group: config[group]["name"] for group in ("agent", "domain", "preset")}
    words = [f"{group}={name}" for group, name in groups.items()]
    if not all((CONFIGS / group / f"{name}.yaml").exists() for group, name in groups.items()):
        words = ["--config-dir", "DIR", *words]  # an agent or domain of somebody's own
    command = [*words, *overrides, f"seed={config['seed']}"]
    if config["variant"]:
        command.append(f"variant={config['variant']}")
    variant = config["variant"] or (run.parent.name if placed else variant_name(config, overrides))
    return variant, shlex.join(["python", "pretrain.py", *command])


def commit_of(git: dict[str, Any] | None) -> str:
    if git is None:
        return ""
    return f"{git['commit']}-dirty" if git.get("dirty") else git["commit"]


# --------------------------------------------------------------------------------------------- rows


def measure_snapshot(trained: Trained, args: argparse.Namespace) -> dict[str, Any]:
    """The row of a snapshot. `commit` is that of the code that trained the run, which only a
    finished one tells, in result.json."""
    config, frame = trained.config, trained.frame
    variant, command = describe(config, trained.path)
    result = read_result(trained.path.resolve().parent.parent) or {}
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
        "commit": commit_of(result.get("git")),
        "command": command,
    }


def measure_bound(kind: str, domain: str, args: argparse.Namespace) -> dict[str, Any]:
    """The row of a bound, to compare runs with. floor: uniform actions, which ignore the skill of
    their episode. ceiling: as many states, uniform over the maze, each with a skill drawn at
    random."""
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
        states = uniform(lanes.maze, rng, len(skill) * EPISODE_STEPS)
        paths = states[:, None]  # (N, 1, 2): each an episode of its own, as no two are related
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
    try:
        columns, rows = read_table(path)
    except Damaged as error:
        raise UserError(f"{path} cannot be read ({error}); give --out another file") from error
    if tuple(columns) != COLUMNS:
        raise UserError(f"{path} has other columns than these measures; give --out another file")
    if any(None in row or None in row.values() for row in rows):
        raise UserError(f"{path} has a row of another length; give --out another file")
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
    """Write the row into the CSV, in place of the row with the same KEY if there is one."""
    text = as_text(row)
    rows = {tuple(old[name] for name in KEY): old for old in read_rows(path)}
    rows[tuple(text[name] for name in KEY)] = text
    write_rows(path, rows.values())
    shown = "  ".join(f"{name} {text[name]}" for name in (*KEY, *COLUMNS[7:14]))
    print(printable(shown), flush=True)

"""Measures and pictures of skills in mazes, from PPO's snapshots: python -m analysis.maze measure|draw|missed --help

A row of measures comes from stochastic whole episodes of every skill from the start distribution, a picture from
episodes that all begin at START. Both draw from random streams of their own, made from the run's seed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import torch
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agent.cli import run_command
from agent.console import Parser, at_least
from agent.results import git_state
from agent.rundir import SILENT, variant_name
from agent.settings import flatten
from analysis.estimators import coverage, covered, mi_grid
from analysis.maze_episodes import CONFIGS, Trained, load, maze_domains, measures, play, walk
from analysis.maze_pictures import TRAJECTORIES, Panel, draw_figure
from envs.lanes import Lanes
from envs.maze import IDS
from envs.maze_geometry import EPISODE_STEPS, uniform
from utils import Policy, UserError, read_json, stream_seed, write_text

EPISODES, MINE_STEPS = 100, 20_000  # of a row: per skill; of MINE's network
START = (0.0, -0.5)  # of a picture's episodes: EDL's notebooks start there
COLUMNS = ("domain", "agent", "variant", "seed", "skills", "frame", "env_steps", "coverage", "entropy_particle",
           "entropy_kl", "mi_mine", "mi_grid", "mi_shuffled", "separability", "commit", "command")
KEY = ("domain", "agent", "variant", "seed", "frame")  # one row each


# ----------------------------------------------------------------------------------------- the run of a row


def recover_overrides(config: dict[str, Any], words: list[str]) -> list[str]:
    """What pretrain.py must be told beside `words` for the settings of a snapshot, which holds them and not the words
    that made them. One that differs is overridden until none does; those that others are made from come first."""
    wanted, overrides, settled = flatten(config), [], SILENT | {"variant", "seed"}
    while True:
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            now = flatten(OmegaConf.to_container(hydra.compose("pretrain", words + overrides), resolve=True))
        differ = [key for key in now.keys() & wanted.keys() - settled if now[key] != wanted[key]]
        if not differ:
            return overrides
        key = min(differ, key=lambda key: (key != "surgery.name", "." in key, not key.startswith("preset."), key))
        value = wanted[key] if isinstance(wanted[key], str) else json.dumps(wanted[key], separators=(",", ":"))
        overrides.append(f"{'surgery' if key == 'surgery.name' else key}={value}")
        settled = settled | {key}


def describe(trained: Trained) -> tuple[str, str]:
    """The run's variant, and the command that makes it."""
    config = trained.config
    words = [f"{name}={config[name]['name']}" for name in ("agent", "domain", "preset")]
    try:
        overrides = recover_overrides(config, words)
    except (HydraException, OmegaConfBaseException):  # an agent or domain from somebody's --config-dir
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


# ------------------------------------------------------------------------------------------------------- rows


def measure_snapshot(trained: Trained, args: argparse.Namespace) -> dict[str, Any]:
    """`commit` is that of the code that trained the run: a finished one says it in result.json."""
    config, frame = trained.config, trained.frame
    variant, command = describe(trained)
    result = trained.path.resolve().parent.parent / "result.json"
    values = measures(*trained.episodes(args.episodes), trained.lanes.maze, seed=config["seed"],
                      mine_steps=args.mine_steps)
    return {"domain": config["domain"]["name"], "agent": config["agent"]["name"], "variant": variant,
            "seed": config["seed"], "skills": len(trained.skills), "frame": frame,
            "env_steps": frame // config["action_repeat"], **values,
            "commit": commit_of(read_json(result).get("git") if result.exists() else None), "command": command}


def measure_bound(kind: str, domain: str, args: argparse.Namespace) -> dict[str, Any]:
    """floor: uniform actions in episodes with a skill that they ignore. ceiling: as many states, uniform over the free
    cells, each with a skill drawn at random."""
    domains = maze_domains()
    if domain not in domains:
        raise UserError(f"--{kind} {domain}: no maze; choose from {', '.join(domains)}")
    if not args.skills:
        raise UserError(f"--{kind} needs --skills N, the number of skills of the runs it stands beside")
    rng = np.random.default_rng(stream_seed(args.seed, f"maze {kind}"))
    lanes, skill = Lanes(domains[domain], 1), np.repeat(np.arange(args.skills), args.episodes)
    if kind == "floor":
        paths = walk(lanes, lambda obs: rng.uniform(-1, 1, obs.shape), len(skill), rng)[:, 1:]
    else:
        paths = uniform(lanes.maze, rng, len(skill) * EPISODE_STEPS)[:, None]  # (N, 1, 2): no two states are related
        skill = rng.integers(args.skills, size=len(paths))
    command = ["python", "-m", "analysis.maze", "measure", f"--{kind}", domain, "--skills", args.skills, "--seed",
               args.seed, "--episodes", args.episodes, "--mine-steps", args.mine_steps, "--out", args.out.name]
    return {"domain": domain, "agent": {"floor": "random", "ceiling": "uniform"}[kind],
            "variant": f"skill_dim={args.skills}", "seed": args.seed, "skills": args.skills, "frame": 0, "env_steps": 0,
            **measures(paths, skill, lanes.maze, seed=args.seed, mine_steps=args.mine_steps),
            "commit": commit_of(git_state()), "command": shlex.join(map(str, command))}


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
    return {name: f"{value:.4f}" if isinstance(value, float) else str(value) for name, value in row.items()}


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


def measure(args: argparse.Namespace) -> None:
    bounds = [(kind, domain) for kind in ("floor", "ceiling") if (domain := getattr(args, kind))]
    if not args.snapshots and not bounds:
        raise UserError("nothing to measure; give snapshots, --floor DOMAIN or --ceiling DOMAIN")
    read_rows(args.out)  # what cannot be measured or written is refused before minutes are spent on a row
    loaded = [load(path) for path in args.snapshots]
    for kind, domain in bounds:
        put_row(args.out, measure_bound(kind, domain, args))
    for trained in loaded:
        put_row(args.out, measure_snapshot(trained, args))


# --------------------------------------------------------------------------------------------------- pictures


def picture(policy: Policy | torch.nn.Module, maze: str, skills: np.ndarray, path: Path,
            rng: np.random.Generator) -> None:
    """New trajectories of the skills (n, dim) of a loaded policy or a PPO learner, all from START."""
    name = next(name for name, settings in IDS.items() if settings == {"maze": maze})
    paths, skill = play(policy, Lanes(f"gymnasium:envs.maze:amped/{name}-v0", 1), skills, TRAJECTORIES, rng, START)
    draw_figure([Panel(paths, skill, maze, start=START)], path)


def small_print(skills: int, coverage: float, mi: float) -> str:
    return f"{skills} skills, coverage {coverage:.2f}, MI {mi:.2f} nats"


def trajectories(trained: Trained, title: str, small: str) -> Panel:
    rng = np.random.default_rng(stream_seed(trained.config["seed"], "maze picture"))
    paths, skill = play(trained.policy, trained.lanes, trained.skills, TRAJECTORIES, rng, START)
    return Panel(paths, skill, trained.lanes.maze, title, small, START)


def panel_of(trained: Trained, title: str) -> Panel:
    """Its numbers are those of the row that `measure` writes by default, not of the few trajectories drawn."""
    paths, skill = trained.episodes(EPISODES)
    states, label = paths.reshape(-1, 2), np.repeat(skill, paths.shape[1])
    return trajectories(trained, title, small_print(len(trained.skills), coverage(states, trained.lanes.maze),
                                                    mi_grid(states, label)))


def draw(args: argparse.Namespace) -> None:
    if args.titles and len(args.titles) != len(args.snapshots):
        raise UserError(f"--titles has {len(args.titles)} titles for {len(args.snapshots)} snapshots; give one each")
    loaded = [load(path) for path in args.snapshots]
    titles = args.titles or [trained.config["agent"]["name"] for trained in loaded]
    draw_figure([panel_of(*pair) for pair in zip(loaded, titles, strict=True)], args.out)
    print(f"picture: {args.out}")


# ------------------------------------------------------------------------------------------------ missed squares


def missed(args: argparse.Namespace) -> None:
    """Where coverage is lost: squares that are not covered, by the maze's cell they lie in."""
    lost: dict[str, Counter] = {}
    for trained in [load(path) for path in args.snapshots]:
        centres, enough = covered(trained.episodes(EPISODES)[0].reshape(-1, 2), trained.lanes.maze)
        cells = Counter((int(x), int(y)) for x, y in np.floor(centres[~enough] + 0.5))
        lost.setdefault(trained.lanes.maze, Counter()).update(cells)
        print(f"{trained.path}: coverage {enough.mean():.3f}, {cells.total()} of {len(centres)} squares missed")
    for maze, cells in lost.items():
        print(f"{maze}, share of the missed squares by cell: "
              + ", ".join(f"{cell} {count / cells.total():.2f}" for cell, count in cells.most_common(8)))


# ----------------------------------------------------------------------------------------------- command line


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("measure", help="a row of measures per snapshot, into a CSV")
    rows.add_argument("snapshots", nargs="*", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze")
    rows.add_argument("--out", type=Path, required=True, help="CSV; a row of the same run and frame is replaced")
    rows.add_argument("--episodes", type=at_least(2), default=EPISODES, help="per skill (%(default)s)")
    rows.add_argument("--mine-steps", type=at_least(1), default=MINE_STEPS, help="of MINE (%(default)s)")
    rows.add_argument("--floor", metavar="DOMAIN", help="also a row of uniform actions")
    rows.add_argument("--ceiling", metavar="DOMAIN", help="also a row of states uniform over the maze")
    rows.add_argument("--skills", type=at_least(1), help="of floor and ceiling")
    rows.add_argument("--seed", type=at_least(0), default=1, help="of floor and ceiling (%(default)s)")
    figure = commands.add_parser("draw", help="trajectories of every skill, a panel per snapshot")
    figure.add_argument("snapshots", nargs="+", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze")
    figure.add_argument("--out", type=Path, required=True, help="picture to write (.png)")
    figure.add_argument("--titles", nargs="+", help="of the panels (the agents)")
    where = commands.add_parser("missed", help="which cells hold the squares that are not covered")
    where.add_argument("snapshots", nargs="+", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze")
    args = parser.parse_args()
    torch.set_num_threads(1)  # small products, and sums in one order
    run_command(lambda: {"measure": measure, "draw": draw, "missed": missed}[args.command](args), ValueError)


if __name__ == "__main__":
    main()

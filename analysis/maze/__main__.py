"""Measures and pictures of skills in mazes, from PPO's snapshots.

    python -m analysis.maze measure|draw|missed (--help)

A row of measures comes from whole episodes of every skill, with stochastic actions from starts as
in training; a picture comes from episodes that all begin at the same point. Both draw from random
streams of their own, made from the run's seed.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np
import torch

from analysis.maze.episodes import Trained, load
from analysis.maze.measure import MINE_STEPS, measure_bound, measure_snapshot, put_row, read_rows
from analysis.maze.pictures import EPISODES, draw_figure, panel_of
from envs.maze.measures import covered
from run.cli.console import Parser, at_least, leave_out
from run.cli.guard import run_command
from utils import Unreadable, UserError


def readable(paths: list[Path]) -> list[Trained]:
    """The snapshots that can be used; a file that is none is named and left out."""
    found = []
    for path in paths:
        try:
            found.append(load(path))
        except Unreadable as error:
            if len(paths) == 1:
                raise
            leave_out(error)
    return found


def measure(args: argparse.Namespace) -> None:
    bounds = [(kind, domain) for kind in ("floor", "ceiling") if (domain := getattr(args, kind))]
    if not args.snapshots and not bounds:
        raise UserError("nothing to measure; give snapshots, --floor DOMAIN or --ceiling DOMAIN")
    read_rows(args.out)  # a file that cannot take the rows is refused before minutes are spent
    loaded = readable(args.snapshots)
    for kind, domain in bounds:
        put_row(args.out, measure_bound(kind, domain, args))
    for trained in loaded:
        put_row(args.out, measure_snapshot(trained, args))


def draw(args: argparse.Namespace) -> None:
    if args.titles and len(args.titles) != len(args.snapshots):
        raise UserError(
            f"--titles has {len(args.titles)} titles for {len(args.snapshots)} snapshots; give one each"
        )
    named = dict(zip(args.snapshots, args.titles or (), strict=False))
    loaded = readable(args.snapshots)
    titles = [named.get(each.path) or each.config["agent"]["name"] for each in loaded]
    draw_figure([panel_of(*pair) for pair in zip(loaded, titles, strict=True)], args.out)
    print(f"picture: {args.out}")


# ----------------------------------------------------------------------------------- missed squares


def missed(args: argparse.Namespace) -> None:
    """Where coverage is lost: squares that are not covered, by the maze's cell they lie in."""
    lost: dict[str, Counter] = {}
    for trained in readable(args.snapshots):
        centres, enough = covered(trained.episodes(EPISODES)[0].reshape(-1, 2), trained.lanes.maze)
        cells = Counter((int(x), int(y)) for x, y in np.floor(centres[~enough] + 0.5))
        lost.setdefault(trained.lanes.maze, Counter()).update(cells)
        print(
            f"{trained.path}: coverage {enough.mean():.3f}, {cells.total()} of {len(centres)} squares missed"
        )
    for maze, cells in lost.items():
        print(
            f"{maze}, share of the missed squares by cell: "
            + ", ".join(
                f"{cell} {count / cells.total():.2f}" for cell, count in cells.most_common(8)
            )
        )


# ------------------------------------------------------------------------------------- command line


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    rows = commands.add_parser("measure", help="a row of measures per snapshot, into a CSV")
    rows.add_argument(
        "snapshots", nargs="*", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze"
    )
    rows.add_argument(
        "--out", type=Path, required=True, help="CSV; a row of the same run and frame is replaced"
    )
    rows.add_argument(
        "--episodes", type=at_least(2), default=EPISODES, help="per skill (%(default)s)"
    )
    rows.add_argument(
        "--mine-steps", type=at_least(1), default=MINE_STEPS, help="of MINE (%(default)s)"
    )
    rows.add_argument("--floor", metavar="DOMAIN", help="also a row of uniform actions")
    rows.add_argument(
        "--ceiling", metavar="DOMAIN", help="also a row of states uniform over the maze"
    )
    rows.add_argument("--skills", type=at_least(1), help="of floor and ceiling")
    rows.add_argument(
        "--seed", type=at_least(0), default=1, help="of floor and ceiling (%(default)s)"
    )
    figure = commands.add_parser("draw", help="trajectories of every skill, a panel per snapshot")
    figure.add_argument(
        "snapshots", nargs="+", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze"
    )
    figure.add_argument("--out", type=Path, required=True, help="picture to write (.png)")
    figure.add_argument("--titles", nargs="+", help="of the panels (the agents)")
    where = commands.add_parser("missed", help="which cells hold the squares that are not covered")
    where.add_argument(
        "snapshots", nargs="+", type=Path, help="snapshot_<frame>.pt of pretrain.py on a maze"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)  # small products, and sums in one order
    run_command(
        lambda: {"measure": measure, "draw": draw, "missed": missed}[args.command](args), ValueError
    )


if __name__ == "__main__":
    main()

"""The audit of balance in the mazes: what each resolver, schedule and method is worth.

    python -m analysis.balance run [--seeds 3] [experiment=maze_balance] [key=value ...]
    python -m analysis.balance show

`run` trains and measures the runs that have no row in the CSV yet and adds their rows; stop it at
any time, the same command continues. `show` makes the tables, the claims and the figure of all rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from analysis.maze.audit import make_rows, read_rows
from analysis.maze.audit_page import write_page
from experiment.definition import load
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from utils import ROOT

EXPERIMENT = "maze_balance"
ROWS = ROOT / "results" / "maze" / "balance.csv"


def run(args: argparse.Namespace) -> None:
    words = list(args.words)
    if not any(word.startswith("experiment=") for word in words):
        words.insert(0, f"experiment={EXPERIMENT}")
    if args.seeds:
        words.append("seed=" + ",".join(map(str, range(1, args.seeds + 1))))
    torch.set_num_threads(1)  # small products, and sums in one order
    make_rows(load(words), args.rows)


def show(args: argparse.Namespace) -> None:
    write_page(read_rows(args.rows), args.out or args.rows.with_suffix(""))


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="of run, as for analysis.figure, e.g. domain=tree_maze",
    )
    parser.add_argument("--rows", type=Path, default=ROWS, help="CSV (results/maze/balance.csv)")
    parser.add_argument(
        "--seeds", type=at_least(1), help="of run: the first so many (all of the experiment)"
    )
    parser.add_argument(
        "--out", type=Path, help="of show: where to write, without ending (beside the rows)"
    )
    args = parser.parse_intermixed_args()
    run_command(lambda: {"run": run, "show": show}[args.command](args))


if __name__ == "__main__":
    main()

"""The audit of balance in the mazes: what each resolver, schedule and method is worth.

    python -m analysis.balance run [--seeds 3] [experiment=maze_balance] [key=value ...]
    python -m analysis.balance show
    python -m analysis.balance score --rows FILE.csv --best tree_maze=0.998,1.768 [--best ...]

`run` trains and measures the runs that have no row in the CSV yet and adds their rows; stop it at
any time, the same command continues. `show` makes the tables, the claims and the figure of all rows.
`score` prints how near each run of a search comes to the aims.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from analysis.maze.audit import make_rows, read_rows
from analysis.maze.audit_page import scores, write_page
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


def best_of(word: str) -> tuple[str, tuple[float, float]]:
    """MAZE=COVERAGE,INFORMATION"""
    maze, _, numbers = word.partition("=")
    try:
        coverage, information = map(float, numbers.split(","))
    except ValueError:
        coverage = information = 0.0
    if not min(coverage, information) > 0:
        raise argparse.ArgumentTypeError(f"{word} is not like tree_maze=0.998,1.768")
    return maze, (coverage, information)


def score(args: argparse.Namespace) -> None:
    print(scores(read_rows(args.rows), dict(args.best)))


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument("command", choices=("run", "show", "score"))
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
    parser.add_argument(
        "--best",
        type=best_of,
        action="append",
        default=[],
        metavar="MAZE=C,I",
        help="of score: the best coverage and information (nats) there, e.g. tree_maze=0.998,1.768",
    )
    args = parser.parse_intermixed_args()
    run_command(lambda: {"run": run, "show": show, "score": score}[args.command](args))


if __name__ == "__main__":
    main()

"""How many seeds a claim "A beats B" needs at the spread that was seen.

python -m analysis.power ROWS.csv [--frame 10000] [--against scratch]

ROWS.csv is what analysis.adapt writes. A line per domain and method: whether it beats the one it is held
against (by default each of the others), and the seeds that a t-test would need to say so.
"""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pandas as pd

from analysis.adapt import JUDGED, read_rows
from analysis.scores.adapted import mean_at
from analysis.scores.aggregate import stacks
from analysis.scores.claims import sentence
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import choose


def claims(rows: pd.DataFrame, frame: int, against: str | None) -> list[str]:
    lines = []
    for domain, part in rows.groupby("domain", sort=True):
        tasks = sorted(part["task"].unique())
        found, gaps = stacks(part.rename(columns={"normalised": "score"}), tasks, normalize=False)
        means = {name: mean_at(name, *found[name], frame) for name in found}
        if against is not None:
            choose("--against", against, tuple(means))
        for a, b in permutations(means, 2):
            if b == against or (against is None and means[a].value > means[b].value):
                lines.append(sentence(means[a], means[b], f"on {domain} at {frame:,} frames"))
        lines += gaps
    return lines


def run(path: Path, frame: int, against: str | None) -> None:
    print(
        "\n".join(claims(read_rows(path), frame, against)) or "no method is ahead of another there"
    )


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument("rows", type=Path, metavar="ROWS.csv")
    parser.add_argument("--frame", type=int, default=JUDGED)
    parser.add_argument("--against", metavar="METHOD")
    args = parser.parse_args()
    run_command(lambda: run(args.rows, args.frame, args.against))


if __name__ == "__main__":
    main()

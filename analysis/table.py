"""A table of the paper beside the runs at hand.

    python -m analysis.table experiment=table_urlb [key=value ...] (--help)

Returns as Markdown, LaTeX and CSV, aggregate scores with intervals, curves, hours and bars; for
fig_conflict the conflict over pre-training. Nothing is trained (python -m analysis.plan has the
commands for that). Where there are no runs yet, the tables hold the paper's numbers alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.frames.gathered import Gathered, gather
from analysis.scores import conflicts, gains, tables
from analysis.scores import figures as score_figures
from analysis.scores.aggregate import (
    aggregate,
    matrices,
    probability_of_improvement,
    profiles,
    task_efficiency,
)
from analysis.scores.tables import Table
from experiment import paper
from experiment.definition import SCORE_KINDS, load, names, read
from run.cli.console import Parser, printable
from run.cli.guard import run_command
from run.results import expert_score
from utils import UserError, choose, write_text

SEED = 0  # of the bootstrap
TAUS = [i / 50 for i in range(61)]  # scores at which profiles are drawn: 0 to 1.2 of the expert's


def make_tables(name: str, title: str, gathered: Gathered) -> dict[str, Table]:
    """Returns, and the hours that they took."""
    printed = paper.compared(name)
    found = {"returns": tables.compare(gathered.scores, printed, caption=title)}
    if name == "urlb":
        found |= {
            f"hours_{phase}": tables.wall_clock(gathered.hours, phase)
            for phase in ("pretrain", "finetune")
        }
    if name == "selection":
        found["distinct"] = tables.compare(
            gathered.distinct,
            paper.load("unique_skills"),
            digits=2,
            caption="Skills that are the selector's first choice in its last 5000 steps",
        )
    return found


def aggregates(gathered: Gathered) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """rliable's numbers over the tasks that have an expert's score; empty without a complete
    seed."""
    scores = gathered.scores
    tasks = [task for task in dict.fromkeys(scores["task"]) if expert_score(task)]
    if not tasks:
        return {}, []
    found, gaps = matrices(scores, tasks)
    if not found:
        return {}, gaps
    methods = list(found)
    pairs = [(methods[0], other) for other in methods[1:]]
    return {
        "aggregate": aggregate(found, seed=SEED),
        "profiles": profiles(found, TAUS, seed=SEED),
        "improvement": probability_of_improvement(found, pairs, seed=SEED),
        "gains": gains.run_gains(found, seed=SEED),
        "curves": task_efficiency(gathered.curves, tasks, seed=SEED, reps=500)[0],
    }, gaps


def headline(name: str, numbers: dict[str, pd.DataFrame]) -> str:
    """AMPED's IQM above each baseline's, ours beside the paper's; empty for other tables."""
    if name != "urlb":
        return ""
    ours = numbers.get("gains", pd.DataFrame(columns=gains.COLUMNS))
    return gains.beside(gains.paper_gains(np.random.default_rng(SEED)), ours) + "\n"


def make_figures(
    name: str, gathered: Gathered, numbers: dict[str, pd.DataFrame]
) -> dict[str, Figure]:
    figures = {}
    if name in score_figures.BARS:
        figures["bars"] = score_figures.bars(
            gathered.scores if len(gathered.scores) else None, name
        )
    if numbers:
        figures |= {
            "aggregate": score_figures.aggregate_intervals(numbers["aggregate"]),
            "profiles": score_figures.profile_figure(numbers["profiles"]),
            "curves": score_figures.task_curves(numbers["curves"]),
        }
    return figures


def make(words: list[str], out: Path | None) -> None:
    experiment = load(words)
    kind = experiment.figure.get("kind")
    if kind not in SCORE_KINDS:
        raise UserError(
            f"{experiment.name} is of mazes: python -m analysis.figure experiment={experiment.name}"
        )
    first = (experiment.runs or experiment.finetunings)[0]
    out = out or Path(first.config["run_root"]) / "tables"
    if kind == "scores":
        choose("figure.paper", experiment.figure.get("paper"), tuple(paper.names()))
    gathered, name = gather(experiment), experiment.name
    for line in gathered.gaps:
        print(f"gap: {printable(line)}")
    written = gathered.save(out, f"{name}_runs") if len(gathered.evaluations) else []
    if kind == "conflict":
        shares = conflicts.summary(gathered.train)
        print(conflicts.beside(shares))
        written.append(out / f"{name}_shares.csv")
        write_text(written[-1], shares.to_csv(index=False, lineterminator="\n"))
        figures = {"": score_figures.conflict(gathered.train if len(gathered.train) else None)}
    else:
        paper_name = experiment.figure["paper"]
        made = make_tables(paper_name, experiment.title, gathered)
        numbers, gaps = aggregates(gathered)
        for line in gaps:
            print(f"gap: {printable(line)}")
        print(
            "\n".join(
                [*(table.markdown() for table in made.values()), headline(paper_name, numbers)]
            )
        )
        for part, table in made.items():
            for suffix, text in (
                ("md", table.markdown()),
                ("tex", table.latex()),
                ("csv", table.csv()),
            ):
                written.append(out / f"{name}_{part}.{suffix}")
                write_text(written[-1], text)
        for part, frame in numbers.items():
            written.append(out / f"{name}_{part}.csv")
            write_text(written[-1], frame.to_csv(index=False, lineterminator="\n"))
        figures = {
            f"_{part}": figure
            for part, figure in make_figures(paper_name, gathered, numbers).items()
        }
    for part, figure in figures.items():
        written += score_figures.save(figure, out / f"{name}{part}")
    print("\n".join(f"written: {printable(path)}" for path in written))


def main() -> None:
    kinds = [name for name in names() if read(name)["figure"].get("kind") in SCORE_KINDS]
    parser = Parser(
        description=__doc__.partition("\n")[0], epilog=f"experiments: {', '.join(kinds)}"
    )
    parser.add_argument(
        "words", nargs="*", metavar="key=value", help="as python -m analysis.plan takes them"
    )
    parser.add_argument(
        "--out", type=Path, help="directory for everything that is written (<run_root>/tables)"
    )
    args = parser.parse_intermixed_args()
    run_command(lambda: make(args.words, args.out))


if __name__ == "__main__":
    main()

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
from analysis.scores import conflicts, gains, hours, tables
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
from experiment.definition import SCORE_KINDS, Experiment, load, names, read
from run.cli import own
from run.cli.console import Parser, printable
from run.cli.guard import run_command
from run.results import expert_score
from utils import UserError, choose, write_text

SEED = 0  # of the bootstrap
TAUS = [i / 50 for i in range(61)]  # scores at which profiles are drawn: 0 to 1.2 of the expert's


def make_tables(
    name: str | None, title: str, gathered: Gathered, shown: tables.Shown | None = None
) -> dict[str, Table]:
    """Returns, beside the paper's table if one is named, what they are of the experts', and the
    hours that they took."""
    printed = paper.compared(name) if name else None
    found = {"returns": tables.compare(gathered.scores, printed, caption=title, shown=shown)}
    if shown and (normalised := of_the_expert(gathered, shown)):
        found["normalised"] = normalised
    if name == "urlb":
        found |= {
            f"hours_{phase}": hours.wall_clock(gathered.hours, phase)
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


def of_the_expert(gathered: Gathered, shown: tables.Shown) -> Table | None:
    """The same scores over each task's expert score; None where no task that was run has one."""
    experts = {task: expert_score(task) for task in shown.tasks}
    scores = gathered.scores
    scores = scores[scores["task"].map(lambda task: experts.get(task) is not None)]
    if scores.empty:
        return None
    shares = scores["score"] / scores["task"].map(lambda task: experts[task]).astype(float)
    tasks = {task: domain for task, domain in shown.tasks.items() if experts[task]}
    return tables.compare(
        scores.assign(score=shares),
        None,
        caption="Returns over the expert's (expert_scores.csv)",
        digits=2,
        shown=tables.Shown(tasks, shown.methods),
    )


def shown_of(experiment: Experiment) -> tables.Shown:
    """The tasks and methods that an experiment has, and how its size differs from the paper's."""
    runs = experiment.finetunings
    tasks = {run.config["task"]["name"]: run.config["domain"]["name"] for run in runs}
    methods = list(dict.fromkeys(run.method for run in runs))
    warning = size_warning(experiment) if experiment.figure.get("paper") else ""
    return tables.Shown(tasks, methods, warning)


def size_warning(experiment: Experiment) -> str:
    """Empty where the runs have the paper's size."""
    differ = []
    for noun, runs, claim in (
        ("pre-training", experiment.runs, "pretrain_steps"),
        ("fine-tuning", experiment.finetunings, "finetune_steps"),
    ):
        theirs = paper.claim(claim)
        frames = sorted({run.config["num_train_frames"] for run in runs})
        if frames and frames != [theirs]:
            told = " or ".join(f"{each:,}" for each in frames)
            differ.append(f"{noun} of {told} frames, the paper's of {theirs:,.0f}")
    presets = {run.config["preset"]["name"] for run in (*experiment.runs, *experiment.finetunings)}
    if presets - {"paper"}:
        differ.append(f"preset {', '.join(sorted(presets))}, with other networks than the paper's")
    return (
        f"Not comparable with the paper: {'; '.join(differ)}. No differences are shown."
        if differ
        else ""
    )


def aggregates(gathered: Gathered) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """rliable's numbers over the tasks that have an expert's score, and curves of returns over the
    others; empty without a complete seed."""
    scores = gathered.scores
    tasks = [task for task in dict.fromkeys(scores["task"]) if expert_score(task)]
    others = [task for task in dict.fromkeys(scores["task"]) if not expert_score(task)]
    plain: dict[str, pd.DataFrame] = {}
    if others:
        efficiency = task_efficiency(gathered.curves, others, seed=SEED, reps=500, normalize=False)
        plain = {"returns_over_frames": efficiency[0]} if len(efficiency[0]) else {}
    if not tasks:
        return plain, []
    found, gaps = matrices(scores, tasks)
    if not found:
        return plain, gaps
    methods = list(found)
    pairs = [(methods[0], other) for other in methods[1:]]
    return {
        "aggregate": aggregate(found, seed=SEED),
        "profiles": profiles(found, TAUS, seed=SEED),
        "improvement": probability_of_improvement(found, pairs, seed=SEED),
        "gains": gains.run_gains(found, seed=SEED),
        "curves": task_efficiency(gathered.curves, tasks, seed=SEED, reps=500)[0],
        **plain,
    }, gaps


def headline(name: str | None, numbers: dict[str, pd.DataFrame]) -> str:
    """AMPED's IQM above each baseline's, ours beside the paper's; empty for other tables."""
    if name != "urlb":
        return ""
    ours = numbers.get("gains", pd.DataFrame(columns=gains.COLUMNS))
    return gains.beside(gains.paper_gains(np.random.default_rng(SEED)), ours) + "\n"


def make_figures(
    name: str | None, gathered: Gathered, numbers: dict[str, pd.DataFrame]
) -> dict[str, Figure]:
    figures = {}
    if name in score_figures.BARS:
        figures["bars"] = score_figures.bars(
            gathered.scores if len(gathered.scores) else None, name
        )
    if "aggregate" in numbers:
        figures |= {
            "aggregate": score_figures.aggregate_intervals(numbers["aggregate"]),
            "profiles": score_figures.profile_figure(numbers["profiles"]),
            "curves": score_figures.task_curves(numbers["curves"]),
        }
    if "returns_over_frames" in numbers:
        figures["returns_over_frames"] = score_figures.return_curves(numbers["returns_over_frames"])
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
    if kind == "scores" and experiment.figure.get("paper") is not None:
        choose("figure.paper", experiment.figure["paper"], tuple(paper.names()))
    gathered, name = gather(experiment), experiment.name
    for line in gathered.gaps:
        print(f"gap: {printable(line)}")
    written = gathered.save(out, f"{name}_runs") if len(gathered.evaluations) else []
    if kind == "conflict":
        shares = conflicts.summary(gathered.train)
        print(conflicts.beside(shares))
        written.append(out / f"{name}_shares.csv")
        write_text(written[-1], shares.to_csv(index=False, lineterminator="\n"))
        figures = {"": conflicts.draw(gathered.train if len(gathered.train) else None)}
    else:
        paper_name = experiment.figure.get("paper")
        made = make_tables(paper_name, experiment.title, gathered, shown_of(experiment))
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
    own.add_option(parser)
    args = parser.parse_intermixed_args()

    def task() -> None:
        own.use(args.config_dir)
        make(args.words, args.out)

    run_command(task)


if __name__ == "__main__":
    main()

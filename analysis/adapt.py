"""What a pre-training is worth to a task: ways of adapting compared at equal frames.

python -m analysis.adapt experiment=adapt_walker [key=value ...] [--out DIR] [--rows FILE.csv]

Writes DIR/<experiment>.md (return at several frames, area under the curve, frames needed to reach what
the first method has at its last frame, which claims hold, and the answers to what the experiment's figure
asks: experiment/asked.py), its figure, and <experiment>.csv with a row per evaluation. Scores are divided by
the expert's and averaged over tasks; intervals are rliable's stratified bootstrap over seeds. --rows adds
the rows of an earlier CSV, so that runs of other machines and other days count too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pandas as pd

matplotlib.use("Agg")
from matplotlib.figure import Figure

from analysis.frames.gathered import gather, ranges
from analysis.frames.lines import fitting_lines, read_table
from analysis.palette import CHANGES, colours
from analysis.scores.adapted import Stacks, mean_at, table, task_table
from analysis.scores.aggregate import expert_scores, stacks
from analysis.scores.claims import compared, compared_to_all
from analysis.scores.figures import save
from analysis.scores.ways import Ways, contests, ranking_lines, rival_lines
from experiment.asked import Asked, asked
from experiment.definition import Experiment, load, names
from experiment.rows import portable
from records import Adapted
from run.cli.console import Parser
from run.cli.guard import run_command
from run.files import Damaged
from utils import UserError, first_line, write_text

COLUMNS = list(Adapted.model_fields)
KEYS = ["method", "task", "seed", "frame"]
JUDGED = 10_000  # the frame at which claims are judged

GREYS = ("#444444", "#888888", "#BBBBBB")  # what all are held against


# --------------------------------------------------------------------------------------------- rows


def protocol_of(config: dict[str, Any]) -> str:
    if config["agent"]["objective"] is None:
        return "scratch"
    return config["adapt"]["name"]


def rows_of(experiment: Experiment) -> pd.DataFrame:
    """A row per evaluation of the finished fine-tunings."""
    evaluations = gather(experiment).evaluations
    evaluations = evaluations[evaluations["phase"] == "finetune"]
    before = {run.path: run.config["num_train_frames"] for run in experiment.runs}
    runs = {run.command: run for run in experiment.finetunings}
    rows = []
    for row in evaluations.to_dict("records"):
        run = runs[row["command"]]
        rows.append(
            {
                **{key: row[key] for key in ("method", "domain", "task", "seed", "frame")},
                "protocol": protocol_of(run.config),
                "agent": run.config["agent"]["name"],
                "return_mean": row["score"],
                "normalised": row["score"] / expert_scores([row["task"]])[0],
                "pretrain_frames": before[run.after] if run.after else 0,
                "commit": f"{row['commit']}{'-dirty' if row['dirty'] else ''}",
                "command": portable(row["command"]),
            }
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def read_rows(path: Path) -> pd.DataFrame:
    """Rows that this command wrote; a line that is none of them is named and left out."""
    try:
        columns, lines = read_table(path)
    except (FileNotFoundError, Damaged) as error:
        raise UserError(f"{path} cannot be read ({first_line(error)})") from error
    if columns != COLUMNS:
        raise UserError(f"{path} is not what analysis.adapt writes: {', '.join(COLUMNS)}")
    rows = fitting_lines(path, lines, Adapted)
    if not rows:
        raise UserError(f"{path} has no row that can be used")
    return pd.DataFrame(rows, columns=COLUMNS)


def merged(rows: pd.DataFrame, earlier: Path | None) -> pd.DataFrame:
    """With the rows of an earlier CSV; where both have an evaluation, the run at hand counts."""
    parts = [rows] if earlier is None else [rows, read_rows(earlier)]
    table = pd.concat([part for part in parts if len(part)] or [rows], ignore_index=True)
    return table.drop_duplicates(KEYS).sort_values(KEYS, ignore_index=True)


# --------------------------------------------------------------------------------------------- page


def panels(found: Stacks, ways: Ways, against: Sequence[str]) -> dict[str, dict[str, str]]:
    """title -> {method: colour}: a panel for the ways that one agent has alone, then one per way that
    several agents have in common. What all are held against is in each."""
    held = dict(zip(against, GREYS))
    others = [name for name in found if name not in held]
    shared = {
        f"variant={way}": {agents[agent]: colour for agent, colour in colours(agents).items()}
        for way, agents in ways.items()
    }
    alone = [name for name in others if not any(name in methods for methods in shared.values())]
    count = len(CHANGES)  # no panel has two of one colour
    rows = [alone[i : i + count] for i in range(0, len(alone), count)]
    titles = ["ways of one agent" if shared else ""] * len(rows)
    if len(rows) > 1:
        titles = [f"{title} {number}".strip() for number, title in enumerate(titles, 1)]
    own = {title: dict(zip(row, CHANGES)) for title, row in zip(titles, rows, strict=True)}
    shown = {title: {**held, **methods} for title, methods in {**own, **shared}.items()}
    return shown or {"": held}


class Part(NamedTuple):
    """What the page says of one domain, or of all of them."""

    title: str
    text: str
    found: Stacks
    ways: Ways
    against: list[str]


def draw(parts: Sequence[Part], title: str) -> Figure:
    """Curves with bands: a row per part of the page, a panel per way of fine-tuning."""
    shown = [panels(part.found, part.ways, part.against) for part in parts]
    columns = max(map(len, shown))
    lines = max((len(methods) + 1) // 2 for across in shown for methods in across.values())
    size = (1.0 + 4.2 * columns, 0.4 + (4.0 + 0.17 * lines) * len(parts))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title)
    grid = figure.subplots(len(parts), columns, sharey="row", squeeze=False)
    for part, row, across in zip(parts, grid, shown, strict=True):
        for axes, (panel, methods) in zip(row, across.items()):
            for name, colour in methods.items():
                frames, stack = part.found[name]
                means = [mean_at(name, frames, stack, frame) for frame in frames]
                heights, low, high = zip(*((m.value, m.low, m.high) for m in means), strict=True)
                axes.plot(frames, heights, marker="o", ms=3, color=colour, label=name)
                axes.fill_between(frames, low, high, color=colour, alpha=0.15, lw=0)
            axes.set(
                xlabel="frames of the task", title=", ".join(filter(None, (part.title, panel)))
            )
            axes.set_ylim(bottom=0)
            axes.legend(
                loc="upper center",
                bbox_to_anchor=(0.5, -0.13),
                ncols=2,
                fontsize="x-small",
                frameon=False,
            )
        for axes in row[len(across) :]:
            axes.set_visible(False)
        row[0].set_ylabel("mean score / expert's")
    return figure


def part_of(
    title: str,
    rows: pd.DataFrame,
    tasks: Sequence[str],
    order: Sequence[str],
    wanted: Asked,
    frame: int,
) -> tuple[Part | None, list[str]]:
    """What the rows say of these tasks, and in words what they lack; None without a method that has
    a seed with all of them."""
    found, lacking = stacks(rows.rename(columns={"normalised": "score"}), tasks, normalize=False)
    found = {name: found[name] for name in order if name in found}
    if not found:
        return None, lacking
    first = next(iter(found))
    against = [name for name in wanted.against if name in found] or [first]
    means = {name: mean_at(name, *found[name], frame) for name in found}
    where, held = f"at {frame:,} frames", [means[name] for name in against]
    claims = [
        f"{words} {compared(means[a], means[b], where)}"
        for words, (a, b) in wanted.questions.items()
        if a in found and b in found
    ]
    for name in found:
        if name not in against:
            claims += compared_to_all(means[name], held, where)
    ways = contests(rows[rows["method"].isin(list(found))])
    claims += [*rival_lines(ways, means), *ranking_lines(ways, means, tasks)]
    text = [
        *([f"## {title}"] if title else []),
        f"Mean over {', '.join(tasks)}, each divided by its expert's score, with 95 % intervals.",
        table(found, first),
        f"Each task; against {' and '.join(against)} on that task alone, bold is established above "
        f"{'all of these and italic below one of them' if len(against) > 1 else 'and italic below it'}.",
        task_table(found, tasks, against, frame),
        "\n".join(f"- {claim}" for claim in claims),
    ]
    return Part(title, "\n\n".join(text), found, ways, against), lacking


def so_far(experiment: Experiment, rows: pd.DataFrame) -> list[str]:
    """A line: how much of the experiment has its rows, and which seeds have all of theirs. None where
    nothing is missing."""
    last = rows.groupby(["method", "task", "seed"])["frame"].max().to_dict()
    runs: dict[str, dict[int, list[bool]]] = {}
    for run in experiment.finetunings:
        seed, end = run.config["seed"], run.config["num_train_frames"]
        done = last.get((run.method, run.point["task"], seed), -1) >= end
        runs.setdefault(run.config["domain"]["name"], {}).setdefault(seed, []).append(done)
    done = [each for seeds in runs.values() for some in seeds.values() for each in some]
    if all(done):
        return []
    whole = (
        f"{domain} {ranges([seed for seed in seeds if all(seeds[seed])]) or 'none'}"
        for domain, seeds in runs.items()
    )
    return [f"{sum(done)} of {len(done)} fine-tunings are done, whole seeds: {', '.join(whole)}"]


def together(lines: Sequence[str]) -> list[str]:
    """Lines of the form "who: what", with all of whom the same is said in one."""
    found: dict[str, list[str]] = {}
    for line in lines:
        who, _, what = line.rpartition(": ")
        found.setdefault(what, []).append(who)
    return [f"{', '.join(who)}: {what}" for what, who in found.items()]


def page(experiment: Experiment, rows: pd.DataFrame, frame: int) -> tuple[str, list[Part]]:
    """The Markdown page and its parts: one per domain, and one over all tasks where there are
    several domains."""
    domains: dict[str, list[str]] = {}
    for run in experiment.finetunings:
        tasks = domains.setdefault(run.config["domain"]["name"], [])
        if run.point["task"] not in tasks:
            tasks.append(run.point["task"])
    order = list(dict.fromkeys(run.method for run in experiment.finetunings))
    wanted = asked(experiment.figure)
    several = len(domains) > 1
    parts, lacking = [], so_far(experiment, rows)
    for domain, tasks in domains.items():
        part, missing = part_of(domain if several else "", rows, tasks, order, wanted, frame)
        parts += [part] if part else []
        missing = together(missing)
        lacking += [f"{domain}, {line}" for line in missing] if several else missing
    if several and len(parts) == len(domains):
        every_task = list(itertools.chain(*domains.values()))
        part, _ = part_of(" and ".join(domains), rows, every_task, order, wanted, frame)
        parts += [part] if part else []
    if not parts:
        raise UserError(f"no method has a seed with all tasks yet: {'; '.join(lacking)}")
    text = [f"# {experiment.title}", *(part.text for part in parts)]
    if lacking:
        text.append("Missing: " + "; ".join(lacking) + ".")
    return "\n\n".join(text) + "\n", parts


def run(words: list[str], out: Path, earlier: Path | None, frame: int) -> None:
    experiment = load(words, run_here=False)
    if not experiment.finetunings:
        raise UserError(f"experiment={experiment.name} has no fine-tunings to compare")
    rows = merged(rows_of(experiment), earlier)
    text, parts = page(experiment, rows, frame)
    write_text(out / f"{experiment.name}.csv", rows.to_csv(index=False, lineterminator="\n"))
    write_text(out / f"{experiment.name}.md", text)
    save(draw(parts, experiment.title.partition(",")[0]), out / experiment.name)
    print(text, end="")
    print(f"written: {out}/{experiment.name}.{{md,csv,png,pdf}}")


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details + f"\nexperiments: {', '.join(names())}")
    parser.add_argument("words", nargs="*", metavar="key=value", help="as for analysis.plan")
    parser.add_argument("--out", type=Path, default=Path("figures"), help="directory to write to")
    parser.add_argument("--rows", type=Path, help="a CSV of an earlier call, whose rows count too")
    parser.add_argument("--frame", type=int, default=JUDGED, help="where claims are judged")
    args = parser.parse_intermixed_args()
    run_command(lambda: run(args.words, args.out, args.rows, args.frame))


if __name__ == "__main__":
    main()

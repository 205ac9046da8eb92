"""Tables beside the paper's, as Markdown, LaTeX and CSV.

    compare(ours, paper.load("urlb")).markdown()

Rows are tasks, sums over a domain and the total as the paper has them, columns are methods. The
best mean of a row is bold, the second underlined, equal ones share a mark; the paper's marks are
computed from its means in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.scores.aggregate import cells
from analysis.text import markdown_table
from experiment.labels import label
from utils import plural

# the paper's own is of two kinds (its README)
DEVIATION = "± of ours is the sample standard deviation (n - 1)"
SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


class Style(NamedTuple):
    """How a kind of output writes a cell; @ stands for the number."""

    best: str
    second: str
    plus_minus: str
    minus: str
    nothing: str


NO_PAPER = pd.DataFrame(columns=["domain", "task", "kind", "method", "mean", "std"])
MARKDOWN = Style("**@**", "<u>@</u>", "±", "-", "-")
LATEX = Style(r"\textbf{@}", r"\underline{@}", r"$\pm$", "$-$", "--")


class Shown(NamedTuple):
    """What a table of an experiment has: its tasks with their domains, its methods, and why its
    numbers cannot be compared with the paper's (empty: they can)."""

    tasks: Mapping[str, str]
    methods: Sequence[str]
    warning: str = ""


class Entry(NamedTuple):
    """A number of the table; without a mean it is a dash."""

    mean: float = math.nan
    std: float = math.nan
    number: int = 0  # of seeds or runs; shown if it is not 0
    signed: bool = False  # a difference
    mark: str = ""  # "best", "second" or neither


class Line(NamedTuple):
    row: str
    source: str
    entries: list[Entry]


@dataclass
class Table:
    """Blocks of lines, one per domain; `data` has the same numbers as a long frame, `notes` what is
    left out."""

    caption: str
    methods: list[str]
    blocks: list[list[Line]]
    data: pd.DataFrame
    notes: list[str]
    digits: int = 0
    unit: str = "seed"

    def markdown(self) -> str:
        rows = [
            [line.row, line.source, *(self.cell(entry, MARKDOWN) for entry in line.entries)]
            for block in self.blocks
            for line in block
        ]
        table = markdown_table(["", "", *map(label, self.methods)], rows, right_from=2)
        notes = ["", *(f"- {note}" for note in self.notes)] if self.notes else []
        return "\n".join([self.caption, "", table, *notes]) + "\n"

    def latex(self) -> str:
        """A floating table for \\usepackage{booktabs}; notes are comments."""
        blocks = [
            "\n".join(
                " & ".join(
                    [
                        escape(line.row),
                        escape(line.source),
                        *(self.cell(entry, LATEX) for entry in line.entries),
                    ]
                )
                + r" \\"
                for line in block
            )
            for block in self.blocks
        ]
        head = " & ".join(["", "", *(escape(label(method)) for method in self.methods)]) + r" \\"
        return (
            "\n".join(
                [
                    *(f"% {note}" for note in self.notes),
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{escape(self.caption)}}}",
                    rf"\begin{{tabular}}{{ll{'r' * len(self.methods)}}}",
                    r"\toprule",
                    head,
                    r"\midrule",
                    "\n\\midrule\n".join(blocks),
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
            + "\n"
        )

    def csv(self) -> str:
        """The numbers without rounding, a line per row and method."""
        return self.data.to_csv(index=False, lineterminator="\n")

    def cell(self, entry: Entry, style: Style) -> str:
        if math.isnan(entry.mean):
            return style.nothing
        text = spell(entry.mean, self.digits, signed=entry.signed).replace("-", style.minus)
        text = {"best": style.best, "second": style.second}.get(entry.mark, "@").replace("@", text)
        text += (
            "" if math.isnan(entry.std) else f" {style.plus_minus} {spell(entry.std, self.digits)}"
        )
        return text + (f" ({plural(entry.number, self.unit)})" if entry.number else "")


def escape(text: str) -> str:
    return "".join(SPECIAL.get(sign, sign) for sign in text)


def spell(value: float, digits: int, *, signed: bool = False) -> str:
    """A number as it is printed: rounded, never -0. One that would be rounded to nothing keeps one
    digit."""
    if not signed and 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:.1g}"
    return f"{round(value, digits) + 0.0:{'+' if signed else ''}.{digits}f}"


def marked(entries: list[Entry], digits: int) -> list[Entry]:
    """The entries with the best and the second best marked, by what is printed. A single entry is
    not the best of anything."""
    printed = [round(entry.mean, digits) for entry in entries if not math.isnan(entry.mean)]
    ranks = (
        dict(zip(sorted(set(printed), reverse=True), ("best", "second"), strict=False))
        if len(printed) > 1
        else {}
    )
    return [
        entry._replace(mark=ranks.get(round(entry.mean, digits), ""))
        if not math.isnan(entry.mean)
        else entry
        for entry in entries
    ]


# ------------------------------------------------------------------------------------------ returns


def compare(
    ours: pd.DataFrame | None,
    paper: pd.DataFrame | None,
    *,
    caption: str = "Episode returns",
    digits: int = 0,
    shown: Shown | None = None,
) -> Table:
    """Scores of ours (method, task, seed, score) beside a table of the paper, if there is one.

    Without `shown` the rows and columns are the paper's. A sum, as the total, is taken per seed and
    over the seeds that have all of its tasks.
    """
    paper = NO_PAPER if paper is None else paper
    rows = layout(paper, shown.tasks if shown else None)
    tasks = list(dict.fromkeys(task for _, task, kind in rows if kind == "score"))
    ours = pd.DataFrame(columns=["method", "task", "seed", "score"]) if ours is None else ours
    found = cells(ours, ["method", "task", "seed"], tasks)
    columns = shown.methods if shown else paper["method"]
    methods = list(dict.fromkeys([*columns, *sorted(found["method"].unique())]))
    printed = paper.set_index(["domain", "task", "method"])
    data: Any = []
    for domain, task, kind in rows:
        summed = [task] if kind == "score" else addends(paper, domain if kind == "sum" else None)
        for method in methods:
            row = {
                "domain": domain,
                "task": task,
                "kind": kind,
                "method": method,
                **over_seeds(found, method, summed),
            }
            theirs = (
                printed.loc[(domain, task, method)]
                if (domain, task, method) in printed.index
                else {}
            )
            row |= {
                "paper_mean": theirs.get("mean", math.nan),
                "paper_std": theirs.get("std", math.nan),
            }
            difference = math.nan if shown and shown.warning else row["mean"] - row["paper_mean"]
            data.append(row | {"difference": difference})
    data = pd.DataFrame(data)
    most = int(data["seeds"].max())
    caption += {0: ".", 1: "; ours are of one seed, without a deviation."}.get(
        most, f"; {DEVIATION} over {most} seeds unless stated."
    )
    blocks = [
        [
            line
            for _, row in rows.groupby("task", sort=False)
            for line in row_lines(row, most, digits)
        ]
        for _, rows in data.groupby("domain", sort=False)
    ]
    notes = [shown.warning] if shown and shown.warning and len(found) else []
    return Table(caption, methods, blocks, data, [*notes, *left_out(ours, found, tasks)], digits)


def layout(paper: pd.DataFrame, wanted: Mapping[str, str] | None) -> list[tuple[str, str, str]]:
    """domain, task and kind of each row: the paper's as far as its tasks are wanted, with the sums
    that are then complete, and below them the tasks that it does not have."""
    kinds = ["domain", "task", "kind"]
    printed: Any = list(paper[kinds].drop_duplicates().itertuples(index=False, name=None))
    if wanted is None:
        return printed
    kept = [
        (domain, task, kind)
        for domain, task, kind in printed
        if (
            task in wanted
            if kind == "score"
            else set(addends(paper, domain if kind == "sum" else None)) <= set(wanted)
        )
    ]
    known = {task for _, task, kind in printed if kind == "score"}
    return kept + [(domain, task, "score") for task, domain in wanted.items() if task not in known]


def addends(paper: pd.DataFrame, domain: str | None) -> list[str]:
    scores = paper[paper["kind"] == "score"]
    return list(
        dict.fromkeys(
            scores["task"] if domain is None else scores.loc[scores["domain"] == domain, "task"]
        )
    )


def over_seeds(found: pd.DataFrame, method: str, tasks: list[str]) -> dict[str, float]:
    rows = found[(found["method"] == method) & found["task"].isin(tasks)]
    table = (
        rows.pivot(index="seed", columns="task", values="score")
        .reindex(columns=tasks)
        .dropna()
        .astype(float)
    )
    sums = table.sum(axis=1)
    return {
        "mean": sums.mean(),
        "std": sums.std(ddof=1) if len(sums) > 1 else math.nan,
        "seeds": len(sums),
    }


def row_lines(rows: pd.DataFrame, most: int, digits: int) -> list[Line]:
    """Ours, the paper's where it has a number, and the difference; only the paper's where there is
    nothing of ours."""
    domain, task, kind = rows[["domain", "task", "kind"]].iloc[0]
    name = {"score": task.replace("_", " "), "sum": f"{domain} sum", "total": "total"}[kind]
    records = rows.to_dict("records")
    theirs = marked([Entry(r["paper_mean"], r["paper_std"]) for r in records], digits)
    if not rows["seeds"].any():
        return [Line(name, "paper", theirs)]
    ours = marked(
        [Entry(r["mean"], r["std"], r["seeds"] if r["seeds"] < most else 0) for r in records],
        digits,
    )
    lines = [Line(name, "ours", ours)]
    if rows["paper_mean"].notna().any():
        lines.append(Line("", "paper", theirs))
    if rows["difference"].notna().any():
        lines.append(Line("", "difference", [Entry(r["difference"], signed=True) for r in records]))
    return lines


def left_out(ours: pd.DataFrame, found: pd.DataFrame, tasks: list[str]) -> list[str]:
    notes = [] if len(found) else ["No runs of ours."]
    others = sorted(set(ours["task"]) - set(tasks))
    notes += [f"Not in the paper's table, so left out: {', '.join(others)}."] if others else []
    lost = ours[ours["task"].isin(tasks) & ~np.isfinite(ours["score"].astype(float))]
    return notes + [
        f"No finite score: {r.method} {r.task} seed {r.seed}." for r in lost.itertuples()
    ]

"""Figures of scores: intervals, curves, profiles, bars beside the paper's.

Each function takes a table of analysis/scores or analysis/frames and returns a Figure, which
save(figure, path) writes. The paper prints means and deviations but no single runs, so it appears
in the bars, and in no interval, curve or profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from analysis.palette import colours, marker, tint
from analysis.scores.aggregate import METRICS, cells
from experiment import paper as paper_tables
from experiment.labels import label
from utils import UserError, write_atomic

# What the paper draws as bars, and the words above them.
BARS = {
    "projection": "Projection ratio p",
    "skills": "Number of skills",
    "ablation": "Components of AMPED",
    "selection": "Choosing skills in fine-tuning",
    "urlb": "URLB",
    "metra": "AMPED and METRA",
    "scaling": "Reward scales",
}
# What plain "amped" stands for in figures whose other bars change that setting.
OWN = {"projection": "p of Table 8", "skills": "skill_dim=16"}
DOMAINS = ("walker", "quadruped", "jaco")
NO_RUNS = "no complete runs yet; the paper prints no single runs,\nso there is nothing of it to draw here either"
FONTS: Any = {
    "pdf.fonttype": 42,  # TrueType, so that text in the PDF stays text
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def save(figure: Figure, path: str | Path) -> list[Path]:
    """path.pdf (vectors) and path.png, without dates: the same figure gives the same bytes."""
    written = []
    for suffix, metadata in (("pdf", {"CreationDate": None}), ("png", {})):
        out = Path(f"{path}.{suffix}")  # not with_suffix: names may have dots (p=0.65)
        with matplotlib.rc_context(FONTS):
            write_atomic(
                out,
                lambda file, s=suffix, m=metadata: figure.savefig(
                    file, format=s, dpi=150, metadata=m
                ),
            )
        written.append(out)
    return written


def canvas(
    rows: int, columns: int, *, width: float, height: float, **options
) -> tuple[Figure, np.ndarray]:
    """width and height are one panel's, in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def say_nothing_to_draw(figure: Figure) -> None:
    figure.text(0.5, 0.5, NO_RUNS, ha="center", va="center", color="0.3")
    for axis in figure.axes:
        axis.set(xticks=[], yticks=[])
        axis.spines[:].set_visible(False)


def method_legend(
    figure: Figure, methods: Sequence[str], styles: Mapping[str, str] = MappingProxyType({})
) -> None:
    paint = colours(methods)
    handles = [
        Line2D([], [], color=paint[m], marker=marker(m), markersize=5, label=label(m))
        for m in methods
    ]
    handles += [
        Line2D([], [], label=words, linestyle=style, color="0.2") for words, style in styles.items()
    ]
    if handles:
        below(figure, handles)


def below(figure: Figure, handles: list) -> None:
    """A legend under all panels, in as many rows as it needs."""
    fit = max(1, int(figure.get_figwidth() / 1.1))
    rows = -(-len(handles) // fit)
    figure.legend(
        handles=handles, loc="outside lower center", ncols=-(-len(handles) // rows), frameon=False
    )


def frames(axis) -> None:
    """Ticks as 500k and 1.5M."""
    axis.xaxis.set_major_formatter(
        lambda x, _: next(
            (f"{x / size:g}{name}" for size, name in ((1e6, "M"), (1e3, "k")) if abs(x) >= size),
            f"{x:g}",
        )
    )
    axis.locator_params(axis="x", nbins=5)


# ------------------------------------------------------------------------------ intervals, profiles


def aggregate_intervals(table: pd.DataFrame) -> Figure:
    """The paper's main figure, of scores.aggregate: a panel per metric, a line per method, the best
    IQM on top."""
    order = table[table["metric"] == "IQM"].sort_values("value")["method"].tolist()
    with matplotlib.rc_context(FONTS):
        figure, axes = canvas(
            1, len(METRICS), width=2.5, height=max(1.6, 0.27 * len(order) + 0.9), sharey=True
        )
        paint = colours(order)
        for axis, metric in zip(axes[0], METRICS, strict=True):
            for row in table[table["metric"] == metric].itertuples():
                y = order.index(row.method)
                if np.isfinite(row.low):
                    axis.barh(
                        y,
                        row.high - row.low,
                        0.6,
                        left=row.low,
                        color=paint[row.method],
                        alpha=0.75,
                    )
                axis.plot([row.value] * 2, [y - 0.3, y + 0.3], color="black", linewidth=1.5)
            axis.set_title(f"{metric} {'↓' if metric == 'Optimality Gap' else '↑'}")
            axis.grid(axis="x", alpha=0.3)
            axis.locator_params(axis="x", nbins=4)
            axis.use_sticky_edges = False  # else the outermost bar touches the frame
        runs = table.drop_duplicates("method").set_index("method")["runs"] if len(table) else {}
        axes[0][0].set_yticks(
            range(len(order)), [f"{label(m)} ({spoken_runs(runs[m])})" for m in order]
        )
        figure.supxlabel("expert-normalised score; bars are bootstrap intervals", fontsize=9)
        if not order:
            say_nothing_to_draw(figure)
    return figure


def spoken_runs(count: int) -> str:
    return f"{count} runs" if count > 1 else "1 run, no interval"


def profile_figure(table: pd.DataFrame) -> Figure:
    """Of scores.profiles: the share of runs above each score."""
    with matplotlib.rc_context(FONTS):
        figure, axes = canvas(1, 1, width=5.6, height=3.8)
        methods = list(table["method"].unique())
        draw_lines(axes[0, 0], table, "tau", colours(methods))
        axes[0, 0].set(
            xlabel="expert-normalised score τ",
            ylabel="share of runs with score > τ",
            ylim=(0, 1.02),
        )
        if not methods:
            say_nothing_to_draw(figure)
        method_legend(figure, methods)
    return figure


def draw_lines(axis, table: pd.DataFrame, x: str, paint: dict[str, str]) -> None:
    """A line with its interval per method; one run is a line alone."""
    for method, rows in table.groupby("method", sort=False):
        rows = rows.sort_values(x)
        axis.plot(
            rows[x],
            rows["value"],
            color=paint[method],
            linewidth=1.6,
            marker=marker(method),
            markersize=4,
            markevery=-(-len(rows) // 12),
        )
        axis.fill_between(
            rows[x].astype(float),
            rows["low"].astype(float),
            rows["high"].astype(float),
            color=paint[method],
            alpha=0.18,
            linewidth=0,
        )
    axis.grid(alpha=0.3)


def task_curves(table: pd.DataFrame) -> Figure:
    """Of scores.task_efficiency: a row per task, a column per metric, over frames of
    fine-tuning."""
    tasks, methods = list(table["task"].unique()), list(table["method"].unique())
    paint = colours(methods)
    with matplotlib.rc_context(FONTS):
        figure, axes = canvas(max(len(tasks), 1), len(METRICS), width=2.6, height=2, sharex=True)
        for task, row in zip(tasks, axes, strict=False):
            for axis, metric in zip(row, METRICS, strict=True):
                draw_lines(
                    axis,
                    table[(table["task"] == task) & (table["metric"] == metric)],
                    "frame",
                    paint,
                )
                frames(axis)
            row[0].set_ylabel(task.replace("_", " "))
        for axis, metric in zip(axes[0], METRICS, strict=True):
            axis.set_title(metric)
        for axis in axes[-1]:
            axis.set_xlabel("frames of fine-tuning")
        figure.supylabel("expert-normalised", fontsize=9)
        if not tasks:
            say_nothing_to_draw(figure)
        method_legend(figure, methods)
    return figure


def return_curves(table: pd.DataFrame) -> Figure:
    """Of scores.task_efficiency without normalising: mean return over frames, a panel per task."""
    table = table[table["metric"] == "Mean"]
    tasks, methods = list(table["task"].unique()), list(table["method"].unique())
    paint, columns = colours(methods), min(len(tasks), 3) or 1
    with matplotlib.rc_context(FONTS):
        figure, axes = canvas(-(-max(len(tasks), 1) // columns), columns, width=3.2, height=2.4)
        for axis, task in zip(axes.flat, tasks, strict=False):
            draw_lines(axis, table[table["task"] == task], "frame", paint)
            frames(axis)
            axis.set(title=task.replace("_", " "), xlabel="frames of fine-tuning", ylabel="return")
        for axis in list(axes.flat)[len(tasks) :]:
            axis.axis("off")
        method_legend(figure, methods)
    return figure


# --------------------------------------------------------------------------------------------- bars


def bars(ours: pd.DataFrame | None, name: str) -> Figure:
    """Means of ours (method, task, seed, score; solid, a dot per seed) and of the paper's table
    `name` (hatched).

    Error bars are deviations: over seeds with n - 1 for ours, as printed for the paper.
    """
    if name not in BARS:
        raise UserError(f"no bars of {name!r}; choose from {', '.join(BARS)}")
    printed = paper_tables.compared(name)
    printed = printed[printed["kind"] == "score"]
    tasks = printed.groupby("domain", sort=False)["task"].unique()
    ours = cells(ours, ["method", "task", "seed"], printed["task"]) if ours is not None else None
    own = [] if ours is None else sorted(ours["method"].unique())
    methods = list(dict.fromkeys([*printed["method"], *own]))
    paint = colours(methods)
    with matplotlib.rc_context(FONTS):
        width = max(3.2, 0.35 * len(methods) * max(map(len, tasks)) * (1 if own else 0.7) + 0.8)
        figure, axes = canvas(1, len(tasks), width=min(width, 5.5), height=3)
        for axis, (domain, names) in zip(axes[0], tasks.items(), strict=True):
            for column, method in enumerate(methods):
                for row, task in enumerate(names):
                    slot = 0.84 / len(methods)
                    draw_pair(
                        axis,
                        row - 0.42 + slot * (column + 0.5),
                        slot,
                        paint[method],
                        ours[(ours["method"] == method) & (ours["task"] == task)]["score"]
                        if own
                        else None,
                        printed[(printed["method"] == method) & (printed["task"] == task)],
                    )
            axis.set_xticks(range(len(names)), [short(task, domain) for task in names])
            axis.set_title(domain)
            axis.set_ylim(bottom=0)
        axes[0][0].set_ylabel("episode return")
        handles = [Patch(color=paint[m], label=bar_label(m, name)) for m in methods]
        handles += [Patch(facecolor="0.6", edgecolor="black", label="ours")] if own else []
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="////", label="paper"))
        below(figure, handles)
        figure.suptitle(BARS[name] + ("" if own else " (the paper's numbers; no runs of ours)"))
    return figure


def draw_pair(
    axis, x: float, width: float, colour: str, scores: Sequence[float] | None, printed: pd.DataFrame
) -> None:
    """Both bars of a method on a task, ours left of the paper's; the place of a missing one stays
    empty."""
    error = {"ecolor": "black", "elinewidth": 0.8, "capsize": 1.5}
    thin, shift = (0.92 * width, 0) if scores is None else (0.46 * width, 0.23 * width)
    if scores is not None and len(scores):
        spread = np.std(scores, ddof=1) if len(scores) > 1 else None
        axis.bar(
            x - shift,
            np.mean(scores),
            thin,
            color=colour,
            edgecolor="black",
            linewidth=0.4,
            yerr=spread,
            error_kw=error,
        )
        axis.plot([x - shift] * len(scores), scores, ".", color="black", markersize=2.5)
    for theirs in printed.itertuples():
        axis.bar(
            x + shift,
            theirs.mean,
            thin,
            color=tint(colour, 0.75),
            edgecolor=colour,
            hatch="////",
            linewidth=0.8,
            yerr=None if np.isnan(theirs.std) else theirs.std,
            error_kw=error,
        )


def short(task: str, domain: str) -> str:
    """walker_flip -> flip; jaco_reach_top_left -> top left, on two lines."""
    return task.removeprefix(f"{domain}_").removeprefix("reach_").replace("_", "\n")


def bar_label(method: str, name: str) -> str:
    return f"{label(method)} ({OWN[name]})" if method == "amped" and name in OWN else label(method)

"""Measures averaged over seeds: for the screen, as Markdown, and as bars with a dot per seed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from analysis.maze.pictures import save_picture
from analysis.maze.rows import Measured
from analysis.palette import colours
from analysis.text import markdown_table

SHOWN = ("coverage", "entropy_kl", "mi_grid", "mi_mine", "separability")
RATIOS = ("coverage", "mi_grid")  # in which a method is compared with the best one
NAMES = {
    "coverage": "coverage",
    "entropy_particle": "particle entropy",
    "entropy_kl": "entropy (nats)",
    "mi_mine": "MI by MINE (nats)",
    "mi_grid": "MI (nats)",
    "mi_shuffled": "MI of shuffled skills (nats)",
    "separability": "separability",
}


def by_group(measured: list[Measured]) -> dict[str, dict[str, list[Measured]]]:
    """group -> label -> one per seed, all in the order they came."""
    groups: dict[str, dict[str, list[Measured]]] = {}
    for each in measured:
        groups.setdefault(each.group, {}).setdefault(each.label, []).append(each)
    return groups


def mean(seeds: list[Measured], name: str) -> float:
    return float(np.mean([each.value(name) for each in seeds]))


def skills_of(lines: dict[str, list[Measured]]) -> int:
    return int(next(iter(lines.values()))[0].row["skills"])


def screen(measured: list[Measured]) -> str:
    lines = []
    for group, methods in by_group(measured).items():
        lines.append(f"{group:<34}{'seeds':>6}" + "".join(f"{name:>14}" for name in SHOWN))
        lines += [
            f"  {label:<32}{len(seeds):>6}"
            + "".join(f"{mean(seeds, name):>14.3f}" for name in SHOWN)
            for label, seeds in methods.items()
        ]
    return "\n".join(lines)


# ----------------------------------------------------------------------------------------- markdown


def cell(seeds: list[Measured], name: str) -> str:
    values = [each.value(name) for each in seeds]
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def ratio_line(methods: dict[str, list[Measured]], label: str) -> str:
    parts = []
    for name in RATIOS:
        means = {each: mean(seeds, name) for each, seeds in methods.items()}
        best = max(means, key=lambda each: means[each])
        share = f"{means[label] / means[best]:.3f}" if means[best] > 0 else "undefined"
        parts.append(f"{name} {share} (best: {best}, {means[best]:.3f})")
    return f"{label} / best method: {'; '.join(parts)}."


def markdown(measured: list[Measured], title: str, command: str, against_best: str | None) -> str:
    """A table per group, a line per method: mean ± sample standard deviation over seeds."""
    lines = [f"# {title}", "", f"`{command}`", "", "Mean ± sample standard deviation over seeds."]
    for group, rows in by_group(measured).items():
        methods = {label: seeds for label, seeds in rows.items() if seeds[0].bound is None}
        cells = [
            [label, str(len(seeds)), *(cell(seeds, name) for name in SHOWN)]
            for label, seeds in rows.items()
        ]
        lines += [
            "",
            f"## {group}",
            "",
            markdown_table(["method", "seeds", *SHOWN], cells),
            "",
            f"No mutual information exceeds log {skills_of(rows)} = {math.log(skills_of(rows)):.3f}.",
        ]
        if against_best in methods:
            lines += ["", ratio_line(methods, against_best)]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------------------------- bars


def ceiling(lines: dict[str, list[Measured]], name: str) -> tuple[float, str] | None:
    """The most that a measure can say of these runs, and why."""
    if name in ("mi_mine", "mi_grid"):
        return math.log(skills_of(lines)), f"log {skills_of(lines)}"
    if name == "separability":
        return 1.0, ""
    top = [seeds for seeds in lines.values() if seeds[0].bound == "ceiling"]
    return (mean(top[0], name), "uniform states") if top else None


def draw_bars(measured: list[Measured], names: list[str], path: Path) -> None:
    """A row of axes per group, a column per measure: means as bars, seeds as dots, ceilings dashed,
    floors dotted."""
    from matplotlib.figure import Figure

    groups = by_group(measured)
    labels = list(dict.fromkeys(each.label for each in measured if each.bound is None))
    agents = {each.label: each.row["agent"] for each in measured}
    paint = colours(agents[label] for label in labels)
    wide = max(2.4, 0.42 * len(labels) + 0.9)
    figure = Figure(
        figsize=(wide * len(names), 2.2 * len(groups) + 1), dpi=100, layout="constrained"
    )
    axes = figure.subplots(len(groups), len(names), squeeze=False)
    for number, (row, (group, lines)) in enumerate(zip(axes, groups.items(), strict=True), 1):
        row[0].set_title(group, fontsize=10, loc="left")
        for axis, name in zip(row, names, strict=True):
            for x, label in enumerate(labels):
                seeds = lines.get(label, [])
                if seeds:
                    # another change of an agent that has a bar already: the same colour, paler
                    again = agents[label] in [agents[before] for before in labels[:x]]
                    axis.bar(
                        x,
                        mean(seeds, name),
                        0.75,
                        color=paint[agents[label]],
                        alpha=0.35 if again else 0.75,
                    )
                axis.plot(
                    [x] * len(seeds),
                    [each.value(name) for each in seeds],
                    "o",
                    color="black",
                    markersize=3,
                )
            if top := ceiling(lines, name):
                axis.axhline(top[0], color="black", linestyle="--", linewidth=1)
                axis.annotate(
                    top[1],
                    (1, top[0]),
                    (-2, 2),
                    ("axes fraction", "data"),
                    "offset points",
                    ha="right",
                    fontsize=7.5,
                )
            for seeds in lines.values():
                if seeds[0].bound == "floor":
                    axis.axhline(mean(seeds, name), color="grey", linestyle=":", linewidth=1)
            axis.axhline(0, color="black", linewidth=0.6)
            axis.margins(y=0.1)
            axis.set_ylabel(NAMES[name], fontsize=9)
            axis.set_xticks(
                range(len(labels)),
                labels if number == len(groups) else [""] * len(labels),
                rotation=35,
                ha="right",
                rotation_mode="anchor",
                fontsize=8,
            )
            axis.tick_params(axis="y", labelsize=7.5)
            axis.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)

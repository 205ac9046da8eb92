"""The page of the audit: tables, claims and a figure from the rows, whatever there is of them.

A setting is a point: coverage, and information in shares of log n. Its area is the product of the
two, the hypervolume that it dominates alone. The front of the tuned sum is the settings `sum
<share>`; the tuned sum is the one of them with the largest mean area in the mazes that are spoken of. It
is chosen on the same rows that it is then judged by, which favours it.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.maze.pictures import save_picture
from analysis.palette import colours
from analysis.scores.aggregate import matrices, probability_of_improvement
from analysis.scores.claims import Mean, compared, interval, mean_of, reaches
from analysis.scores.figures import canvas
from analysis.scores.fronts import with_interval
from analysis.scores.seeds import interval as seed_interval
from analysis.text import markdown_table
from utils import UserError, write_text

FRONT = "sum "  # how the names of the tuned sum's settings begin
OURS, PAPERS = "amped_plus", "amped"
AIMS = {"coverage": 0.97, "mi_grid": 0.95}  # shares of the best that amped_plus is meant to reach
WORDS = {"coverage": "coverage", "mi_grid": "information"}
MARKERS = "osD^v<>PXp*hH"

Cells = dict[str, dict[str, np.ndarray]]  # domain -> setting -> (seeds, 2)


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """With each run's point and area; one size only, or a longer run would be held against a
    shorter one. Numbers of skills are not compared with each other either: a maze that has several
    counts as so many mazes."""
    if rows.empty:
        raise UserError("there are no rows yet; python -m analysis.balance run makes them")
    sizes = rows.groupby("domain")["env_steps"].unique()
    for domain, found in sizes.items():
        if len(found) > 1:
            raise UserError(
                f"{domain} has runs of {' and '.join(map(str, sorted(found)))} steps, which cannot be "
                "compared; give --rows a file of one size"
            )
    several = rows.groupby("domain")["skills"].transform("nunique") > 1
    named = rows["domain"] + " with " + rows["skills"].astype(str) + " skills"
    information = rows["mi_grid"] / np.log(rows["skills"].astype(float))
    # Mazes in the order of their first rows, the skills of a maze from few to many.
    place = rows["domain"].map({maze: i for i, maze in enumerate(rows["domain"].unique())})
    return rows.assign(
        domain=rows["domain"].mask(several, named),
        information=information,
        area=rows["coverage"] * information,
    ).iloc[np.lexsort([rows["skills"], place])]


def heading(rows: pd.DataFrame, domain: str) -> str:
    skills = rows[rows["domain"] == domain]["skills"].iloc[0]
    return domain if domain.endswith(" skills") else f"{domain}, {skills} skills"


def cells_of(rows: pd.DataFrame) -> Cells:
    return {
        str(domain): {
            str(setting): runs[["coverage", "information"]].to_numpy(float)
            for setting, runs in part.groupby("setting", sort=False)
        }
        for domain, part in rows.groupby("domain", sort=False)
    }


def mean_in(rows: pd.DataFrame, domain: str, setting: str, measure: str) -> Mean:
    runs = rows[(rows["domain"] == domain) & (rows["setting"] == setting)]
    seeds = runs[measure].to_numpy(float)
    bounds = seed_interval(seeds) if len(seeds) > 1 else (math.nan, math.nan)
    return Mean(setting, seeds, float(seeds.mean()), *bounds)


# ------------------------------------------------------------------------------------------- tables


def table(rows: pd.DataFrame, domain: str) -> str:
    """A line per setting, the largest mean area first."""
    areas = rows[rows["domain"] == domain].groupby("setting")["area"].mean()
    lines = []
    for setting in areas.sort_values(ascending=False).index:
        means = [mean_in(rows, domain, setting, m) for m in ("coverage", "mi_grid", "area")]
        lines.append([setting, str(len(means[0].seeds)), *map(interval, means)])
    head = ["setting", "seeds", "coverage", "information (nats)", "area"]
    return markdown_table(head, lines, right_from=1)


def volumes(cells: Cells) -> str:
    """The hypervolume of the tuned sum's front, and with each other setting beside it."""
    lines = []
    names = dict.fromkeys(name for found in cells.values() for name in found)
    for name in ("", *(name for name in names if not name.startswith(FRONT))):
        line = [f"with {name}" if name else "the tuned sum's front"]
        for found in cells.values():
            front = {key: runs for key, runs in found.items() if key.startswith(FRONT)}
            if front and (not name or name in found):
                runs = {**front, name: found[name]} if name else front
                line.append(interval(Mean(name, np.zeros(0), *with_interval(runs))))
            else:
                line.append("")
        lines.append(line)
    return markdown_table(["hypervolume", *cells], lines, right_from=1)


# ------------------------------------------------------------------------------------------- claims


def tuned_sum(areas: dict[str, np.ndarray]) -> str | None:
    """The share with the largest mean area over the mazes; None where no share is complete."""
    front = {name: runs.mean() for name, runs in areas.items() if name.startswith(FRONT)}
    return max(front, key=lambda name: front[name]) if front else None


def claims(rows: pd.DataFrame, domains: list[str]) -> list[str]:
    """One section: a sentence per claim about these mazes, the table of probabilities, and what is
    missing."""
    scores = rows.rename(columns={"setting": "method", "domain": "task", "area": "score"})
    scores = scores[scores["task"].isin(domains)]
    areas, gaps = matrices(scores, domains, normalize=False)
    where = f"in area in {' and '.join(domains)}"
    means = {name: mean_of(name, runs, "audit", name) for name, runs in areas.items()}
    others = [name for name in means if not name.startswith(FRONT)]
    against, sentences, parts = tuned_sum(areas), [], []
    if against is not None:
        sentences += [compared(means[name], means[against], where) for name in others]
        judged = [name for name in others if min(len(areas[name]), len(areas[against])) > 1]
        if judged:
            parts.append(probabilities(areas, judged, against))
    if OURS in means:
        sentences += [compared(means[OURS], means[name], where) for name in others if name != OURS]
    for domain in domains:
        sentences += aims(rows, domain) if len(domains) == 1 else []
    parts.insert(0, "\n".join(f"- {each}" for each in sentences))
    if lacking := shortened(gaps):
        parts.append("Missing: " + "; ".join(lacking) + ".")
    return parts


def probabilities(areas: dict[str, np.ndarray], names: list[str], against: str) -> str:
    """Of settings with at least two seeds: one run is larger or is not, which is no probability."""
    found = probability_of_improvement(areas, [(name, against) for name in names], seed=0)
    lines = [
        [row["x"], interval(Mean(row["x"], np.zeros(0), row["value"], row["low"], row["high"]))]
        for row in found.to_dict("records")
    ]
    return markdown_table(
        ["setting", f"chance of a larger area than {against}"], lines, right_from=1
    )


def shortened(gaps: list[str]) -> list[str]:
    """Gaps with the same words after the name of their setting as one."""
    groups: dict[str, list[str]] = {}
    for gap in gaps:
        name, _, words = gap.partition(": ")
        groups.setdefault(words, []).append(name)
    return [f"{words} ({', '.join(names)})" for words, names in groups.items()]


def aims(rows: pd.DataFrame, domain: str) -> list[str]:
    """Whether amped_plus, and the paper's beside it, have almost the best of both."""
    sentences = []
    settings = list(rows[rows["domain"] == domain]["setting"].unique())
    for measure, share in AIMS.items():
        means = {name: mean_in(rows, domain, name, measure) for name in settings}
        best = max(means.values(), key=lambda mean: mean.value)
        sentences += [
            reaches(means[name], best, share, f"{WORDS[measure]} in {domain}")
            for name in (OURS, PAPERS)
            if name in means
        ]
    return sentences


def scores(rows: pd.DataFrame, best: dict[str, tuple[float, float]]) -> str:
    """How near each run comes to the aims: the smaller of its coverage and its information, in units
    of AIMS times the best coverage and information (nats) of that maze; 1 is the aim. A line per
    setting and size, by the mean of its runs: what the searches for amped_plus decide by."""
    unknown = set(rows["domain"]) - set(best)
    if unknown:
        raise UserError(f"say what is the best in {' and '.join(sorted(unknown))}: --best MAZE=C,I")
    bests = np.array([best[domain] for domain in rows["domain"]]) * list(AIMS.values())
    near = (rows[list(AIMS)].to_numpy(float) / bests).min(1)
    places = rows["domain"] + " " + rows["seed"].astype(str)
    rows = rows.assign(near=near, place=places)
    columns = sorted(rows["place"].unique())
    lines = []
    for (setting, steps), runs in rows.groupby(["setting", "env_steps"], sort=False):
        of = dict(zip(runs["place"], runs["near"], strict=True))
        line = [f"{of[place]:.3f}" if place in of else "" for place in columns]
        lines.append((runs["near"].mean(), [setting, f"{steps:,}", *line]))
    lines.sort(key=lambda pair: -pair[0])
    return markdown_table(
        ["setting", "steps", *columns, "mean"],
        [[*line, f"{mean:.3f}"] for mean, line in lines],
        right_from=1,
    )


# ------------------------------------------------------------------------------------------- figure


def draw(rows: pd.DataFrame):
    """A panel per maze: means with intervals; the tuned sum's settings are joined in the order of
    their shares."""
    domains = list(rows["domain"].unique())
    columns = min(len(domains), 3)
    rows_of_panels = math.ceil(len(domains) / columns)
    figure, axes = canvas(rows_of_panels, columns, width=4.6, height=3.9)
    for axis in axes.flat[len(domains) :]:
        axis.set_axis_off()
    settings = list(rows["setting"].unique())
    others = [name for name in settings if not name.startswith(FRONT)]
    paint = colours(others)
    marks = dict(zip(others, itertools.cycle(MARKERS)))  # the same in every panel
    for axis, domain in zip(axes.flat, domains, strict=False):  # the last panels may be empty
        skills = rows[rows["domain"] == domain]["skills"].iloc[0]
        there = set(rows[rows["domain"] == domain]["setting"])
        front = sorted(name for name in settings if name.startswith(FRONT) and name in there)
        points = {
            name: [mean_in(rows, domain, name, m) for m in ("coverage", "mi_grid")]
            for name in (*front, *(name for name in others if name in there))
        }
        for name, (x, y) in points.items():
            of_front = name in front
            colour = "0.35" if of_front else paint[name]
            spans = {
                key: None
                if math.isnan(mean.low)
                else [[max(mean.value - mean.low, 0)], [max(mean.high - mean.value, 0)]]
                for key, mean in (("xerr", x), ("yerr", y))
            }
            axis.errorbar(
                x.value,
                y.value,
                fmt="." if of_front else marks[name],
                color=colour,
                markersize=6,
                elinewidth=0.8,
                label="_" if of_front else name,
                **spans,
            )
            if of_front:
                axis.annotate(name.removeprefix(FRONT), (x.value, y.value), fontsize=7)
        line = [[mean.value for mean in points[name]] for name in front]
        if line:
            axis.plot(*zip(*line, strict=True), color="0.35", linewidth=1, label="sum, by share")
        axis.axhline(math.log(skills), color="0.7", linestyle="--", linewidth=1)
        axis.set(title=heading(rows, domain), xlabel="coverage")
    for axis in axes[:, 0]:
        axis.set_ylabel("information about the skill (nats)")
    handles: dict[str, Any] = {}
    for axis in axes.flat:
        handles |= {label: h for h, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(
        handles.values(), list(handles), loc="outside right center", frameon=False, fontsize=7
    )
    return figure


# --------------------------------------------------------------------------------------------- page


def page(rows: pd.DataFrame) -> str:
    rows = prepared(rows)
    domains = list(rows["domain"].unique())
    steps = ", ".join(
        f"{domain} {rows[rows['domain'] == domain]['env_steps'].iloc[0]:,}" for domain in domains
    )
    parts = [
        "# Balance in the mazes",
        f"`python -m analysis.balance show`. Environment steps: {steps}. Means over seeds with 95 % "
        "intervals; area is coverage times information in shares of log n. The tuned sum is the share "
        "with the largest mean area, chosen on these same rows, which favours it.",
    ]
    for domain in domains:
        parts += [f"## {heading(rows, domain)}", table(rows, domain), *claims(rows, [domain])]
    if len(domains) > 1:
        parts += [f"## {' and '.join(domains)}", *claims(rows, domains)]
    if rows["setting"].str.startswith(FRONT).any():
        parts += ["## Hypervolume", volumes(cells_of(rows))]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_page(rows: pd.DataFrame, out: Path) -> None:
    """out.md and out.png."""
    text = page(rows)
    write_text(out.with_suffix(".md"), text)
    save_picture(draw(prepared(rows)), out.with_suffix(".png"))
    print(text, end="")
    print(f"written: {out}.{{md,png}}")

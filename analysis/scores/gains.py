"""The headline of the paper's Sec. 4.2: by how much AMPED's IQM lies above a baseline's, in percent.

    paper_gains(rng)            what the paper's printed tables allow
    run_gains(matrices, seed=0) of runs at hand
    beside(paper, ours)         both, beside the five printed gains

The paper prints no single runs. Its column draws runs that have exactly the printed mean and
deviation of each task: an IQM is not a mean, so the printed moments leave it a range instead of a
value. The interval then resamples the drawn runs as the bootstrap resamples real ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from rliable import metrics

from analysis.scores.aggregate import CONFIDENCE, REPS, canonical, drawing, estimate
from analysis.text import markdown_records
from experiment.labels import label
from experiment.paper import claim, compared
from run.results import expert_score

SEEDS = 10  # of every row of the paper that the gains compare
OURS = ("amped", "amped_selector")
BASELINES = ("becl", "cic", "apt", "cesd", "comsd")  # the five whose gains the paper prints
COLUMNS = ["method", "over", "value", "low", "high"]


def drawn_iqm(
    scores: pd.DataFrame, rng: np.random.Generator, draws: int = 2000, *, resample: bool = False
) -> np.ndarray:
    """(draws,) of expert-normalised IQMs over runs that have the printed moments of each task. Drawn
    runs are normal before they are shifted and scaled; `resample` takes them with replacement."""
    scores = scores[scores["kind"] == "score"]
    expert = np.array([expert_score(task) for task in scores["task"]])
    runs = rng.normal(size=(draws, len(scores), SEEDS))
    runs = (runs - runs.mean(-1, keepdims=True)) / runs.std(-1, keepdims=True)
    if resample:
        runs = np.take_along_axis(runs, rng.integers(SEEDS, size=runs.shape), -1)
    runs = runs * scores["std"].to_numpy()[:, None] + scores["mean"].to_numpy()[:, None]
    flat = np.sort((runs / expert[:, None]).reshape(draws, -1), axis=-1)
    quarter = flat.shape[-1] // 4
    return flat[:, quarter:-quarter].mean(-1)


def paper_gains(rng: np.random.Generator, confidence: float = CONFIDENCE) -> pd.DataFrame:
    """method, over, value, low, high: the median of the drawn gains, and their bootstrap interval;
    range_low and range_high are what the printed moments alone allow (99 %)."""
    table = compared("urlb")
    printed = {name: table[table["method"] == name] for name in (*OURS, *BASELINES)}
    plain = {name: drawn_iqm(rows, rng) for name, rows in printed.items()}
    resampled = {name: drawn_iqm(rows, rng, resample=True) for name, rows in printed.items()}
    rows = []
    for method in OURS:
        for over in BASELINES:
            exact = 100 * (plain[method] / plain[over] - 1)
            spread = 100 * (resampled[method] / resampled[over] - 1)
            tail = (1 - confidence) / 2
            rows.append(
                (
                    method,
                    over,
                    np.median(exact),
                    *np.quantile(spread, [tail, 1 - tail]),
                    *np.quantile(exact, [0.005, 0.995]),
                )
            )
    return pd.DataFrame(rows, columns=[*COLUMNS, "range_low", "range_high"])


def gain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(1,): the IQM of x above that of y, in percent."""
    return np.array([100 * (metrics.aggregate_iqm(x) / metrics.aggregate_iqm(y) - 1)])


def run_gains(
    matrices: Mapping[str, np.ndarray],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """method, over, value, low, high of AMPED, with and without its selector, over every other
    method that has runs; `matrices` is method -> (runs, tasks)."""
    rows = []
    for method in (name for name in OURS if name in matrices):
        for over in (name for name in matrices if name not in OURS):
            both = [canonical(matrices[method]), canonical(matrices[over])]
            with drawing(seed, "gain", method, over):
                estimates = estimate(both, gain, reps, confidence)
            rows.append((method, over, *(float(each[0]) for each in estimates)))
    return pd.DataFrame(rows, columns=COLUMNS)


def beside(theirs: pd.DataFrame, ours: pd.DataFrame) -> str:
    """A Markdown table: a row per baseline, the printed gain, the paper's tables, ours."""
    sources = {"paper's tables": theirs, "ours": ours}
    rows = []
    for over in dict.fromkeys([*BASELINES, *ours["over"]]):
        printed = f"{claim(f'iqm_gain_{over}'):.2f}" if over in BASELINES else "-"
        row = {"AMPED's IQM above, in %": label(over), "printed (Sec. 4.2)": printed}
        for source, table in sources.items():
            for method in OURS:
                found = table[(table["method"] == method) & (table["over"] == over)]
                row[f"{source}: {label(method)}"] = spell(found)
        rows.append(row)
    return markdown_records(rows)


def spell(found: pd.DataFrame) -> str:
    """12.3 [8.1, 16.0]; without an interval of a single run, a dash without any."""
    if not len(found):
        return "-"
    row = found.iloc[0]
    interval = "" if np.isnan(row["low"]) else f" [{row['low']:.1f}, {row['high']:.1f}]"
    return f"{row['value']:.1f}{interval}"

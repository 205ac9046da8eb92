"""Expert-normalised scores over tasks and seeds by rliable: medians, means and their intervals.

All functions start from a frame with a row per score (method, task, seed, score; curves have frame
too). Intervals are rliable's stratified bootstrap over runs: percentiles, tasks fixed, seeds of one
task drawn independently of the other tasks'. They depend on the scores and on `seed` alone: not on
the order of rows or methods, nor on which other methods there are, nor on numpy's global state,
which is left as it was. A single run has no interval: low and high are NaN, runs is 1. Percentiles
are not built around the point: at a low confidence, or with few repetitions, they can miss it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pandas as pd
from rliable import library, metrics

from run.results import expert_score
from utils import UserError, stream_seed

METRICS: dict[str, Callable[[np.ndarray], float]] = {
    "Median": metrics.aggregate_median,
    "IQM": metrics.aggregate_iqm,
    "Mean": metrics.aggregate_mean,
    "Optimality Gap": metrics.aggregate_optimality_gap,
}
REPS, CONFIDENCE = 2000, 0.95
EFFICIENCY = ["method", "metric", "frame", "value", "low", "high", "runs"]

Matrices = dict[str, np.ndarray]


# ----------------------------------------------------------------------------------------- matrices


def matrices(
    scores: pd.DataFrame, tasks: Sequence[str], normalize: bool = True
) -> tuple[Matrices, list[str]]:
    """method -> (runs, tasks) of the seeds that have every task, and in words what is missing or
    left out.

    Normalised means divided by the expert's return: no offset, no clipping.
    """
    found = cells(scores, ["method", "task", "seed"], tasks)
    experts = expert_scores(tasks) if normalize else np.ones(len(tasks))
    kept: Matrices = {}
    gaps: list[str] = []
    every_seed = sorted(found["seed"].unique())
    for method, rows in found.groupby("method", sort=False):
        table = rows.pivot(index="seed", columns="task", values="score").reindex(
            columns=list(tasks)
        )
        if absent := [str(seed) for seed in every_seed if seed not in table.index]:
            gaps.append(f"{method}: no run of seed {', '.join(absent)}, which other methods have")
        lacking = table.isna()
        gaps += [
            f"{method} seed {seed}: no {', '.join(table.columns[lacking.loc[seed]])}"
            for seed in table.index[lacking.any(axis=1)]
        ]
        whole = table[~lacking.any(axis=1)].to_numpy(float)
        if not len(whole):
            gaps.append(f"{method}: left out, no seed has every task")
            continue
        if len(whole) == 1:
            gaps.append(f"{method}: one run only, so no interval")
        kept[str(method)] = whole / experts
    absent = [method for method in scores["method"].unique() if method not in set(found["method"])]
    return kept, gaps + [f"{method}: left out, no run of these tasks" for method in absent]


def cells(scores: pd.DataFrame, keys: list[str], tasks: Iterable[str]) -> pd.DataFrame:
    """The finite scores of these tasks. Two scores for the same keys are refused, because a run
    would be counted twice."""
    lacking = [name for name in (*keys, "score") if name not in scores]
    if lacking:
        raise UserError(
            f"scores have no column {', '.join(lacking)}; they have {', '.join(map(str, scores.columns))}"
        )
    found = scores[scores["task"].isin(list(tasks)) & np.isfinite(scores["score"].astype(float))]
    twice = found[found.duplicated(keys, keep="first")].drop_duplicates(keys)
    if len(twice):
        named = [
            " ".join(
                f"{key} {row[key]}" if key in ("seed", "frame") else str(row[key]) for key in keys
            )
            for _, row in twice.head(4).iterrows()
        ]
        raise UserError(
            f"more than one score for {'; '.join(named)}{' and more' if len(twice) > 4 else ''}; "
            "give each variant a method name of its own"
        )
    return found


def expert_scores(tasks: Sequence[str]) -> np.ndarray:
    experts = {task: expert_score(task) for task in tasks}
    unknown = [task for task, score in experts.items() if score is None]
    if unknown:
        raise UserError(
            f"no expert score of {', '.join(unknown)} in results/expert_scores.csv; use normalize=False"
        )
    return np.array(list(experts.values()))


# ---------------------------------------------------------------------------------------- intervals


@contextmanager
def drawing(seed: int, *names: str) -> Iterator[None]:
    """rliable ignores its random_state and draws from numpy's global generator. Inside, that one is
    seeded; afterwards it is as it was."""
    before = np.random.get_state()
    np.random.seed(stream_seed(seed, *names))
    try:
        yield
    finally:
        np.random.set_state(before)


def canonical(scores: np.ndarray) -> np.ndarray:
    """The rows sorted by their scores: which run the bootstrap draws must not depend on the order
    in which they were read."""
    flat = scores.reshape(len(scores), -1)
    return scores[np.lexsort(flat.T[::-1])]


def estimate(
    scores: np.ndarray | list[np.ndarray],
    func: Callable[..., np.ndarray],
    reps: int,
    confidence: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Point, low and high of func, one value each per element of its result."""
    several = isinstance(scores, list)
    if min(len(each) for each in (scores if several else [scores])) == 1:
        value = np.asarray(func(*scores) if several else func(scores), float)
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    point, interval = library.get_interval_estimates(
        {"": scores}, func, reps=reps, confidence_interval_size=confidence
    )
    return np.asarray(point[""], float), *np.asarray(interval[""], float)


def all_metrics(scores: np.ndarray) -> np.ndarray:
    return np.array([metric(scores) for metric in METRICS.values()])


def aggregate(
    matrices: Mapping[str, np.ndarray],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """method, metric, value, low, high, runs: the four metrics on the same resampled runs."""
    rows = []
    for method, scores in matrices.items():
        with drawing(seed, "aggregate", method):
            estimates = estimate(canonical(scores), all_metrics, reps, confidence)
        rows += [
            (method, metric, *each, len(scores))
            for metric, *each in zip(METRICS, *estimates, strict=True)
        ]
    return pd.DataFrame(rows, columns=["method", "metric", "value", "low", "high", "runs"])


def improvement(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(1,): chance that a run of x beats one of y, ties half, averaged over tasks. rliable's,
    without its slow test."""
    above, equal = x[:, None] > y[None], x[:, None] == y[None]  # (runs of x, runs of y, tasks)
    return np.array([above.mean() + equal.mean() / 2])


def probability_of_improvement(
    matrices: Mapping[str, np.ndarray],
    pairs: Iterable[tuple[str, str]],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """x, y, value, low, high, runs_x, runs_y: the chance that x is better than y on a task."""
    rows = []
    for x, y in pairs:
        if unknown := [name for name in (x, y) if name not in matrices]:
            raise UserError(
                f"no scores of {', '.join(unknown)}; there are {', '.join(matrices) or 'none'}"
            )
        both = [canonical(matrices[x]), canonical(matrices[y])]
        with drawing(seed, "improvement", x, y):
            estimates = estimate(both, improvement, reps, confidence)
        rows.append((x, y, *(float(each[0]) for each in estimates), len(both[0]), len(both[1])))
    return pd.DataFrame(rows, columns=["x", "y", "value", "low", "high", "runs_x", "runs_y"])


def profiles(
    matrices: Mapping[str, np.ndarray],
    taus: Sequence[float],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
) -> pd.DataFrame:
    """method, tau, value, low, high, runs: the share of runs (of all tasks) with a score above
    tau."""
    levels, rows = np.asarray(taus, float), []

    def above(scores: np.ndarray) -> np.ndarray:
        return (scores[..., None] > levels).mean((0, 1))

    for method, scores in matrices.items():
        with drawing(seed, "profile", method):
            estimates = estimate(canonical(scores), above, reps, confidence)
        rows += [(method, *each, len(scores)) for each in zip(levels, *estimates, strict=True)]
    return pd.DataFrame(rows, columns=["method", "tau", "value", "low", "high", "runs"])


# ------------------------------------------------------------------------------------------- frames


def metrics_over_frames(scores: np.ndarray) -> np.ndarray:
    """(4 * frames,) of (runs, tasks, frames): rliable's four metrics at all frames at once, a
    hundred times as fast."""
    flat, task_means = np.sort(scores.reshape(-1, scores.shape[-1]), axis=0), scores.mean(0)
    cut = len(flat) // 4
    return np.concatenate(
        [
            np.median(task_means, axis=0),
            flat[cut : len(flat) - cut].mean(0),
            task_means.mean(0),
            1 - np.minimum(flat, 1).mean(0),
        ]
    )


def stacks(
    curves: pd.DataFrame, tasks: Sequence[str], *, normalize: bool = True
) -> tuple[dict[str, tuple[list[int], np.ndarray]], list[str]]:
    """method -> its frames and (runs, tasks, frames) of the seeds that have every task, and in words
    what is missing or left out. A method has the frames at which all of its runs were evaluated."""
    found = cells(curves, ["method", "task", "seed", "frame"], tasks)
    complete, gaps = matrices(found.drop_duplicates(["method", "task", "seed"]), tasks, normalize)
    experts = expert_scores(tasks) if normalize else np.ones(len(tasks))
    kept = {}
    for method in complete:
        table = found[found["method"] == method].pivot(
            index="frame", columns=["seed", "task"], values="score"
        )
        seeds = [
            s
            for s in sorted({number for number, _ in table})
            if all((s, task) in table for task in tasks)
        ]
        table = table[[(s, task) for s in seeds for task in tasks]].dropna(how="all")
        shared = table.dropna()
        if dropped := sorted(set(table.index) - set(shared.index)):
            gaps.append(
                f"{method}: not every run was evaluated at frame {', '.join(map(str, dropped))}"
            )
        if shared.empty:
            gaps.append(f"{method}: left out, no frame at which every run was evaluated")
            continue
        stack = shared.to_numpy(float).T.reshape(len(seeds), len(tasks), len(shared))
        kept[method] = [int(frame) for frame in shared.index], stack / experts[:, None]
    return kept, gaps


def sample_efficiency(
    curves: pd.DataFrame,
    tasks: Sequence[str],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
    normalize: bool = True,
) -> tuple[pd.DataFrame, list[str]]:
    """method, metric, frame, value, low, high, runs over frames, and in words what is missing or
    left out.

    Of a single task the median is the mean, for it is taken over the means of tasks.
    """
    found, gaps = stacks(curves, tasks, normalize=normalize)
    rows: list[tuple] = []
    for method, (frames, stack) in found.items():
        with drawing(seed, "frames", method, *tasks):
            estimates = estimate(canonical(stack), metrics_over_frames, reps, confidence)
        points = ((metric, frame) for metric in METRICS for frame in frames)
        rows += [
            (method, *point, *each, len(stack))
            for point, *each in zip(points, *estimates, strict=True)
        ]
    return pd.DataFrame(rows, columns=EFFICIENCY), gaps


def task_efficiency(
    curves: pd.DataFrame,
    tasks: Sequence[str],
    *,
    seed: int,
    reps: int = REPS,
    confidence: float = CONFIDENCE,
    normalize: bool = True,
) -> tuple[pd.DataFrame, list[str]]:
    """sample_efficiency of each task by itself, with a column task."""
    parts = {
        task: sample_efficiency(
            curves, [task], seed=seed, reps=reps, confidence=confidence, normalize=normalize
        )
        for task in tasks
    }
    filled = [part.assign(task=task) for task, (part, _) in parts.items() if len(part)]
    table = (
        pd.concat(filled, ignore_index=True)
        if filled
        else pd.DataFrame(columns=[*EFFICIENCY, "task"])
    )
    return table, [f"{task}: {gap}" for task, (_, gaps) in parts.items() for gap in gaps]

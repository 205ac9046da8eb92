"""Curves of ways of adapting: their measures, and the tables of a page of analysis.adapt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.scores.claims import Mean, established, interval, mean_of
from analysis.text import markdown_table
from utils import UserError

Stacks = dict[str, tuple[list[int], np.ndarray]]  # method -> frames, (seeds, tasks, frames)


def area(curves: np.ndarray, frames: Sequence[int]) -> np.ndarray:
    """Mean height of curves (..., frames) between the first and the last frame (trapezia)."""
    return np.trapezoid(curves, frames, axis=-1) / (frames[-1] - frames[0])


def frames_to_reach(curve: np.ndarray, frames: Sequence[int], level: float) -> float:
    """Where a curve first reaches the level, straight between evaluations; NaN if it never does."""
    for i, height in enumerate(curve):
        if height < level:
            continue
        if i == 0:
            return float(frames[0])
        rise = (level - curve[i - 1]) / (height - curve[i - 1])
        return float(frames[i - 1] + rise * (frames[i] - frames[i - 1]))
    return float("nan")


def at(frames: Sequence[int], stack: np.ndarray, frame: int) -> np.ndarray:
    """The scores at one frame, (seeds, tasks)."""
    if frame not in frames:
        raise UserError(
            f"no evaluation at frame {frame}; there are {', '.join(map(str, frames))}: give --frame"
        )
    return stack[:, :, list(frames).index(frame)]


def mean_at(name: str, frames: Sequence[int], stack: np.ndarray, frame: int) -> Mean:
    return mean_of(name, at(frames, stack, frame), "adapt", name, str(frame))


def area_of(name: str, frames: Sequence[int], stack: np.ndarray) -> Mean:
    return mean_of(name, area(stack, frames), "area", name)  # of (seeds, tasks)


def table(found: Stacks, first: str) -> str:
    """A row per method: the mean over tasks at every frame, the area, the frames that it needs to
    reach the last mean of the first method."""
    frames, stack = found[first]
    level = stack.mean((0, 1))[-1]
    head = ["", *(f"{frame:,}" for frame in frames), "area", f"frames to {level:.3f}", "seeds"]
    lines = []
    for name, (own, values) in found.items():
        cells = [
            interval(mean_at(name, own, values, frame)) if frame in own else "" for frame in frames
        ]
        reached = frames_to_reach(values.mean((0, 1)), own, level)
        lines.append(
            [
                name,
                *cells,
                interval(area_of(name, own, values)),
                "never" if np.isnan(reached) else f"{reached:,.0f}",
                str(len(values)),
            ]
        )
    return markdown_table(head, lines, right_from=1)


def marked(own: Mean, others: Sequence[Mean]) -> str:
    if all(established(own, other) for other in others):
        return f"**{own.value:.3f}**"
    below = any(established(other, own) for other in others)
    return f"_{own.value:.3f}_" if below else f"{own.value:.3f}"


def task_table(found: Stacks, tasks: Sequence[str], against: Sequence[str], frame: int) -> str:
    """Normalised score of each task at one frame: mean over seeds, bold where it is established
    above all of `against` on that task, italic where it is established below one of them."""

    def means_of(name: str) -> list[Mean]:
        scores = at(*found[name], frame)
        return [
            mean_of(name, scores[:, [i]], "adapt", name, task, str(frame))
            for i, task in enumerate(tasks)
        ]

    held = list(zip(*map(means_of, against), strict=True))  # by task
    lines = [
        [name, *(marked(own, others) for own, others in zip(means_of(name), held, strict=True))]
        for name in found
    ]
    return markdown_table([f"at {frame:,} frames", *tasks], lines, right_from=1)

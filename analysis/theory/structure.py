"""How much of the gradient conflict is built in? python -m analysis.structure

One critic Q, one bootstrap, two rewards: L_k = mean (Q - y_k)^2 with y_k = r_k + gamma Q'. Sample
by sample the gradients are 2 (Q - y_k) dQ, two multiples of one vector. Three facts follow, each
checked by tests/analysis/test_structure.py:

1. A sample is in conflict exactly where Q lies between its two targets,
   |Q - (y1 + y2) / 2| < |r1 - r2| / 2. The gap of the targets is that of the rewards, at any
   bootstrap: the better Q is learned, the more conflict.

2. Of a batch, let a = (g1 + g2) / 2, the gradient of Q's error against the mean target, and
   b = (g1 - g2) / 2, which holds r1 - r2 and nothing else of the targets. Then
   <g1, g2> = |a|^2 - |b|^2: conflict where |b| > |a|. Where the summed loss is stationary, a = 0 and
   the cosine is -1, also for rewards that agree in everything but their scale.

3. Algorithm 1 is in expectation a sum with weights (`surgery_weights`). Opposite gradients are
   projected to nothing: what remains is the second stream's with probability p, the first one's
   with 1 - p. Q settles at (1 - p) y1 + p y2, as if the reward were
   (1 - p) r_diversity + p r_exploration. The plain sum settles at the mean. At p = 1 (or 0) this
   holds only nearly: close to y2 its own gradient is noise, to which the other one is no longer
   opposite.

With one head and one bootstrap per stream (learner.critic_heads=per_stream) none of this is built
in.
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

from agent.learners.surgery import EPS, ProjectConflict, SumGradients
from agent.parts.draws import Draws
from analysis.theory.critics import (
    RELATIONS,
    amped_run,
    evaluate_policy,
    late_means,
    make_transitions,
)
from analysis.theory.study import Row, panels, run
from utils import Streams

SCALES = (1.0, 1.5, 3.0, 10.0, 100.0)  # mean of the second reward over that of the first
FACTORS = (0.001, 0.01, 0.03, 0.1, 1.0)  # on the paper's alpha and beta
PROBABILITIES = (0.0, 0.25, 0.5, 0.75, 1.0)
UPDATES, FRAMES = 500, 1000
HEADS = ("shared", "per_stream")


# -------------------------------------------------------------------------------------- mathematics


def sample_conflicts(q: Tensor, y1: Tensor, y2: Tensor) -> Tensor:
    """Fact 1: which samples of one Q have opposite gradients."""
    return (q - (y1 + y2) / 2).abs() < (y1 - y2).abs() / 2


def halves(g: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
    """Fact 2: what the two gradients share, and what separates them."""
    return (g + h) / 2, (g - h) / 2


def surgery_weights(g: Tensor, h: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Fact 3: E[Algorithm 1] = w g + v h, the expectation over its coin; g is projected with
    probability p."""
    against = (g @ h).clamp(max=0)
    return 1 - (1 - p) * against / (g @ g + EPS), 1 - p * against / (h @ h + EPS)


def settle(
    surgery: ProjectConflict | SumGradients, *, steps: int = 3000, lr: float = 0.01
) -> tuple[float, float]:
    """One number q with squared losses to 0 (diversity) and 1 (exploration): mean and deviation of
    its second half."""
    q, path = torch.tensor([0.5]), []
    for _ in range(steps):
        q = q - lr * surgery({"diversity": 2 * q, "exploration": 2 * (q - 1)})
        path.append(q.item())
    return float(np.mean(path[steps // 2 :])), float(np.std(path[steps // 2 :]))


def make_surgery(p: float | None, generator: torch.Generator) -> ProjectConflict | SumGradients:
    return (
        SumGradients()
        if p is None
        else ProjectConflict(p=p, first="diversity", generator=Draws(generator))
    )


@torch.no_grad()
def position(learner, batch) -> list[float]:
    """Where each head of the critic stands between the first reward (0) and the second (1), without
    a bootstrap."""
    both = learner.values(learner.critic, batch.obs, batch.skill, batch.action)
    q = sum(both) / 2  # (B, columns)
    low, way = batch.reward[:, :1], batch.reward[:, 1:] - batch.reward[:, :1]
    return [float(((column.unsqueeze(1) - low) * way).sum() / way.square().sum()) for column in q.T]


# -------------------------------------------------------------------------------------------- study


def scale_rows(seed: int, updates: int) -> list[Row]:
    rows = []
    for heads in HEADS:
        for relation in RELATIONS:
            for scale in SCALES:
                batch = make_transitions(relation, scale, 0.9, Streams(seed).torch("rewards"))
                words = ("surgery=sum", f"learner.critic_heads={heads}")
                _, metrics = evaluate_policy(batch, seed, words, updates, watch=True)
                rows.append(
                    {
                        "part": "scale",
                        "heads": heads,
                        "case": relation,
                        "ratio": scale,
                        **late_means(metrics),
                    }
                )
    return rows


def run_rows(seed: int, frames: int) -> list[Row]:
    rows = []
    for heads in HEADS:
        for factor in tqdm(FACTORS, desc=f"AMPED, {heads}", disable=None, leave=False):
            row = amped_run(factor, heads, seed, frames)
            rows.append(
                {
                    "part": "run",
                    "heads": heads,
                    "case": f"alpha and beta x {factor:g}",
                    "ratio": row["exploration"] / row["diversity"],
                    **row,
                }
            )
    return rows


def mixing_rows(seed: int, updates: int) -> list[Row]:
    rows, batch = [], make_transitions("unrelated", 10.0, 0.0, Streams(seed).torch("rewards"))
    for p in (*PROBABILITIES, None):
        mean, deviation = settle(make_surgery(p, Streams(seed).torch("settle")))
        case = "sum" if p is None else "algorithm 1"
        rows.append(
            {
                "part": "mixing",
                "heads": "one number",
                "case": case,
                "p": p,
                "weight": mean,
                "deviation": deviation,
            }
        )
        for heads in HEADS:
            words = ("surgery=sum",) if p is None else (f"p={p}",)
            learner, _ = evaluate_policy(
                batch, seed, (*words, f"learner.critic_heads={heads}"), updates
            )
            found = position(learner, batch)
            names = (
                [heads]
                if heads == "shared"
                else ["per_stream, diversity", "per_stream, exploration"]
            )
            rows += [
                {"part": "mixing", "heads": name, "case": case, "p": p, "weight": weight}
                for name, weight in zip(names, found, strict=True)
            ]
    return rows


def study(
    seed: int, *, updates: int = UPDATES, frames: int = FRAMES
) -> tuple[list[Row], Figure, str]:
    rows = scale_rows(seed, updates) + mixing_rows(seed, updates) + run_rows(seed, frames)
    return rows, picture(rows), summary(rows)


def pick(rows: list[Row], columns: tuple[str, ...], **where) -> list[np.ndarray]:
    chosen = [row for row in rows if all(row.get(key) == value for key, value in where.items())]
    return [np.array([row[column] for row in chosen], float) for column in columns]


def below(axis, **options) -> None:
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), **options)


def picture(rows: list[Row]) -> Figure:
    figure, (rate, cosine, runs, mixing) = panels(2, 2, 4.0)
    measures = ("ratio", "conflict", "sample_conflict", "cosine")
    for relation, colour in zip(RELATIONS, ("C0", "C1", "C3"), strict=True):
        for heads, style, words in (("shared", "o-", ""), ("per_stream", "s:", ", two heads")):
            scale, per_update, per_sample, cos = pick(
                rows, measures, part="scale", heads=heads, case=relation
            )
            rate.plot(scale, per_update, style, color=colour, label=f"{relation}{words}")
            cosine.plot(scale, cos, style, color=colour, label=f"{relation}{words}")
            if heads == "shared":
                rate.plot(
                    scale, per_sample, "--", color=colour, lw=0.8, label=f"{relation}, per sample"
                )
    title, across = "made rewards, fixed transitions", "scale of the second reward"
    rate.set(xscale="log", xlabel=across, ylabel="conflict rate", title=title)
    cosine.set(
        xscale="log",
        xlabel=across,
        ylabel="cosine of the two gradients",
        ylim=(-1.05, 1.05),
        title=title,
    )
    for heads, style, words in (("shared", "-", "one critic"), ("per_stream", ":", "two heads")):
        ratio, per_update, per_sample, cos = pick(rows, measures, part="run", heads=heads)
        for values, mark, colour, name in (
            (per_update, "o", "C0", "conflict"),
            (per_sample, "^", "C2", "per sample"),
            (cos, "s", "C1", "cosine"),
        ):
            runs.plot(ratio, values, mark + style, color=colour, label=f"{name}, {words}")
    runs.axhline(0, color="k", lw=0.4)
    runs.set(
        xscale="log",
        xlabel="mean exploration reward / mean diversity reward",
        ylim=(-1.05, 1.05),
        title="AMPED on walker, α and β scaled",
    )
    mixing.plot([0, 1], [0, 1], "k-", lw=0.8, label="derived")
    for heads, style, words in (
        ("one number", "C0o", "one number"),
        ("shared", "C3^", "critic of DDPG"),
        ("per_stream, diversity", "C2s", "its diversity head"),
        ("per_stream, exploration", "C4s", "its exploration head"),
    ):
        mixing.plot(
            *pick(rows, ("p", "weight"), part="mixing", heads=heads, case="algorithm 1"),
            style,
            label=words,
        )
    (plain,) = pick(rows, ("weight",), part="mixing", heads="shared", case="sum")
    mixing.axhline(plain[0], color="C3", ls=":", lw=0.8, label="plain sum")
    mixing.set(
        xlabel="p, probability of projecting diversity",
        ylabel="weight of exploration in Q",
        title="where Q settles",
    )
    below(rate, ncols=3, fontsize=6.5)
    for axis in (cosine, runs, mixing):
        below(axis, ncols=3 if axis is not runs else 2)
    return figure


def summary(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        if row["part"] == "mixing":
            words = f"p = {row['p']}" if row["p"] is not None else "plain sum"
            lines.append(
                f"{words}, {row['heads']}: exploration has weight {row['weight']:.3f} in Q"
            )
        else:
            more = (
                f", means explain {row['offset_share']:.2f} of the gap"
                if "offset_share" in row
                else ""
            )
            lines.append(
                f"{row['part']}, {row['heads']}, {row['case']}, ratio {row['ratio']:.3g}: conflict "
                f"{row['conflict']:.2f} per update, {row['sample_conflict']:.2f} per sample, cosine "
                f"{row['cosine']:.2f}{more}"
            )
    return "\n".join(lines)


def main() -> None:
    run("structure", __doc__, study)

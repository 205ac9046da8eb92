"""The paper's toy of AnInfoNCE, two Gaussians drawn apart: python -m analysis.toy

As in the appendix "Analysis on AnInfoNCE": two means drawn from a standard normal in five
dimensions, 1000 samples with identity covariance around each; a Gaussian stands for a skill.
Encoder and metric are identities; Eq. 4 has no temperature, so it is 1. Beside the paper's random
means, means at a chosen distance along one axis.

- AnInfoNCE: the module of agent/parts/contrast.py itself. The *objective* is the mean of the
  bracket of Eq. 4, the loss is minus that. The appendix says that the loss increases with the
  distance; it decreases, the objective increases.
- AnInfoNCE, ratio: without the logarithm, as the public code rewards.
- InfoNCE: without the learned metric. With an identity metric it is the same function, so that the
  toy cannot tell the two apart. BeCL's InfoNCE (cosine) sees the angles between states alone.
- CeSD: 1 / (1 + strangers), a stranger being a sample that lies in the other Gaussian's cluster,
  nearer to its mean.

The paper contrasts CeSD, which cannot tell supports apart from supports far apart, with AnInfoNCE,
which can. It can, but not for long: 99% of its way is done at distance 9 (CeSD: 8), and at 14 the
objective is exactly 0 in float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor, nn

from agent.parts.contrast import AnInfoNCE, ContrastSettings, masked_mean
from agent.parts.draws import Draws
from analysis.theory.study import Row, panels, run
from utils import Streams

DIM, SAMPLES = 5, 1000  # of each Gaussian
PAIRS = 60  # of means drawn as in the paper
DISTANCES = tuple(0.5 * i for i in range(29))  # 0 to 14, along one axis
TERMS = {  # metric and field of agent/parts/contrast.py
    "AnInfoNCE": ("diag", "log_ratio"),
    "InfoNCE": ("none", "log_ratio"),
    "AnInfoNCE, ratio": ("diag", "ratio"),
    "InfoNCE, cosine": ("cosine", "log_ratio"),
}
NEAR = 0.99  # of the way from no distance to the largest: there a term counts as flat


def contrast(
    metric: str, *, temperature: float = 1.0, denominator: str = "negatives_only"
) -> AnInfoNCE:
    """The module that agents train, with identities in place of its networks. It is made for DIM
    skills, of which two are used."""
    settings = ContrastSettings(
        temperature=temperature,
        metric=metric,
        denominator=denominator,
        positive="random",
        numerics="logsumexp",
    )
    module = AnInfoNCE(DIM, DIM, hidden_dim=1, settings=settings)
    networks: Any = nn.Identity()
    module.embed = module.head = networks
    return module


@torch.no_grad()
def objective(
    module: AnInfoNCE,
    states: Tensor,
    skill: Tensor,
    generator: torch.Generator,
    field: str = "log_ratio",
) -> Tensor:
    """The mean of the bracket in Eq. 4 with one random positive per anchor, which is minus the
    loss; or the mean of another field, such as `ratio`."""
    result = module(states, skill, Draws(generator))
    return masked_mean(getattr(result, field), result.valid)


def strangers(states: Tensor, skill: Tensor, means: Tensor) -> Tensor:
    """How many samples of other skills lie in each skill's cluster: (n,)."""
    cluster = torch.cdist(states, means).argmin(1)
    return torch.bincount(cluster[cluster != skill], minlength=len(means))


def cesd_term(states: Tensor, skill: Tensor, means: Tensor) -> Tensor:
    """CeSD's constraint 1 / (1 + strangers) of a state's cluster (agent/cesd.py), its mean over the
    samples."""
    cluster = torch.cdist(states, means).argmin(1)
    return (1 / (1 + strangers(states, skill, means)))[cluster].mean()


def measure(means: Tensor, noise: Tensor, seed: int) -> Row:
    """Every term for Gaussians with these means (2, DIM). The noise (2, SAMPLES, DIM) and the
    positives are the same in all calls, so that differences come from the distance alone."""
    states = (means.unsqueeze(1) + noise).flatten(0, 1)
    skill = torch.arange(2).repeat_interleave(noise.shape[1])
    row = {"distance": float((means[0] - means[1]).norm())}
    for name, (metric, field) in TERMS.items():
        row[name] = float(
            objective(contrast(metric), states, skill, Streams(seed).torch("positives"), field)
        )
    return row | {"CeSD": float(cesd_term(states, skill, means))}


def apart(distance: float) -> Tensor:
    """Two means at a distance, around the origin."""
    return torch.tensor([[-0.5], [0.5]]) * distance * torch.eye(DIM)[0]


def flat_from(distance: np.ndarray, value: np.ndarray) -> float:
    """The first distance at which NEAR of the whole rise is reached."""
    share = (value - value[0]) / (value[-1] - value[0])
    return float(distance[(share >= NEAR).argmax()])


# -------------------------------------------------------------------------------------------- study


def study(
    seed: int, *, samples: int = SAMPLES, pairs: int = PAIRS
) -> tuple[list[Row], Figure, str]:
    generator = Streams(seed).torch("toy")
    noise = torch.randn(2, samples, DIM, generator=generator)
    wide = []  # one row per pair of means
    for means in torch.randn(pairs, 2, DIM, generator=generator):
        wide.append({"means": "random", **measure(means, noise, seed)})
    wide += [{"means": "axis", **measure(apart(distance), noise, seed)} for distance in DISTANCES]
    rows = [
        {
            "means": row["means"],
            "distance": row["distance"],
            "term": name,
            "objective": row[name],
            "loss": -row[name],
        }
        for row in wide
        for name in (*TERMS, "CeSD")
    ]
    return rows, picture(rows), summary(rows)


def pick(rows: list[Row], means: str, term: str) -> tuple[np.ndarray, np.ndarray]:
    """Distances and objectives, by distance."""
    found = sorted(
        (row["distance"], row["objective"])
        for row in rows
        if (row["means"], row["term"]) == (means, term)
    )
    return np.array(found).T


def picture(rows: list[Row]) -> Figure:
    figure, (paper, terms, slopes) = panels(1, 3)
    for name in ("AnInfoNCE", "InfoNCE, cosine"):
        paper.plot(*pick(rows, "random", name), "o" if name == "AnInfoNCE" else "x", label=name)
    paper.set(
        xlabel="distance of the means",
        ylabel="objective (minus the loss)",
        title="means drawn as in the paper",
    )
    for name, style in zip((*TERMS, "CeSD"), ("C0-", "k:", "C3-", "C1-", "C2--"), strict=True):
        distance, value = pick(rows, "axis", name)
        rise = (value - value[0]) / (value[-1] - value[0])
        terms.plot(distance, rise, style, label=name)
        slope = np.diff(rise) / np.diff(distance)
        slopes.plot(
            distance[:-1] + np.diff(distance) / 2,
            np.where(slope > 0, slope, np.nan),
            style,
            label=name,
        )
    terms.set(
        xlabel="distance of the means",
        ylabel="share of the whole rise",
        title="means along an axis",
    )
    slopes.set(
        xlabel="distance of the means",
        ylabel="slope of that share",
        yscale="log",
        ylim=(1e-6, 2),
        title="what is left to gain",
    )
    for axis in (paper, terms, slopes):
        axis.legend()
    return figure


def summary(rows: list[Row]) -> str:
    lines = []
    for name in (*TERMS, "CeSD"):
        far, value = pick(rows, "random", name)
        distance, along = pick(rows, "axis", name)
        lines.append(
            f"{name}: {along[0]:.3g} at distance 0, {along[-1]:.2g} at {distance[-1]:g}; {NEAR:.0%} of the "
            f"rise at {flat_from(distance, along):g}, after 8 {along[-1] - along[distance == 8][0]:.2g}; "
            f"rank correlation with the distance of random means {spearmanr(far, value).statistic:.3f}"
        )
    gap = np.abs(pick(rows, "axis", "AnInfoNCE")[1] - pick(rows, "axis", "InfoNCE")[1]).max()
    return "\n".join(
        [*lines, f"AnInfoNCE with an identity metric and InfoNCE differ by at most {gap:.1g}"]
    )


def main() -> None:
    run("toy", __doc__, study)

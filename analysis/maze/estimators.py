"""Estimates from samples: how much of a space is visited, how evenly, and what a state tells of
its skill.

States are (N, D), skills (N,) labels of n skills. Entropies and information are in nats.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln

from envs.maze.measures import as_labels, as_points
from utils import Streams

EMA = 0.99  # MINE: decay of the running mean that stands below its gradient
TAIL = 1000  # MINE: the result is the mean bound of so many last steps


def check_k(k: int, others: int) -> None:
    if not 1 <= k <= others:
        raise ValueError(
            f"k must be at least 1 and at most {others}, the number of other states; got {k}"
        )


# ----------------------------------------------------------------------------- coverage and entropy


def neighbour_distances(points: np.ndarray, k: int) -> np.ndarray:
    """Distances (N, k) of each point to its k nearest others, ascending. The nearest of all is the
    point itself or a duplicate of it, at 0: one of those is dropped."""
    check_k(k, len(points) - 1)
    return cKDTree(points).query(points, k + 1)[0][:, 1:]


def particle_entropy(states, k: int = 16) -> float:
    """APT's reward averaged over the sample: mean_i log(1 + mean distance to the k nearest), on raw
    states.

    It compares samples of one size in one space only: it falls as N grows, and units change it in
    no simple way.
    """
    return float(np.log1p(neighbour_distances(as_points(states), k).mean(1)).mean())


def kl_entropy(states, k: int = 16, *, floor: float = 2.0**-20) -> float:
    """Differential entropy by Kozachenko and Leonenko: psi(N) - psi(k) + log V_D + D mean_i log
    r_k(i).

    V_D is the volume of the unit ball, r_k the distance to the k-th nearest other state. More than
    k equal states have r_k = 0 and would make the estimate -inf (the truth, where a point has
    mass): radii below `floor`, by default about float32's resolution in a maze, count as `floor`.
    Uniform states give log(area) and a little more, because balls reach past the walls: about 0.33
    sqrt(k area / N) in corridors of width 1, which is 0.04 in the tree at N = 30,000 and k = 16.
    """
    points = as_points(states)
    n, dim = points.shape
    radius = np.maximum(neighbour_distances(points, k)[:, -1], floor)
    log_ball = dim / 2 * math.log(math.pi) - gammaln(dim / 2 + 1)
    return float(digamma(n) - digamma(k) + log_ball + dim * np.log(radius).mean())


# ------------------------------------------------------------------------------- mutual information


def statistics_network(sizes: tuple[int, ...], generator: torch.Generator) -> list[torch.Tensor]:
    """Weights and biases with torch's default initialisation, from the given generator."""
    shapes = [shape for a, b in pairwise(sizes) for shape in ((a, a, b), (a, b))]
    return [
        ((torch.rand(shape, generator=generator) * 2 - 1) / math.sqrt(fan_in)).requires_grad_()
        for fan_in, *shape in shapes
    ]


def dv_step(joint: torch.Tensor, marginal: torch.Tensor, log_mean: torch.Tensor | None):
    """Outputs (B,) on both samples -> the Donsker-Varadhan bound, a loss, and the new log of the
    running mean.

    The loss has the gradient of minus the bound, but with the running mean of exp in place of the
    batch's, which would bias it. All in logarithms, so that no exponential overflows.
    """
    joint, marginal = joint.mean(), torch.logsumexp(marginal, 0) - math.log(len(marginal))
    now = marginal.detach()
    log_mean = (
        now
        if log_mean is None
        else torch.logaddexp(log_mean + math.log(EMA), now + math.log(1 - EMA))
    )
    return (joint - marginal).detach(), torch.exp(marginal - log_mean) - joint, log_mean


def mi_mine(
    states,
    skills,
    *,
    seed: int,
    steps: int = 20_000,
    lr: float = 1e-3,
    batch: int = 512,
    hidden: int = 128,
) -> float:
    """I(S; Z) by MINE (Belghazi et al. 2018): mean Donsker-Varadhan bound of the last 1000 steps.

    A network sees [s, onehot z]; shuffling z in the batch gives the product of the marginals.
    Measured on 30,000 (log 10: 50,000) independent states, one seed, lr 1e-3:

        truth         0      0.736  1.671  2.303 = log 10  0.977
        20,000 steps  0.005  0.734  1.662  2.275           0.846
        4000 steps    0.002  0.736  1.654  2.233           0.768
        2000 steps    0.001  0.731  1.640  2.167           0.705

    for independent skills, 6 Gaussians on a ring of radius 1.5 and 4, one cell of square_a each,
    and 10 cells of the tree each at random. Sharp borders are learned slowly, so the bound stays
    low, more so with lr 1e-4 (0.777 in the last case). The log of a batch's mean adds up to (n - 1)
    / 2B; dependent states add more (random actions in the tree, truth 0: 0.019 after 20,000 steps,
    0.014 after 4000), as the network sees no held-out states.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    points = as_points(states)
    labels, n = as_labels(skills, len(points))
    generator = Streams(seed).torch("mine")
    spread = points.std(0)
    points = (points - points.mean(0)) / np.where(spread > 0, spread, 1)
    states = torch.from_numpy(points).float()  # (N, D)
    skills = torch.eye(n)[torch.from_numpy(labels)]  # (N, n)
    params = statistics_network((points.shape[1] + n, hidden, hidden, 1), generator)
    w1, b1, w2, b2, w3, b3 = params
    optimizer = torch.optim.Adam(params, lr=lr, fused=True)
    log_mean, bounds = None, []
    for _ in range(steps):
        rows = torch.randint(len(points), (batch,), generator=generator)
        s, z = states[rows], skills[rows]
        shuffled = z[torch.randperm(batch, generator=generator)]
        x = torch.cat([torch.cat([s, s]), torch.cat([z, shuffled])], 1)  # joint, then marginal
        x = torch.relu(torch.addmm(b1, x, w1))
        x = torch.relu(torch.addmm(b2, x, w2))
        t = torch.addmm(b3, x, w3).squeeze(1)  # (2 batch,)
        bound, loss, log_mean = dv_step(t[:batch], t[batch:], log_mean)
        # As a number: 20,000 tiny tensors would scatter over the heap and hold gigabytes.
        bounds.append(bound.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return float(np.mean(bounds[-TAIL:]))


# ------------------------------------------------------------------------------------- separability


def halves(
    labels: np.ndarray, episode: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two random halves. Episodes stay whole, and each skill has as many of them in one
    half as in the other; the skill of an episode is the one that it begins with."""
    _, first, which = np.unique(episode, return_index=True, return_inverse=True)
    label = labels[first]  # (episodes,)
    if np.bincount(label, minlength=labels.max() + 1).min() < 2:
        raise ValueError("each skill needs two episodes, one to learn from and one to test on")
    order = np.lexsort((rng.random(len(label)), label))
    second = np.zeros(len(label), bool)
    second[order[::2]] = True
    return np.flatnonzero(~second[which]), np.flatnonzero(second[which])


def separability(states, skills, *, seed: int, k: int = 16, episode=None) -> float:
    """Accuracy of k nearest neighbours (state -> skill) on held-out states; chance is 1/n.

    `episode` (N,) numbers the episodes. Without it the halves share episodes, and a state is known
    by its neighbours in time, whatever the skills do.
    """
    points = as_points(states)
    labels, n = as_labels(skills, len(points))
    episode = np.arange(len(points)) if episode is None else as_labels(episode, len(points))[0]
    known, asked = halves(labels, episode, Streams(seed).numpy("separability"))
    check_k(k, len(known))
    found = cKDTree(points[known]).query(points[asked], k)[1]
    nearest = found.reshape(-1, k)  # (M, k); for k = 1 scipy leaves the axis out
    votes = (labels[known][nearest][..., None] == np.arange(n)).sum(1)  # (M, n)
    # argmax gives a tie to the lower label
    return float((votes.argmax(1) == labels[asked]).mean())

"""Rewards and losses written out literally, for the tests of the methods that share them."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.spatial.distance import cdist

from agent.base import Objective
from agent.parts.curiosity import ICM
from replay_buffer import Batch
from tests.kit.objectives import array

# ---- running statistics and the entropy of particles


def running_variance(history: list[np.ndarray]) -> float:
    """Variance of groups around their common mean, each with its unbiased variance; 1e-4 prior
    values of N(0, 1)."""
    n = np.array([1e-4, *(h.size for h in history)])
    mean = np.array([0, *(h.mean() for h in history)])
    var = np.array([1, *(h.var(ddof=1) for h in history)])
    return np.average(var + (mean - np.average(mean, weights=n)) ** 2, weights=n)


def release_entropy(
    x: np.ndarray, history: list[np.ndarray], k: int = 16, clip: float = 5e-4
) -> np.ndarray:
    """The public code's particle entropy: the k smallest distances, with the zero to itself, over
    their running variance. `history` holds the distances of earlier batches and gets these."""
    nearest = np.sort(cdist(x, x), axis=1)[:, :k]
    history.append(nearest)
    return np.log(
        1 + np.maximum(nearest / running_variance(history) - clip, 0).mean(1, keepdims=True)
    )


# ---- curiosity


def rnd_error(objective: Objective, x: torch.Tensor) -> np.ndarray:
    """Mean squared error over the outputs, on the batch-normalised and clamped input: (B, 1)."""
    x = (x - x.mean(0)) / torch.sqrt(x.var(0, unbiased=False) + 1e-5)
    error = objective.rnd.predictor(x.clamp(-5, 5)) - objective.rnd.target(x.clamp(-5, 5))
    return array(error.square().mean(1, keepdim=True))


def two_layers(net: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    """Linear, ReLU, linear, in numpy."""
    (w1, b1), (w2, b2) = ((array(net[i].weight), array(net[i].bias)) for i in (0, 2))
    return np.maximum(x @ w1.T + b1, 0) @ w2.T + b2


def icm_representation(icm: ICM, x: np.ndarray) -> np.ndarray:
    """The observation itself, or tanh of the layer-normalised linear map of it."""
    if isinstance(icm.trunk, torch.nn.Identity):
        return x
    linear, norm, _ = icm.trunk
    h = x @ array(linear.weight).T + array(linear.bias)
    h = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    return np.tanh(h * array(norm.weight) + array(norm.bias))


def icm_errors(icm: ICM, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Norms of the forward and the inverse error, row by row: (B,) each."""
    forward, inverse = [], []
    for obs, action, next_obs in zip(array(batch.obs), array(batch.action), array(batch.next_obs)):
        s = icm_representation(icm, obs[None])[0]
        following = icm_representation(icm, next_obs[None])[0]
        predicted = two_layers(icm.forward_model, np.concatenate([s, action]))
        guessed = np.tanh(two_layers(icm.inverse_model, np.concatenate([s, following])))
        forward.append(math.sqrt(sum((following - predicted) ** 2)))
        inverse.append(math.sqrt(sum((action - guessed) ** 2)))
    return np.array(forward), np.array(inverse)


# ---- contrasts


def exp_cosines(objective: Objective, batch: Batch, temperature: float = 0.5) -> np.ndarray:
    """exp(cos / T) of every skill (rows) with every transition (columns)."""
    query = array(objective.encoder.skill(batch.skill))
    key = array(objective.encoder.pair(batch.obs, batch.next_obs))
    return np.exp((1 - cdist(query, key, "cosine")) / temperature)


def drawn_partners(objective: Objective, index: np.ndarray) -> list[int]:
    """The positives that the objective is about to draw: the u-th of the other rows of the skill,
    in turn."""
    generator = torch.Generator()
    generator.set_state(objective.generator.get_state())
    partners = []
    for i, u in enumerate(torch.rand(len(index), generator=generator).tolist()):
        mates = np.flatnonzero(index == index[i])
        at = mates.tolist().index(i)
        others = np.roll(mates, -at)[1:]  # those after row i come first
        partners.append(others[int(u * len(others))] if len(others) else i)
    return partners

"""Markov chains that stand for policies: exact occupancies, simulated counts, Theorem 1's cases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STATES, SKILLS, HORIZON = 6, 3, 10  # of the family with a known separation
LEAN = 0.1  # its target is the first skill, mixed with so much of the second: epsilon = LEAN delta


class Chain(NamedTuple):
    """What a policy makes of an environment: where it starts (S,), and where it goes from each
    state (S, S)."""

    start: np.ndarray
    move: np.ndarray


class Instance(NamedTuple):
    target: Chain
    skills: list[Chain]
    horizon: int


def step_weights(horizon: int, discount: float) -> np.ndarray:
    """Of the H time steps, summing to 1; discount 1 is the plain mean."""
    weights = discount ** np.arange(horizon)
    return weights / weights.sum()


def occupancy(chain: Chain, horizon: int, discount: float = 1.0) -> np.ndarray:
    """sum_t w_t P(S_t = s), exactly: (S,)."""
    here, total = chain.start, np.zeros(len(chain.start))
    for weight in step_weights(horizon, discount):
        total += weight * here
        here = here @ chain.move
    return total


def draw(cumulated: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One index per row of cumulated probabilities (N, S)."""
    return (cumulated[:, :-1] <= rng.random((len(cumulated), 1))).sum(1)


def count(
    chain: Chain,
    horizon: int,
    n: int,
    repeats: int,
    rng: np.random.Generator,
    discount: float = 1.0,
) -> np.ndarray:
    """rho_hat of n simulated trajectories, `repeats` times: (R, S)."""
    states, row = len(chain.start), np.repeat(np.arange(repeats), n)
    moves, total = chain.move.cumsum(1), np.zeros(repeats * states)
    here = draw(np.broadcast_to(chain.start.cumsum(), (repeats * n, states)), rng)
    for t, weight in enumerate(step_weights(horizon, discount)):
        here = draw(moves[here], rng) if t else here
        total += weight / n * np.bincount(row * states + here, minlength=repeats * states)
    return total.reshape(repeats, states)


def sticky(rho: np.ndarray, stay: float) -> Chain:
    """A chain whose state has distribution rho at every step. With stay=1 it never leaves its
    first state, so that a trajectory is one sample of rho; with stay=0 it is H independent ones."""
    return Chain(rho, stay * np.eye(len(rho)) + (1 - stay) * rho)


def separated(delta: float, stay: float) -> Instance:
    """Each skill prefers its own block of states; the total variation of any two is delta."""
    blocks = np.kron(np.eye(SKILLS), np.full(STATES // SKILLS, SKILLS / STATES))
    rho = (1 - delta) / STATES + delta * blocks
    target = (1 - LEAN) * rho[0] + LEAN * rho[1]
    return Instance(sticky(target, stay), [sticky(each, stay) for each in rho], HORIZON)


def random_chains(rng: np.random.Generator) -> Instance:
    """Random chains that mix fast or slowly, and a target near one of them. All start alike: where
    an episode begins is not for a skill to choose."""
    states, skills, horizon = rng.integers(2, 7), rng.integers(2, 5), int(rng.integers(1, 13))
    stay, lean, near = rng.random(), 0.3 * rng.random(), rng.integers(skills)
    start = rng.dirichlet(np.ones(states))
    moves = stay * np.eye(states) + (1 - stay) * rng.dirichlet(
        np.full(states, 0.2), (skills + 1, states)
    )
    target = Chain(start, (1 - lean) * moves[near] + lean * moves[-1])
    return Instance(target, [Chain(start, move) for move in moves[:-1]], horizon)


def counter_example(leave: float = 1 / 70, horizon: int = 1000) -> Instance:
    """Against the discounted reading, at gamma = 0.99 and the 1000 steps of an episode of walker.

    Two states. The first skill, which is the target itself, leaves the state it starts in after 70
    steps on average and never returns; the second leaves it at once. Discounted, the first skill is
    there 0.41 of the time; of the plain count that state has 0.07. So the count looks like the
    second skill, the more trajectories the surer.
    """

    def leaving(probability: float) -> Chain:
        return Chain(np.array([1.0, 0.0]), np.array([[1 - probability, probability], [0.0, 1.0]]))

    return Instance(leaving(leave), [leaving(leave), leaving(1.0)], horizon)

"""Theorem 1 by simulation: how many trajectories name the right skill? python -m analysis.theorem

The theorem ("Theoretical Analysis of Skill Diversity", proof in the first appendix), in other
words. S states, horizon H, skills z with known state occupancies rho_z, a target policy with
occupancy rho; d is total variation.

    z* = argmin_z d(rho, rho_z)     delta = min over pairs of skills d(rho_i, rho_j)
    epsilon = d(rho, rho_z*)        Delta = delta - 2 epsilon, assumed positive

From n independent trajectories of the *target* the share of visits rho_hat(s) = visits of s / (nH)
is counted, and the skill argmin_z d(rho_hat, rho_z) is taken. It is wrong with probability at most
2^S H exp(-n Delta^2 / 2); so n >= 2 / Delta^2 (S log 2 + log H - log eta) trajectories are enough
for confidence 1 - eta.

Two readings. The proof takes rho = 1/H sum_t P(S_t), to which the plain count converges; that is
`discount=1` here. The statement says "discounted state occupancy": then the plain count converges
to something else, and the bound fails. In `counter_example` the selector's error rises to 1 with n.
Counting with the same weights gamma^t repairs it.

The factor H is not needed. For each set A of states the share of time in A is one number in [0, 1]
per trajectory, and d(rho_hat, rho) is the largest excess of such a share; Hoeffding for each of the
2^S - 2 sets that matter gives (2^S - 2) exp(-n Delta^2 / 2), for any weights of the time steps. The
exponent cannot be improved: where a trajectory stays in one of two states, it is exact
(tests/analysis/test_theorem.py).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from analysis.theory.chains import (
    HORIZON,
    LEAN,
    STATES,
    Instance,
    count,
    counter_example,
    occupancy,
    random_chains,
    separated,
)
from analysis.theory.study import Row, panels, run
from utils import Streams

ETA = 0.05  # 1 - confidence
REPEATS = 1000  # selections per point
TIE = 1e-12
MOVES = {"a new state at every step": 0.0, "one state per trajectory": 1.0}  # probability to stay
DELTAS = (0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
COUNTS = (1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 125, 200)
# 1 / (1 - gamma) as a share of H; the paper's gamma of 0.99 and 1000 steps make 0.1.
SHARES = (0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
INSTANCES = 200


class Margin(NamedTuple):
    best: int
    delta: float
    epsilon: float

    @property
    def value(self) -> float:
        return self.delta - 2 * self.epsilon


# -------------------------------------------------------------------------------------- mathematics


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Total variation along the last axis."""
    return np.abs(a - b).sum(-1) / 2


def margin(target: np.ndarray, skills: np.ndarray) -> Margin:
    """The best skill, delta and epsilon of the theorem, from the occupancies of the target (S,) and
    of the skills (K, S)."""
    to_target = distance(target, skills)
    pairs = distance(skills[:, None], skills)[np.triu_indices(len(skills), 1)]
    return Margin(int(to_target.argmin()), float(pairs.min()), float(to_target.min()))


def bound(n: int, states: int, horizon: int, gap: float) -> float:
    """The error that Theorem 1 allows; a bound above 1 says nothing."""
    return 2**states * horizon * math.exp(-n * gap**2 / 2)


def sharper_bound(n: int, states: int, gap: float) -> float:
    """The same without the factor H, which is not needed (see the module's docstring)."""
    return (2**states - 2) * math.exp(-n * gap**2 / 2)


def required(states: int, horizon: int, gap: float, eta: float) -> int:
    """The number of trajectories that Theorem 1 asks for."""
    return math.ceil(2 / gap**2 * (states * math.log(2) + math.log(horizon) - math.log(eta)))


def selected_wrong(counted: np.ndarray, skills: np.ndarray, best: int) -> np.ndarray:
    """Whether each of the counted occupancies (R, S) leads to a wrong skill: (R,). A tie counts as
    a mistake, because the theorem holds however ties are broken."""
    far = distance(counted[:, None], skills)  # (R, K)
    return (np.delete(far, best, 1) <= far[:, best, None] + TIE).any(1)


# --------------------------------------------------------------------------------------- simulation


def occupancies(instance: Instance, discount: float = 1.0) -> np.ndarray:
    """The occupancies of the skills: (K, S)."""
    return np.stack([occupancy(chain, instance.horizon, discount) for chain in instance.skills])


def known_margin(instance: Instance, discount: float = 1.0) -> Margin:
    return margin(
        occupancy(instance.target, instance.horizon, discount), occupancies(instance, discount)
    )


def trial(
    instance: Instance,
    n: int,
    repeats: int,
    rng: np.random.Generator,
    *,
    discount: float = 1.0,
    weighted: bool = True,
) -> Row:
    """How often the selector is wrong, beside the bounds. `discount` is that of the occupancies in
    the statement; weighted=False counts plainly all the same, as the proof does."""
    skills, known = occupancies(instance, discount), known_margin(instance, discount)
    counted = count(
        instance.target, instance.horizon, n, repeats, rng, discount if weighted else 1.0
    )
    error, states = float(selected_wrong(counted, skills, known.best).mean()), skills.shape[1]
    limit = bound(n, states, instance.horizon, known.value)
    return {
        "states": states,
        "horizon": instance.horizon,
        "delta": known.delta,
        "epsilon": known.epsilon,
        "margin": known.value,
        "n": n,
        "error": error,
        "bound": limit,
        "sharper": sharper_bound(n, states, known.value),
        "holds": error <= limit,
    }


# -------------------------------------------------------------------------------------------- study


def needed(delta: float, stay: float, rng: np.random.Generator, repeats: int) -> int:
    """The smallest n whose simulated error is at most ETA, by doubling and then bisection."""
    instance, high = separated(delta, stay), 1

    def enough(n: int) -> bool:
        return trial(instance, n, repeats, rng)["error"] <= ETA

    while not enough(high):
        high *= 2
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def as_discount(share: float, horizon: int) -> float:
    """The discount whose effective horizon is this share of H; an infinite share is no discount."""
    return math.exp(-1 / (share * horizon))


def random_instance(rng: np.random.Generator, share: float = math.inf) -> Instance:
    """A random instance whose Delta, of occupancies discounted to this share of the horizon, is
    positive and not tiny."""
    while True:
        instance = random_chains(rng)
        if known_margin(instance, as_discount(share, instance.horizon)).value > 0.1:
            return instance


def wrong_for_ever(share: float, rng: np.random.Generator, instances: int) -> float:
    """The share of random instances with Delta > 0, all discounted, in which the plain count tends
    to another skill than z*, however many trajectories there are."""
    wrong = 0
    for _ in range(instances):
        instance = random_instance(rng, share)
        discount = as_discount(share, instance.horizon)
        limit = occupancy(instance.target, instance.horizon)[None]
        wrong += selected_wrong(
            limit, occupancies(instance, discount), known_margin(instance, discount).best
        )[0]
    return float(wrong / instances)


def study(
    seed: int, *, repeats: int = REPEATS, instances: int = INSTANCES
) -> tuple[list[Row], Figure, str]:
    rng, rows = Streams(seed).numpy("theorem"), []
    for name, stay in MOVES.items():
        rows += [
            {"part": "error", "case": name, **trial(separated(0.4, stay), n, repeats, rng)}
            for n in COUNTS
        ]
    for name, stay in MOVES.items():
        for delta in DELTAS:
            gap = delta * (1 - 2 * LEAN)
            rows.append(
                {
                    "part": "required",
                    "case": name,
                    "states": STATES,
                    "horizon": HORIZON,
                    "delta": delta,
                    "epsilon": LEAN * delta,
                    "margin": gap,
                    "n": needed(delta, stay, rng, repeats),
                    "n_bound": required(STATES, HORIZON, gap, ETA),
                }
            )
    for _ in range(instances):  # n where the bound says something
        instance = random_instance(rng)
        n = required(
            len(instance.target.start),
            instance.horizon,
            known_margin(instance).value,
            rng.uniform(0.01, 0.9),
        )
        rows.append(
            {"part": "random", "case": "plain", **trial(instance, n, max(repeats // 10, 10), rng)}
        )
    for case, weighted in (("plain count", False), ("discounted count", True)):
        rows += [
            {
                "part": "discounted",
                "case": case,
                **trial(
                    counter_example(),
                    n,
                    max(repeats // 5, 10),
                    rng,
                    discount=0.99,
                    weighted=weighted,
                ),
            }
            for n in (1, 2, 4, 8, 16, 32, 64, 96, 128, 160)
        ]
    rows += [
        {
            "part": "limit",
            "case": "plain count",
            "share": share,
            "error": wrong_for_ever(share, rng, instances),
        }
        for share in SHARES
    ]
    return rows, picture(rows), summary(rows)


def pick(rows: list[Row], part: str, case: str, *columns: str) -> list[np.ndarray]:
    chosen = [row for row in rows if row["part"] == part and row["case"].startswith(case)]
    return [np.array([row[column] for row in chosen]) for column in columns]


def picture(rows: list[Row]) -> Figure:
    figure, (error, needs, fails, limit) = panels(2, 2)
    for name, colour in zip(MOVES, ("C0", "C1"), strict=True):
        n, wrong, top, sharp = pick(rows, "error", name, "n", "error", "bound", "sharper")
        error.plot(
            n, np.where(wrong > 0, wrong, np.nan), "o-", color=colour, label=f"simulated, {name}"
        )
        delta, found, asked = pick(rows, "required", name, "delta", "n", "n_bound")
        needs.plot(delta, found, "o-", color=colour, label=f"simulated, {name}")
    error.plot(n, top, "k-", label="Theorem 1")
    error.plot(n, sharp, "k:", label="without the factor H")
    error.set(
        xlabel="trajectories n",
        ylabel="probability of a wrong skill",
        xscale="log",
        yscale="log",
        ylim=(5e-4, 1e6),
        title="S = 6, H = 10, three skills, δ = 0.4, ε = 0.04",
    )
    needs.plot(delta, asked, "k-", label="Theorem 1")
    needs.set(
        xlabel="separation δ of the skills (ε = δ / 10)",
        ylabel="trajectories n",
        xscale="log",
        yscale="log",
        title=f"needed for an error of {ETA}",
    )
    needs.set_xticks([0.2, 0.4, 0.6, 1.0], ["0.2", "0.4", "0.6", "1"])
    needs.minorticks_off()
    for case, style in (("plain count", "o-"), ("discounted count", "s--")):
        n, wrong, top = pick(rows, "discounted", case, "n", "error", "bound")
        fails.plot(n, np.where(wrong > 0, wrong, np.nan), style, label=f"simulated, {case}")
    fails.plot(n, top, "k-", label="Theorem 1")
    fails.set(
        xlabel="trajectories n",
        ylabel="probability of a wrong skill",
        xscale="log",
        yscale="log",
        ylim=(1e-3, 1e6),
        title="discounted: γ = 0.99, H = 1000, δ = 0.4, ε = 0",
    )
    share, wrong = pick(rows, "limit", "", "share", "error")
    limit.plot(share, wrong, "o-")
    limit.set(
        xlabel="effective horizon 1 / (1 - γ) as a share of H",
        ylabel="share of random instances",
        xscale="log",
        ylim=(0, None),
        title="plain count, n → ∞: a wrong skill is chosen",
    )
    limit.set_xticks(SHARES, [f"{s:g}" for s in SHARES])
    limit.minorticks_off()
    for axis in (error, needs, fails):
        axis.legend(loc="upper right")
    return figure


def summary(rows: list[Row]) -> str:
    plain = [row for row in rows if row["part"] in ("error", "random")]
    lines = [
        f"Theorem 1 holds in {sum(row['holds'] for row in plain)} of {len(plain)} simulated cases "
        f"({sum(row['bound'] < 1 for row in plain)} with a bound below 1)"
    ]
    for name in MOVES:
        delta, found, asked = pick(rows, "required", name, "delta", "n", "n_bound")
        lines.append(
            f"needed for an error of {ETA}, {name}: n = {', '.join(map(str, found))} at delta = "
            f"{', '.join(f'{d:g}' for d in delta)}; Theorem 1 asks for {', '.join(map(str, asked))}"
        )
    for case in ("plain count", "discounted count"):
        n, wrong, top = pick(rows, "discounted", case, "n", "error", "bound")
        lines.append(
            f"discounted reading, {case}: error {wrong[-1]:g} at n = {n[-1]}, bound {top[-1]:.2g}"
        )
    share, wrong = pick(rows, "limit", "", "share", "error")
    lines.append(
        "random instances, occupancies discounted to a share of H, whose plain count is wrong for ever: "
        + ", ".join(f"{w:.1%} at {s:g}" for s, w in zip(share, wrong, strict=True))
    )
    return "\n".join(lines)


def main() -> None:
    run("theorem", __doc__, study)

"""The authors' public code and ours, on the same weights, batch and random numbers.

    python -m analysis.parity PATH_TO_A_CHECKOUT

For owners of a checkout of the public AMPED code, which is executed; nothing of it is in this
repository. Both sides run in double precision on a CPU, at small sizes. A line per quantity: how many
numbers, and the largest difference between ours (agent=amped_release) and theirs, relative to the
largest of theirs. What the checkout lacks is named. Exit code 1 if something differs or is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from analysis.parity.comparisons import (
    UPDATES,
    Pairs,
    actor_step,
    aninfonce,
    cpc,
    critic_step,
    entropy,
    novelty,
    selector,
    targets,
    whole_updates,
)
from analysis.parity.foreign import load
from analysis.parity.sides import Both
from analysis.text import markdown_records
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import UserError

TOLERANCE = 1e-10  # relative; double precision leaves about 1e-15 in one step
MODULES = ("utils", "agent.ddpg", "agent.amped", "skill_selector.sac")


class Line(NamedTuple):
    what: str
    numbers: int = 0
    difference: float = float("nan")
    problem: str = ""


def flat(values: Sequence[Any]) -> np.ndarray:
    return np.concatenate(
        [torch.as_tensor(each, dtype=torch.float64).detach().flatten().numpy() for each in values]
    )


def compare(what: str, both: Both, comparison: Callable[[Both], Pairs]) -> Line:
    """One line. What the checkout does not have, or does in another way, is told, not raised."""
    try:
        ours, theirs = map(flat, comparison(both.fork()))
    except (AttributeError, TypeError, KeyError, ValueError, RuntimeError, UserError) as error:
        return Line(what, problem=f"{type(error).__name__}: {' '.join(str(error).split())}")
    if ours.shape != theirs.shape:
        return Line(what, problem=f"{ours.size} numbers here, {theirs.size} there")
    difference = np.abs(ours - theirs).max() / max(np.abs(theirs).max(), 1e-300)
    return Line(what, ours.size, float(difference))


def lines(root: Path) -> tuple[list[Line], list[str]]:
    """All comparisons, and the modules that were made up for the checkout."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        modules, made_up = load(root, *MODULES)
        try:
            both = Both(modules)
        except (AttributeError, TypeError) as error:
            raise UserError(
                f"AmpedAgent of {root} cannot be made: {' '.join(str(error).split())}"
            ) from error
        found = [
            compare("AnInfoNCE: loss and reward of each row", both, aninfonce),
            compare("CPC loss", both, cpc),
            compare("kNN reward, twice, and its running mean and variance", both, entropy),
            compare("RND reward, twice, and its running mean and variance", both, novelty),
            compare("targets of both streams", both, targets),
            compare("critic: gradient that projects diversity, and its step", both, critic_step(1)),
            compare(
                "critic: gradient that projects exploration, and its step", both, critic_step(0)
            ),
            compare("actor: gradient and step", both, actor_step),
            compare(f"all weights after {UPDATES} updates", both, whole_updates),
            compare(f"selector: losses and weights of {UPDATES} updates", both, selector(modules)),
        ]
    finally:
        torch.set_default_dtype(before)
    return found, made_up


def show(root: Path) -> bool:
    """Prints the table; whether everything was found and is equal."""
    found, made_up = lines(root)
    for name in made_up:
        print(f"not installed here, made up in memory: {name}")
    print(
        markdown_records(
            [
                {
                    "quantity": line.what,
                    "numbers": str(line.numbers) if line.numbers else "-",
                    "largest relative difference": (
                        line.problem and f"not compared: {line.problem}"
                    )
                    or f"{line.difference:.1e}",
                    "": ""
                    if line.problem
                    else "equal"
                    if line.difference <= TOLERANCE
                    else "DIFFERS",
                }
                for line in found
            ]
        )
    )
    return all(not line.problem and line.difference <= TOLERANCE for line in found)


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a directory with agent/amped.py and utils.py")
    args = parser.parse_args()
    equal = False

    def task() -> None:
        nonlocal equal
        equal = show(args.checkout.resolve())

    run_command(task)
    if not equal:
        sys.exit(1)


if __name__ == "__main__":
    main()

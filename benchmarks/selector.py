"""An update of a skill selector and one of the learner below it, plain and compiled, by turns.

python -m benchmarks.selector [preset=cpu] [repeats]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch

from agent.learners.compiled import Capture, Compiled
from agent.skills.selector import Selector, make_selector
from agent.skills.sources import SkillSpace
from benchmarks import make_parser
from benchmarks.cost import DEVICE, Walker, interleaved, ratio
from experiment.runs import compose
from run.build import make_learner, make_objective
from run.cli.schema import resolve
from run.cli.words import options
from run.memory import make_memory
from utils import Streams

WORDS = ("agent=amped", "task=walker_run", "skills=selector")
ROWS, CALLS = 5000, 8


def updates(preset: str, capture: Capture | None) -> dict[str, Callable[[], object]]:
    """An update of each on random data of walker's shape."""
    config = resolve(compose([*WORDS, f"preset={preset}"], "finetune"))
    rng = Streams(0, DEVICE)
    torch.manual_seed(0)
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    objective = make_objective(config, Walker, space.dim, rng).to(DEVICE)
    learner = make_learner(config, Walker, space.dim, objective.streams, rng)
    selector: Selector = make_selector(config, space, Walker.obs_dim, rng)
    learner.capture = selector.capture = None
    if capture is not None:
        learner.capture, selector.capture = capture, type(capture)()
    replay = {**config["replay"], "capacity": 2 * ROWS}
    memory = make_memory({**config, "replay": replay}, Walker, space, rng)
    draw = np.random.default_rng(0)
    memory.begin(draw.normal(size=Walker.obs_dim))
    for _ in range(ROWS):
        action, obs = draw.uniform(-1, 1, Walker.action_dim), draw.normal(size=Walker.obs_dim)
        memory.add(action, space.sample(draw), draw.uniform(), 1.0, obs)
    return {
        "learner": lambda: learner.learn(memory, objective, 1),
        "selector": lambda: selector.improve(memory, 1),
    }


def measure(
    repeats: int, preset: str = "cpu", *, compiled: bool = True
) -> dict[str, dict[str, float]]:
    """{whose: ms, and compiled_ms and how many times faster that is}."""
    made = {"plain": updates(preset, None)}
    if compiled:
        made["compiled"] = updates(preset, Compiled())
    actions = {f"{whose} {way}": f for way, two in made.items() for whose, f in two.items()}
    times = interleaved(actions, repeats, CALLS)
    found = {}
    for whose in made["plain"]:
        row = {"ms": 1e3 * statistics.median(times[f"{whose} plain"])}
        if compiled:
            row["compiled_ms"] = 1e3 * statistics.median(times[f"{whose} compiled"])
            row["ratio"] = ratio(times, f"{whose} plain", f"{whose} compiled")
        found[whose] = row
    return found


def table(results: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"{whose:9} {row['ms']:8.2f} ms"
        + (f", compiled {row['compiled_ms']:.2f} ms, {row['ratio']:.2f}x" if "ratio" in row else "")
        for whose, row in results.items()
    )


def main() -> None:
    args = make_parser(__doc__, 9, preset=options("preset")).parse_args()
    torch.set_num_threads(1)
    print(table(measure(args.repeats, args.preset)))


if __name__ == "__main__":
    main()

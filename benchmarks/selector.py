"""An update of a skill selector and one of DDPG on a task, plain and compiled, by turns.

python -m benchmarks.selector [preset=cpu] [repeats]
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from agent.base import Metrics
from agent.learners.compiled import Compiled
from agent.skills.selector import make_selector
from agent.skills.sources import SkillSpace
from benchmarks import make_parser
from benchmarks.cost import DEVICE, Walker, interleaved, ratio, updater
from experiment.runs import compose
from run.cli.schema import resolve
from run.cli.words import options
from utils import Streams

CALLS = 8  # updates in a turn


def updates(preset: str, *, compiled: bool) -> dict[str, Callable[[], Metrics]]:
    """An update of each on random data of walker's shape."""
    words = ["agent=amped", "task=walker_run", "skills=selector", f"preset={preset}"]
    config = resolve(compose(words, "finetune"))
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    learner, memory = updater("ddpg", words[-1]), updater("amped", words[-1]).memory
    selector = make_selector(config, space, Walker.obs_dim, Streams(0, DEVICE))
    if compiled:
        learner.learner.capture, selector.capture = Compiled(), Compiled()
    return {"ddpg": lambda: learner(), "selector": lambda: selector.improve(memory, 1)}


def measure(
    repeats: int, preset: str = "cpu", *, compiled: bool = True
) -> dict[str, dict[str, float]]:
    """{whose: ms; and compiled_ms, and how many times faster that is}."""
    actions = {f"{name} plain": f for name, f in updates(preset, compiled=False).items()}
    if compiled:
        actions |= {f"{name} compiled": f for name, f in updates(preset, compiled=True).items()}
    times = interleaved(actions, repeats, CALLS)
    found = {}
    for name in ("ddpg", "selector"):
        found[name] = {"ms": 1e3 * statistics.median(times[f"{name} plain"])}
        if compiled:
            found[name] |= {
                "compiled_ms": 1e3 * statistics.median(times[f"{name} compiled"]),
                "ratio": ratio(times, f"{name} plain", f"{name} compiled"),
            }
    return found


def table(results: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"{name:9} {row['ms']:8.2f} ms"
        + (f", compiled {row['compiled_ms']:.2f} ms, {row['ratio']:.2f}x" if "ratio" in row else "")
        for name, row in results.items()
    )


def main() -> None:
    args = make_parser(__doc__, 9, preset=options("preset")).parse_args()
    torch.set_num_threads(1)
    print(table(measure(args.repeats, args.preset)))


if __name__ == "__main__":
    main()

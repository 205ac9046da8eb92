"""Time of one update of every agent over DDPG's, interleaved: python -m benchmarks.cost
[preset=cpu] [repeats]"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from agent.base import Objective
from agent.learners.ddpg import DDPG
from agent.skills.sources import SkillSpace
from benchmarks import make_parser
from experiment.runs import compose
from replay_buffer import ReplayBuffer
from run.build import make_learner, make_objective
from run.cli.schema import resolve
from run.cli.words import options
from run.machine import pick_device
from run.memory import make_memory
from run.seeing import render_settings
from utils import CONFIGS, Streams

AGENTS = tuple(sorted(p.stem for p in (CONFIGS / "agent").glob("*.yaml")))
UPDATES = 10  # per repeat
DEVICE = pick_device("auto")


class Walker:
    obs_dim, action_dim = 24, 6


class Update(NamedTuple):
    """What one update of an agent needs; calling it does one."""

    learner: DDPG
    memory: ReplayBuffer
    objective: Objective
    step: int

    def __call__(self):
        return self.learner.learn(self.memory, self.objective, self.step)

    def plainly(self):
        """The same without a compiled function or a graph, whose operators nobody can count."""
        return self.learner.update(
            self.objective,
            [
                self.memory.sample(self.learner.batch_size)
                for _ in range(self.objective.batches_per_update)
            ],
        )


def updater(agent: str, *overrides: str) -> Update:
    """Updates of the agent on random data of walker's shape; `overrides` give the size, as
    preset=cpu, and obs_type=pixels."""
    phase, task = ("finetune", ["task=walker_run"]) if agent == "ddpg" else ("pretrain", [])
    config = resolve(compose([f"agent={agent}", *overrides, *task], phase))
    rng = Streams(0, DEVICE)
    torch.manual_seed(0)
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    objective = make_objective(config, Walker, space.dim, rng).to(DEVICE)
    learner = make_learner(config, Walker, space.dim, objective.streams, rng)
    render = render_settings(config)
    rows = 5000 if render is None else 500  # of pictures more would take memory and say no more
    memory = make_memory(
        {**config, "replay": {**config["replay"], "capacity": 2 * rows}}, Walker, space, rng
    )
    draw = np.random.default_rng(0)

    def obs() -> np.ndarray:
        if render is None:
            return draw.normal(size=24)
        return draw.integers(256, size=render.shape, dtype=np.uint8)

    memory.begin(obs())
    for _ in range(rows):
        memory.add(draw.uniform(-1, 1, 6), space.sample(draw), 0.0, 1.0, obs())
    memory.begin(obs())  # some agents draw from finished episodes only
    # One step on: not a multiple of the conflict diagnostic's interval.
    return Update(learner, memory, objective, config["learner"]["update_every_steps"])


def interleaved(actions: dict[str, Callable], repeats: int, calls: int) -> dict[str, list[float]]:
    """Seconds per call of every action, `repeats` times each and in turns, so that a busy machine
    slows all alike. A turn begins with a call that is not counted: it finds the caches and the heap
    as another action left them."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            action()
            begun = now()
            for _ in range(calls):
                action()
            times[name].append((now() - begun) / calls)
    return times


def now() -> float:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def ratio(times: dict[str, list[float]], a: str, b: str) -> float:
    return statistics.median(x / y for x, y in zip(times[a], times[b], strict=True))


def measure(
    repeats: int, preset: str = "cpu", calls: int = UPDATES, agents: tuple[str, ...] = AGENTS
) -> dict[str, dict[str, float]]:
    """{agent: ms per update, and over DDPG's}, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times = interleaved(
        {agent: updater(agent, f"preset={preset}") for agent in agents}, repeats, calls
    )
    torch.set_num_threads(threads)
    return {
        agent: {
            "ms": 1e3 * statistics.median(times[agent]),
            "over_ddpg": ratio(times, agent, "ddpg"),
        }
        for agent in agents
    }


def main() -> None:
    given = make_parser(__doc__, 15, preset=options("preset")).parse_args()  # cpu is the first
    preset, repeats = given.preset, given.repeats
    print(f"preset={preset}, 1 thread, {repeats} interleaved repeats of {UPDATES} updates; median")
    for agent, row in measure(repeats, preset).items():
        print(f"{agent:18} {row['ms']:8.2f} ms  {row['over_ddpg']:6.2f} x ddpg")


if __name__ == "__main__":
    main()

"""Hours that 2,000,000 frames of pre-training would take here, of every method of the paper's Table 10:
python -m benchmarks.hours [preset=cpu] [domain=walker] [repeats]

Timed is the loop (acting, environment, replay, updates) at the speed of this machine, without
evaluations and snapshots. DDPG has no reward to be pre-trained with: its line is the same loop with
the reward of the domain's own environment, which costs what a reward-free one would.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import torch
import yaml

from benchmarks import make_parser
from benchmarks.cost import interleaved
from benchmarks.loop import make_runner
from experiment.paper import claim, load
from run.cli.words import options
from run.loop import Runner
from utils import CONFIGS

STEPS = 100  # of each method in a turn
DOMAINS = ("walker", "quadruped", "jaco")


def methods() -> list[str]:
    """The columns of Table 10, which are agents here."""
    return list(load("hours_pretrain")["method"].unique())


def place(agent: str, domain: str) -> str:
    """Where the loop runs: DDPG needs a task, the domain's own."""
    if agent != "ddpg":
        return f"domain={domain}"
    found = yaml.safe_load((CONFIGS / "domain" / f"{domain}.yaml").read_text())
    return f"task={found['primal_task']}"


def measure(
    preset: str, domain: str, repeats: int, agents: list[str], steps: int = STEPS
) -> dict[str, float]:
    """Hours of each agent, timed in turns on one thread, so that a busy machine slows all alike."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        runners = {
            agent: make_runner(
                Path(folder, agent), f"preset={preset}", agent=agent, where=place(agent, domain)
            )
            for agent in agents
        }
        loops = {agent: lambda r=runner: advance(r, steps) for agent, runner in runners.items()}
        times = interleaved(loops, repeats, 1)
    torch.set_num_threads(threads)
    frames = claim("pretrain_steps")
    return {
        agent: statistics.median(seconds) / steps * frames / 3600
        for agent, seconds in times.items()
    }


def advance(runner: Runner, steps: int) -> None:
    for _ in range(steps):
        runner._at_border()
        runner._advance()


def main() -> None:
    given = make_parser(__doc__, 5, preset=options("preset"), domain=DOMAINS).parse_args()
    printed = load("hours_pretrain").query("domain == @given.domain").set_index("method")["mean"]
    found = measure(given.preset, given.domain, given.repeats, methods())
    print(
        f"preset={given.preset}, {given.domain}, 1 thread: hours of {claim('pretrain_steps'):,.0f} "
        f"frames by {given.repeats} turns of {STEPS} steps; the paper's are of an RTX 3060"
    )
    for agent, hours in found.items():
        print(
            f"{agent:8} {hours:8.2f} h {hours / found['ddpg']:6.2f} x ddpg   paper "
            f"{printed[agent]:6.2f} h {printed[agent] / printed['ddpg']:6.2f} x ddpg"
        )


if __name__ == "__main__":
    main()

"""Every measurement as one table and one file.

python -m benchmarks [--quick] [--out results/bench.json]
"""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import torch

from benchmarks import cost, env, evaluation, loop, maze, pixels, replay, update
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import versions, write_text

SMOKE = {"smoke": ("preset=smoke",)}


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    )
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(memory / 1e9, 1),
        **gpu,
    }


def run(*, quick: bool) -> dict[str, Any]:
    """All measurements. `quick` has tiny sizes and a repeat or two, to see that everything runs;
    its times mean nothing."""
    results = {"machine": machine(), "versions": versions()}
    if quick:
        results |= {
            "update": update.measure(1, SMOKE, compiled=False),
            "cost": cost.measure(1, "smoke", 1, ("amped", "ddpg")),
            "env": {"walker": env.compare("walker", 1)},
            "replay": replay.measure(1, filled=20_000),
            "loop": loop.measure(1, SMOKE, steps=20),
            "evaluation": evaluation.measure(1, SMOKE, steps=5),
            "maze": maze.measure(1, mazes=64, steps=5),
            "pixels": pixels.measure(1, "smoke"),
        }
    else:
        results |= {
            "update": update.measure(9),
            "cost": cost.measure(9),
            "env": env.measure(5),
            "replay": replay.measure(31),
            "loop": loop.measure(7),
            "evaluation": evaluation.measure(5),
            "maze": maze.measure(9),
            "pixels": pixels.measure(3),
        }
    return results


def table(results: dict[str, Any]) -> str:
    about, mazes = results["machine"], results["maze"]
    lines = [
        f"{about.get('gpu', 'no GPU')}; {about['cpu']}, {about['cores']} cores, {about['threads']} threads, "
        f"{about['memory_gb']} GB; torch {results['versions']['torch']}",
        "",
        update.table(results["update"]),
        "",
    ]
    lines += [
        f"cost    {agent:18} {row['ms']:8.2f} ms {row['over_ddpg']:6.2f} x ddpg"
        for agent, row in results["cost"].items()
    ]
    lines += [
        "",
        env.table(results["env"]),
        replay.table(results["replay"]),
        loop.table(results["loop"]),
        evaluation.table(results["evaluation"]),
        f"maze    {mazes['steps_s']:12,.0f} steps/s side by side  (one at a time {mazes['plain_steps_s']:,.0f}, "
        f"{mazes['ratio']:.0f}x)",
        pixels.table(results["pixels"]),
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = Parser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to see that everything runs"
    )
    parser.add_argument("--out", type=Path, default=Path("results/bench.json"))
    options = parser.parse_args(arguments)
    if options.out.is_dir() or not options.out.name:
        parser.error(f"--out {options.out} is a directory, give a file such as bench.json")
    results = run(quick=options.quick)
    print(table(results))
    write_text(options.out, json.dumps(results, indent=2) + "\n")
    return results


if __name__ == "__main__":
    run_command(main)

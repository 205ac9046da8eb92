"""One update beside its plain transcription and beside its own matrix products: python -m
benchmarks.update [repeats]

The products are the hardware's limit: what an update takes above them is ours to answer for.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from agent.learners.compiled import Compiled
from benchmarks import make_parser
from benchmarks.cost import DEVICE, interleaved, ratio, updater
from benchmarks.reference import Reference
from utils import Streams

AGENTS = ("amped", "cic", "ddpg")
# the small ones first: large tensors change how the heap hands out memory, for all that comes after
SIZES = {
    "cpu": ("preset=cpu",),
    "medium": ("preset=paper", "learner.batch_size=256", "learner.hidden_dim=256"),
    "paper": ("preset=paper",),
}
# Updates in a turn, and turns in a repeat. Short turns: the machine's own speed changes from one
# moment to the next.
CALLS, TURNS = {"cpu": 8, "medium": 4, "paper": 1}, {"cpu": 6, "medium": 6, "paper": 1}
PRODUCTS = {"mm": torch.mm, "addmm": torch.addmm, "bmm": torch.bmm, "baddbmm": torch.baddbmm}


class Tally(TorchDispatchMode):
    """Counts operators and notes every matrix product: its name, arguments and result, tensors by
    their layout."""

    def __init__(self):
        super().__init__()
        self.operators, self.products = 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        self.operators += 1
        name = function.overloadpacket.__name__
        if name in PRODUCTS:
            numbers = {key: value for key, value in kwargs.items() if key != "out"}
            self.products.append(
                (name, [self.layout(x) for x in args], numbers, self.layout(result))
            )
        return result

    @staticmethod
    def layout(x):
        return (x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x


def products_alone(update: Callable) -> tuple[Callable[[], None], int]:
    """A function that does the matrix products of one update and nothing else, and the number of
    operators."""
    with Tally() as tally:
        update()
    tensors: dict[tuple, torch.Tensor] = {}

    def tensor(role, layout):
        """One for each layout and role: the products of a paper-size update would not fit side by
        side."""
        if (role, layout) not in tensors:
            shape, stride, dtype = layout
            tensors[role, layout] = torch.empty_strided(
                shape, stride, dtype=dtype, device=DEVICE
            ).fill_(0.01)
        return tensors[role, layout]

    calls = [
        (
            PRODUCTS[name],
            [tensor(i, x) if isinstance(x, tuple) else x for i, x in enumerate(args)],
            numbers,
            tensor("out", out),
        )
        for name, args, numbers, out in tally.products
    ]

    def products() -> None:
        with torch.no_grad():
            for function, args, numbers, out in calls:
                function(*args, **numbers, out=out)

    return products, tally.operators


def gflop(update: Callable) -> float:
    with FlopCounterMode(display=False) as counter:
        update()
    return counter.get_total_flops() / 1e9


def peak(update: Callable) -> float:
    """Bytes: the most that an update holds at once, above what was there before it."""
    if DEVICE.type == "cpu":
        return allocations(update)[0]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    update()
    return torch.cuda.max_memory_allocated() - before


def allocations(update: Callable) -> tuple[float, float]:
    """Bytes on the CPU: the most that an update holds at once, and its largest single piece."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        update()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = largest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak, largest = max(peak, live), max(largest, event.nbytes())
    return peak, largest


def measure(
    repeats: int,
    sizes: dict[str, tuple[str, ...]] = SIZES,
    agents: tuple[str, ...] = AGENTS,
    compiled: bool = True,
) -> dict[str, dict[str, dict[str, float]]]:
    """{agent: {size: ...}}; times are medians of interleaved repeats. `compiled`: AMPED with
    compile=true besides."""
    results: dict[str, dict[str, dict[str, float]]] = {agent: {} for agent in agents}
    for size, overrides in sizes.items():
        for agent in agents:
            results[agent][size] = measure_one(
                agent,
                overrides,
                repeats * TURNS.get(size, 1),
                CALLS.get(size, 1),
                compiled=compiled and agent == "amped",
            )
    return results


def measure_one(
    agent: str, overrides: tuple[str, ...], repeats: int, calls: int, *, compiled: bool
) -> dict[str, float]:
    update = updater(agent, *overrides)
    actions = {"update": update}
    if agent == "amped":
        with DEVICE:
            reference = Reference(update.learner, update.objective, Streams(0, DEVICE))

        def plain() -> None:
            with DEVICE:
                reference.update(update.memory.sample(update.learner.batch_size))

        actions["reference"] = plain
    if compiled:
        actions["compiled"] = updater(agent, *overrides)
        actions["compiled"].learner.capture = Compiled()
    update()  # optimisers get their state
    actions["products"], operators = products_alone(update.plainly)
    times = interleaved(actions, repeats, calls)
    row = {
        "ms": 1e3 * statistics.median(times["update"]),
        "gflop": gflop(update.plainly),
        "gemm_ms": 1e3 * statistics.median(times["products"]),
        "gemm_share": ratio(times, "products", "update"),
        "operators": operators,
        "peak_mb": peak(update.plainly) / 1e6,
    }
    for name, key in (("reference", "ratio"), ("compiled", "compiled_ratio")):
        if name in times:
            row[f"{name}_ms"] = 1e3 * statistics.median(times[name])
            row[key] = ratio(times, "reference", name if name == "compiled" else "update")
    return row


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = [
        "update              ms   products  (share)  reference  (ratio)  compiled  (ratio)    GFLOP  operators  "
        "peak MB"
    ]
    for agent, sizes in results.items():
        for size, row in sizes.items():
            plain = f"{row['reference_ms']:9.1f} {row['ratio']:7.2f}x" if "ratio" in row else ""
            fused = (
                f"{row['compiled_ms']:8.1f} {row['compiled_ratio']:7.2f}x"
                if "compiled_ms" in row
                else ""
            )
            lines.append(
                f"{agent:6} {size:8} {row['ms']:8.1f} {row['gemm_ms']:9.1f} {row['gemm_share']:8.0%}  "
                f"{plain:18} {fused:17} {row['gflop']:8.2f} {row['operators']:10} {row['peak_mb']:8.1f}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(measure(make_parser(__doc__, 9).parse_args().repeats)))

"""On an AMD processor: a library that lets torch's matrix products use AVX-512, and what it gains here.

    python -m benchmarks.amd mkl_on_amd.so
    export LD_PRELOAD=$PWD/mkl_on_amd.so      # then pretrain.py, sweep.py and all others as usual

torch computes products on a CPU with Intel's MKL, which asks a function of its own whether the processor is
Intel's and uses nothing newer than AVX2 where it is not. The library answers yes in that function's
place; which instructions there are MKL still asks of the processor itself. Rounding differs, as it does
between two processors: give a run and its resumes the same setting. Linux only.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from utils import UserError

SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"
WIDTHS = (128, 256, 1024)  # preset=cpu, medium, the paper's
# Seconds of one product of each width on one thread, the best of several turns, and how far it is from
# the same in double precision, in units of its largest entry.
CHILD = """
import json, sys, time, torch
torch.set_num_threads(1)
found = {}
for width in map(int, sys.argv[1:]):
    a, b = torch.randn(2, width, width)
    exact, out = a.double() @ b.double(), torch.empty(width, width)
    calls, best = max(1, 10**9 // width**3), float("inf")
    for turn in range(6):
        begun = time.perf_counter()
        for _ in range(calls):
            torch.mm(a, b, out=out)
        best = min(best, (time.perf_counter() - begun) / calls)
    found[width] = best, ((out - exact).abs().max() / exact.abs().max()).item()
print(json.dumps(found))
"""


def build(library: Path) -> None:
    compiler = os.environ.get("CC", "gcc")
    if not sys.platform.startswith("linux"):
        raise UserError(f"this is {sys.platform}; LD_PRELOAD is a thing of Linux")
    if shutil.which(compiler) is None:
        raise UserError(f"no C compiler ({compiler}) here; install one, or name yours in CC=")
    if not library.parent.is_dir():
        raise UserError(f"{library.parent} is no directory; give a file in one that exists")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "library.c"
        source.write_text(SOURCE)
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", str(library), str(source)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise UserError(
            f"{compiler} failed: {(done.stderr.splitlines() or ['no reason given'])[0]}"
        )


def products(library: Path | None) -> dict[int, tuple[float, float]]:
    """width -> seconds, error, in a process of its own: MKL asks once, at its first product."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if library is not None:
        environment["LD_PRELOAD"] = str(library.resolve())
    command = [sys.executable, "-c", CHILD, *map(str, WIDTHS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {int(width): tuple(pair) for width, pair in json.loads(done.stdout).items()}


def table(turns: list[tuple[dict, dict]]) -> str:
    """Medians over turns of (plain, with the library)."""
    lines = ["one thread     MKL as it is    with the library     ratio    largest errors"]
    for width in WIDTHS:
        plain, freed = (
            statistics.median(turn[side][width][0] for turn in turns) * 1e6 for side in (0, 1)
        )
        errors = [max(turn[side][width][1] for turn in turns) for side in (0, 1)]
        lines.append(
            f"{width:>6}^3    {plain:12,.1f} us    {freed:12,.1f} us    {plain / freed:6.2f}    "
            f"{errors[0]:.1e}, {errors[1]:.1e}"
        )
    return "\n".join(lines)


def run(library: Path, repeats: int) -> None:
    build(library)
    print(table([(products(None), products(library)) for _ in range(repeats)]))
    print(f"where it gains: export LD_PRELOAD={shlex.quote(str(library.resolve()))}")


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    parser.add_argument("library", type=Path, metavar="FILE.so", help="the library to write")
    parser.add_argument(
        "repeats", nargs="?", type=at_least(1), default=3, help="turns (%(default)s)"
    )
    args = parser.parse_args()
    run_command(lambda: run(args.library, args.repeats))


if __name__ == "__main__":
    main()

"""Whether this machine's GPU computes what the plain code computes: make gpu-check.

    python -m benchmarks.gpu_check [--quick] [--out gpu_check.json]

Every agent's plain, recorded and compiled update, the replay on the device, a short pre-training and
fine-tuning, and the benchmarks. One table, and one file to attach to a bug report. Without a GPU the
same list runs on the CPU, with a recorder that only copies its inputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent.learners.compiled import Capture, Compiled
from agent.learners.recorded import Graphed, Recorded, Rehearsed, named
from benchmarks import __main__ as bench
from benchmarks.cost import AGENTS, DEVICE, updater
from replay_buffer import DeviceReplayBuffer, ReplayBuffer
from run.cli.console import Parser, printable
from run.cli.guard import run_command
from utils import ROOT, UserError, first_line, read_json, versions, write_text

UPDATES = 2  # more would compare how rounding grows, not what is computed
RTOL, ATOL = 2e-3, 1e-5  # of metrics: a compiler may order its sums anew
NO_GPU = "no GPU is here: the same list runs on the CPU, and says nothing of CUDA graphs"


class Traced(Compiled):
    """torch.compile up to its graph, which then runs operator by operator: seconds, not minutes."""

    backend = "eager"


# ------------------------------------------------------------------------------------------ updates


def compare(agent: str, capture: Capture, size: str) -> dict[str, Any]:
    """Updates by `capture` beside plain ones, from the same start on the same batches."""
    plain, other = updater(agent, size), updater(agent, size)
    plain.learner.capture, other.learner.capture = None, capture
    worst, apart = 0.0, []
    for _ in range(UPDATES):
        ours, theirs = plain(), other()
        for name, value in ours.items():
            a, b = float(value), float(theirs[name])
            worst = max(worst, abs(a - b) / (abs(a) + 1e-3))
            if not np.isclose(a, b, rtol=RTOL, atol=ATOL, equal_nan=True):
                apart.append(name)
    here, there = (named(each.learner.job(each.objective)) for each in (plain, other))
    weights = max(float((here[k] - there[k]).detach().abs().max()) for k in here)
    row = {"ok": not apart, "metrics": worst, "weights": weights, "apart": sorted(set(apart))}
    if isinstance(capture, Recorded):
        row |= {"choice": capture.choice, "ok": row["ok"] and capture.choice == "recorded"}
    return row


def recorder() -> Recorded:
    kind = Graphed if DEVICE.type == "cuda" else Rehearsed
    return kind(required=False)


def replay() -> dict[str, Any]:
    """A ring that wraps, gathered on the device and here."""
    rows, draw = 5000, np.random.default_rng(0)
    settings: dict[str, Any] = {"obs_dim": 24, "action_dim": 6}
    here, there = (
        kind(
            **settings,
            skill_dim=16,
            capacity=3000,
            nstep=3,
            gamma=0.99,
            skill_index="acting",
            one_hot=True,
            rng=np.random.default_rng(1),
            device=DEVICE,
        )
        for kind in (ReplayBuffer, DeviceReplayBuffer)
    )
    worst = 0.0
    for step in range(rows):
        if step % 100 == 0:
            start = draw.normal(size=24)
            for memory in (here, there):
                memory.begin(start)
        given = (draw.uniform(-1, 1, 6), np.eye(16)[step % 16], draw.normal(), 1.0)
        obs = draw.normal(size=24)
        for memory in (here, there):
            memory.add(*given, obs)
        if step > 200 and step % 50 == 0:
            for a, b in zip(here.sample(256), there.sample(256), strict=True):
                worst = max(worst, float((a - b).abs().max()))
    assert isinstance(there, DeviceReplayBuffer)
    return {"ok": worst < 1e-5, "apart": worst, "choice": there.choice}


# --------------------------------------------------------------------------------------------- runs


def script(phase: str, words: list[str], root: Path) -> dict[str, Any]:
    """A short run as a user starts it."""
    given = ["agent=amped", "preset=smoke", f"device={DEVICE}", f"run_root={root}", *words]
    done = subprocess.run(
        [sys.executable, str(ROOT / f"{phase}.py"), *given], capture_output=True, text=True
    )
    row: dict[str, Any] = {"ok": done.returncode == 0, "exit_code": done.returncode}
    if said := [printable(line) for line in done.stderr.splitlines() if line.strip()]:
        row["said"] = said[-5:]
    for path in root.glob(f"{phase}/**/result.json"):
        found = read_json(path)
        row |= {"choices": found.get("choices", {}), "score": found["score"]}
    return row


# -------------------------------------------------------------------------------------------- table


def attempt(what: str, subject: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One row; whatever goes wrong is part of it."""
    started = time.monotonic()
    try:
        found = make()
    except (RuntimeError, UserError, ValueError, KeyError, OSError) as error:
        found = {"ok": False, "error": f"{type(error).__name__}: {printable(first_line(error))}"}
    row = {"what": what, "subject": subject, **found, "seconds": time.monotonic() - started}
    print(line(row), flush=True)
    return row


def line(row: dict[str, Any]) -> str:
    parts = [f"{row['what']:10} {row['subject']:18} {'ok' if row['ok'] else 'DIFFERS':8}"]
    parts += [f"{key} {row[key]:.1e}" for key in ("metrics", "weights") if key in row]
    parts += [f"{row[key]}" for key in ("choice", "choices", "error", "apart") if row.get(key)]
    return "  ".join(parts)


def run(*, quick: bool, agents: tuple[str, ...] = AGENTS) -> dict[str, Any]:
    on_gpu = DEVICE.type == "cuda"
    about = bench.machine()
    print(f"{about['gpu']}, torch {torch.__version__}" if on_gpu else NO_GPU, flush=True)
    size = "preset=smoke" if quick else "preset=cpu"
    rows = []
    for agent in agents:
        rows.append(attempt("recorded", agent, lambda: compare(agent, recorder(), size)))  # noqa: B023
    for agent in agents:
        torch._dynamo.reset()
        kind = Traced if quick else Compiled
        rows.append(attempt("compiled", agent, lambda: compare(agent, kind(), size)))  # noqa: B023
    rows.append(attempt("replay", "on the device", replay))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows += [
            attempt("run", "pretrain", lambda: script("pretrain", ["domain=walker"], root)),
            attempt("run", "finetune", lambda: script("finetune", ["task=walker_run"], root)),
        ]
    return {
        "device": str(DEVICE),
        "machine": about,
        "versions": versions() | {"cuda": torch.version.cuda, "cudnn": cudnn()},
        "quick": quick,
        "rows": rows,
        "bench": bench.run(quick=quick),
    }


def cudnn() -> int | None:
    return torch.backends.cudnn.version() if torch.cuda.is_available() else None


def main() -> None:
    parser = Parser(prog="python -m benchmarks.gpu_check", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing is compiled")
    parser.add_argument("--out", type=Path, default=Path("gpu_check.json"), help="(%(default)s)")
    options = parser.parse_args()
    run_command(lambda: write(options.quick, options.out))


def write(quick: bool, out: Path) -> None:
    results = run(quick=quick)
    print(bench.table(results["bench"]))
    write_text(out, json.dumps(results, indent=2) + "\n")
    wrong = [row for row in results["rows"] if not row["ok"]]
    print(f"{len(results['rows']) - len(wrong)} of {len(results['rows'])} agree: {out}")
    if results["device"] == "cpu":
        print(NO_GPU)
    if wrong:
        raise UserError(f"{len(wrong)} rows differ; please attach {out} to a bug report")


if __name__ == "__main__":
    main()

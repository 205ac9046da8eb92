"""The long fault suite: python -m tests.faults.soak [--kills 50] [--seed 1] [--out
results/soak.json]

Five runs, each first undisturbed, then killed at random moments and continued until it is done;
then signals, full disks and damaged files. Every disturbed run must end with the same bits as the
undisturbed one. The table goes to the screen, everything else into the JSON. Exit code 1 if
anything was lost.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.faults.damage import cuts, flip, flips, resize, small_disk
from tests.faults.kills import JOBS, Aim, Flight, Job, fly, plan, start
from tests.faults.same import Comparison, compare
from utils import versions, write_text

SIZES = (60, 300)  # kilobytes of a disk on which the smallest run does not fit
MOST_STEPS = 1.2  # environment steps of all attempts over those of the undisturbed run
HEAD = ("fault", "injected", "survived", "lost", "frames compared", "numbers compared", "env steps")


def row(
    fault: str, injected: int, compared: Comparison, ratio: float | None = None, **more: Any
) -> dict[str, Any]:
    """All that was injected into a run is lost unless the run ends with the same bits, in few
    enough steps."""
    sound = not compared.differences and (ratio is None or ratio <= MOST_STEPS)
    return {
        "fault": fault,
        "injected": injected,
        "survived": injected * sound,
        "lost": injected * (not sound),
        "frames compared": compared.frames,
        "numbers compared": compared.numbers,
        "env steps": ratio,
        "differences": compared.differences,
        **more,
    }


def finished(job: Job, base: Path, root: Path, flight: Flight) -> Comparison:
    """A run that was disturbed beside the one that was not."""
    if not (root / job.where / "result.json").exists():
        return Comparison(differences=[flight.error or "not finished"])
    return compare(base / "whole" / job.where, root / job.where)


def disturbed(
    label: str,
    job: Job,
    aims: list[Aim],
    base: Path,
    whole: Flight,
    seed: int,
    signum: int = signal.SIGKILL,
) -> dict[str, Any]:
    root = base / re.sub(r"\W+", "_", f"{label} {job.name}")
    flight = fly(job, root, base / "whole", aims, random.Random(f"{seed} {job.name}"), signum)
    return row(
        f"{label}: {job.name}",
        len(flight.kills),
        finished(job, base, root, flight),
        flight.steps / whole.steps,
        steps=flight.steps,
        replayed=flight.replayed,
        steps_undisturbed=whole.steps,
        kills=[kill._asdict() for kill in flight.kills],
    )


def full_disks(job: Job, count: int, base: Path, seed: int) -> dict[str, Any]:
    """The run ends in one line that names a file; with more room the same command completes it."""
    rng, found, messages = random.Random(seed), Comparison(), []
    for number in range(count):
        size = rng.randrange(*SIZES)
        with small_disk(base / f"disk_{number}", size) as disk:
            command, box = job.command(disk, base / "whole"), base / f"disk_box_{number}"
            first = start(command, box)
            line = first.communicate()[1]
            found.check(
                first.returncode == 2
                and len(line.splitlines()) == 1
                and "the disk is full" in line,
                f"{size} kB: {line[-300:]}",
                0,
            )
            halves = list(disk.rglob(".*.tmp"))
            found.check(not halves, f"{size} kB left {halves}", 0)
            messages.append(re.sub(rf"{disk}/\S*/", "", line.strip()))
            resize(disk, 8000)
            found.check(start(command, box).wait() == 0, f"{size} kB: resume", 0)
            one = compare(base / "whole" / job.where, disk / job.where)
        found.frames, found.numbers = found.frames + one.frames, found.numbers + one.numbers
        found.differences += one.differences
    return row(f"disk full: {job.name}", count, found, messages=messages)


def damaged_checkpoints(job: Job, count: int, base: Path, seed: int) -> list[dict[str, Any]]:
    """A run is stopped `count` times, each time its newest checkpoint is damaged, and it goes on
    from the one before; the last of them also has its bits flipped one by one, as has a
    snapshot."""
    rng, root, flight = random.Random(seed), base / "damaged", Flight()
    made, scratch = [], base / "scratch.pt"
    snapshot = base / "whole" / job.where / "snapshots" / f"snapshot_{job.frames}.pt"
    for aim in plan(job, count, rng):
        stopped = fly(
            job,
            root,
            base / "whole",
            [aim._replace(phase="any")],
            rng,
            signal.SIGTERM,
            to_the_end=False,
        )
        flight.kills += stopped.kills
        newest = max(
            (root / job.where).glob("checkpoint_*.pt"), key=lambda p: int(p.stem.split("_")[1])
        )
        data = newest.read_bytes()
        (base / "sound.pt").write_bytes(data)
        bit = rng.randrange(8 * len(data))
        newest.write_bytes(flip(data, bit) if bit % 2 else data[: bit // 8])
    flight.error = fly(job, root, base / "whole", [], rng).error
    aside = len(list((root / job.where).glob("damaged_checkpoint_*.pt")))
    for path in (root / job.where).glob("damaged_checkpoint_*.pt"):
        path.unlink()
    compared = finished(job, base, root, flight)
    compared.check(aside == count, f"{aside} of {count} damaged checkpoints were found", 0)
    made.append(row(f"newest checkpoint damaged: {job.name}", len(flight.kills), compared))
    for what, file in (("snapshot", snapshot), ("checkpoint", base / "sound.pt")):
        for fault, damage, times in (("bit flipped", flips, 2000), ("cut off", cuts, 200)):
            found = damage(file, what, times, rng, scratch)
            compared = Comparison(differences=["WRONG"] * found["WRONG"])
            made.append(row(f"{what}, {fault}", times, compared, outcomes=dict(found)))
    return made


def table(rows: list[dict[str, Any]]) -> str:
    def cells(r: dict[str, Any]) -> list[str]:
        ratio = r["env steps"]
        counts = [f"{r[key]:,}" for key in HEAD[1:4]] + [
            f"{r[key]:,}" if r[key] else "-" for key in HEAD[4:6]
        ]
        return [r["fault"], *counts, f"{ratio:.3f}x" if ratio else "-"]

    total = {
        "fault": "all",
        "env steps": None,
        **{key: sum(r[key] for r in rows) for key in HEAD[1:6]},
    }
    lines = [list(HEAD), ["---"] * len(HEAD), *map(cells, [*rows, total])]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def soak(kills: int, seed: int, base: Path) -> list[dict[str, Any]]:
    rng, tuning, small = random.Random(seed), JOBS[2], JOBS[4]
    whole = {job: fly(job, base / "whole", base / "whole", [], rng) for job in JOBS}
    if errors := [flight.error for flight in whole.values() if flight.error]:
        sys.exit(f"an undisturbed run failed: {errors[0]}")
    shares = [kills // len(JOBS) + (i < kills % len(JOBS)) for i in range(len(JOBS))]
    with ThreadPoolExecutor(2) as pool:  # each waits for processes
        calls = [
            pool.submit(disturbed, "kill -9", job, plan(job, share, rng), base, whole[job], seed)
            for job, share in zip(JOBS, shares, strict=True)
        ]
        aims = [aim._replace(phase="evaluation") for aim in plan(tuning, 5, rng)]
        calls.append(
            pool.submit(
                disturbed, "SIGTERM", tuning, aims, base, whole[tuning], seed, signal.SIGTERM
            )
        )
        calls.append(pool.submit(full_disks, small, 4, base, seed))
        several = pool.submit(damaged_checkpoints, small, 4, base, seed)
        return [*(call.result() for call in calls), *several.result()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/soak.json"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak_") as base:
        rows = soak(args.kills, args.seed, Path(base))
    killed = [kill for r in rows if r["fault"].startswith("kill -9") for kill in r["kills"]]
    landed = {
        "kills": len(killed),
        "after the first update": sum(kill["trained"] for kill in killed),
        "in": dict(Counter(kill["phase"] for kill in killed).most_common()),
    }
    write_text(
        args.out,
        json.dumps(
            {"seed": args.seed, "landed": landed, "rows": rows, "versions": versions()}, indent=1
        )
        + "\n",
    )
    print(table(rows))
    print(
        f"\n{landed['kills']} kills, {landed['after the first update']} after the first update; they landed in "
        + ", ".join(f"{phase} {count}" for phase, count in landed["in"].items())
    )
    return int(any(r["lost"] for r in rows))


if __name__ == "__main__":
    sys.exit(main())

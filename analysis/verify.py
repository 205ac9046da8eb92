"""Is a shipped number still what the code gives? Reruns the rows of a table of results/.

    python -m analysis.verify NAME [--row N ...] [--run-root DIR]

NAME is a file of results/ (walker_small, toy, fig_evolution, ...) or the path of a CSV with the same
columns. Every command of the table is run again, in a directory of its own, and each row is called
equal (every printed digit), equal up to rounding, or different, with the commit that it was shipped
from and the one that runs now. Exit code 1 if a row is different.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from analysis import contextual
from analysis.maze.episodes import load as load_trained
from analysis.maze.measure import as_text, measure_snapshot
from analysis.text import short_commit
from experiment.runs import compose
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.cli.words import nearest, quote_words
from run.files import read_log
from run.finetuning import finetune
from run.pretraining import pretrain
from run.results import git_state
from utils import RESULTS, ROOT, UserError

THEORY = ("structure", "theorem", "toy")
EPISODES = 100  # of each skill, in every shipped row of measures
ROUNDING = 1e-4  # relative: what another order of summing may change in a number of few steps
# Columns of a table that are numbers of a run's evaluations, and what eval.csv calls them.
EVALUATED = {
    "score": "return_mean",
    "return_mean": "return_mean",
    "skill_variance": "skill_variance",
}
MEASURED = ("coverage", "entropy_particle", "entropy_kl", "mi_grid", "mi_shuffled", "separability")
VERDICTS = ("equal", "equal up to rounding", "different")


class Pair(NamedTuple):
    """One number, as it was shipped and as it comes out now."""

    where: str
    shipped: str
    now: str

    @property
    def verdict(self) -> str:
        if self.shipped == self.now:
            return VERDICTS[0]
        try:
            a, b = float(self.shipped), float(self.now)
        except ValueError:
            return VERDICTS[2]
        if a == b or (math.isnan(a) and math.isnan(b)):
            return VERDICTS[0]
        return (
            VERDICTS[1] if abs(a - b) <= max(ROUNDING * abs(a), unit(self.shipped)) else VERDICTS[2]
        )


def unit(text: str) -> float:
    """One in the last printed digit: 0.0001 of 0.7863."""
    mantissa, _, exponent = text.lower().partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])) * 1.0000001


# ------------------------------------------------------------------------------------------- tables


def names() -> dict[str, Path]:
    """Every table of results/ that can be made again: those whose rows have commands, and theory's."""
    found = {}
    for path in sorted(RESULTS.glob("**/*.csv")):
        with path.open() as file:
            head = file.readline().strip().split(",")
        if path.parent.name == "theory" or "command" in head:
            found[path.stem] = path
    return found


def find(name: str) -> Path:
    if name.endswith(".csv") and Path(name).is_file():
        return Path(name)
    known = names()
    if name not in known:
        raise UserError(
            f"{name} is no table of results/ that can be rerun; choose from {', '.join(known)}, or "
            f"give a FILE.csv with commands{nearest(name, known)}"
        )
    return known[name]


def shipped_commit(path: Path, row: pd.Series | None = None) -> str:
    """What the row says; of a table without commits the last one that changed the file."""
    if row is not None and str(row.get("commit", "")):
        return str(row["commit"])[:7]
    done = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", str(path)],
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or "unknown"


def head() -> str:
    state = git_state()
    return "unknown" if state is None else short_commit(state["commit"], state["dirty"])


# ------------------------------------------------------------------------------------------- reruns


def rerun(command: str, root: Path) -> Path:
    """The run directory of `python pretrain.py ...` or `python finetune.py ...`, made below root.
    What is finished there already is not made twice."""
    _, script, *words = shlex.split(command)
    words = quote_words([w for w in words if not w.startswith("run_root=")] + [f"run_root={root}"])
    phase = script.removesuffix(".py")
    cfg = compose(words, phase)
    with contextlib.redirect_stdout(io.StringIO()):
        return pretrain(cfg, words) if phase == "pretrain" else finetune(cfg, words)


def sources(table: pd.DataFrame, command: str) -> list[str]:
    """The pre-trainings of the same table that a fine-tuning may start from: those of its agent and
    seed."""
    words = shlex.split(command)
    if words[1] != "finetune.py":
        return []
    same = {word for word in words if word.startswith(("agent=", "seed="))}
    return [
        each
        for each in dict.fromkeys(table["command"])
        if shlex.split(each)[1] == "pretrain.py" and same <= set(shlex.split(each))
    ]


def of_run(row: pd.Series, path: Path) -> list[Pair]:
    """The numbers of a row beside those of the run: measures of a maze's snapshot, or an evaluation."""
    if set(MEASURED) <= set(row.index):
        options = argparse.Namespace(episodes=EPISODES, mine_steps=1)  # MINE is not compared
        torch.set_num_threads(1)
        trained = load_trained(path / "snapshots" / f"snapshot_{int(row['frame'])}.pt")
        now = as_text(measure_snapshot(trained, options))
        return [Pair(f"{name} at {row['frame']}", row[name], now[name]) for name in MEASURED]
    evaluated, logged = (at_frame(path / f"{name}.csv", row["frame"]) for name in ("eval", "train"))
    pairs = [
        Pair(f"{name} at {row['frame']}", row[name], evaluated.get(column, "nothing"))
        for name, column in EVALUATED.items()
        if row.get(name)
    ]
    return pairs + [
        Pair(f"{name} at {row['frame']}", row[name], logged.get(name, "nothing"))
        for name in row.index
        if "/" in name and row[name]  # surgery/conflict and other columns of train.csv
    ]


def at_frame(path: Path, frame: str) -> dict[str, str]:
    """The line of a run's CSV at a frame; empty where there is none."""
    lines = read_log(path)
    return next((each for each in lines if float(each["frame"]) == float(frame)), {})


def of_commands(path: Path, chosen: list[int], root: Path) -> list[tuple[str, str, list[Pair]]]:
    """(command, commit, numbers) of every chosen command of a table."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    commands = list(dict.fromkeys(table["command"]))
    if wrong := [number for number in chosen if number > len(commands)]:
        raise UserError(f"--row {wrong[0]} is not there; {path} has {len(commands)} commands")
    results = []
    for number, command in enumerate(commands, 1):
        if chosen and number not in chosen:
            continue
        program = shlex.split(command)[1]
        rows = table[table["command"] == command]
        print(f"{number}/{len(commands)} {command}", flush=True)
        if program in ("pretrain.py", "finetune.py"):
            for each in sources(table, command):
                rerun(each, root)
            made = rerun(command, root)
            pairs = [pair for _, row in rows.iterrows() for pair in of_run(row, made)]
        elif "analysis.contextual" in command:
            pairs = of_contextual(rows, command)
        else:
            print("  not rerun: a bound, without a run of its own")
            continue
        results.append((command, shipped_commit(path, rows.iloc[0]), pairs))
        say(results[-1])
    return results


def of_contextual(rows: pd.DataFrame, command: str) -> list[Pair]:
    now = contextual.records(contextual.options(shlex.split(command)[3:]))
    fresh = {(row["skills"], str(row["seed"])): row for row in now}
    return [
        Pair(
            f"{name}, {row['skills']}, seed {row['seed']}",
            row[name],
            fresh[row["skills"], row["seed"]][name],
        )
        for _, row in rows.iterrows()
        for name in contextual.NUMBERS
    ]


def cells(shipped: Path, now: Path) -> list[Pair]:
    """Every cell of two tables."""
    old, new = (pd.read_csv(each, dtype=str, keep_default_na=False) for each in (shipped, now))
    if old.shape != new.shape or list(old) != list(new):
        return [Pair("shape", str(old.shape), str(new.shape))]
    return [
        Pair(f"{name}, line {line + 2}", old[name][line], new[name][line])
        for name in old
        for line in range(len(old))
    ]


def of_theory(path: Path, root: Path) -> list[tuple[str, str, list[Pair]]]:
    """A study without rows of its own commands: the whole table, cell by cell."""
    command = f"python -m analysis.{path.stem}"
    print(command, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", f"analysis.{path.stem}", "--out", str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise UserError(f"{command} failed: {done.stderr.strip().splitlines()[-1]}")
    results = [(command, shipped_commit(path), cells(path, root / path.name))]
    say(results[-1])
    return results


# ---------------------------------------------------------------------------------------------- say


def worst(pairs: list[Pair]) -> str:
    """The worst verdict; a row with nothing to compare holds nothing either."""
    return max((pair.verdict for pair in pairs), key=VERDICTS.index, default=VERDICTS[2])


def say(result: tuple[str, str, list[Pair]]) -> None:
    _, commit, pairs = result
    verdict = worst(pairs)
    print(
        f"  {verdict} in {len(pairs)} numbers; shipped from {commit}, rerun at {head()}", flush=True
    )
    for pair in [each for each in pairs if each.verdict == verdict != VERDICTS[0]][:3]:
        print(f"    {pair.where}: {pair.shipped} shipped, {pair.now} now")


def verify(name: str, chosen: list[int], root: Path) -> bool:
    """Whether no row is different."""
    path = find(name)
    check: Callable[[], list] = (
        (lambda: of_theory(path, root))
        if path.stem in THEORY and path.parent.name == "theory"
        else (lambda: of_commands(path, chosen, root))
    )
    verdicts = [worst(pairs) for _, _, pairs in check()]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in VERDICTS if v in verdicts)
    print(f"{path.stem}: {counts or 'nothing rerun'}")
    return VERDICTS[2] not in verdicts


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0], epilog=f"tables: {', '.join(names())}")
    parser.add_argument("name", help="a table of results/, or a FILE.csv")
    parser.add_argument(
        "--row",
        type=at_least(1),
        action="append",
        default=[],
        help="only the Nth command of the table",
    )
    parser.add_argument(
        "--run-root", type=Path, help="keep the runs here; the same command goes on"
    )
    args = parser.parse_args()
    same = True

    def task() -> None:
        nonlocal same
        with tempfile.TemporaryDirectory() as folder:
            same = verify(args.name, args.row, args.run_root or Path(folder))

    run_command(task)
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()

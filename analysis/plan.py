"""What an experiment has and lacks: python -m analysis.plan experiment=table_urlb [key=value ...] (--help)"""

from __future__ import annotations

import argparse
import os
import sys

from analysis.experiment import Experiment, load, names
from utils import UserError

STATES = ("finished", "unfinished", "missing")


def plan(experiment: Experiment, *, missing_only: bool = False) -> None:
    """A line per run: its state and its command, in an order in which they can be run."""
    runs = [*experiment.runs, *experiment.finetunings]
    states = [run.state for run in runs]
    print(f"{experiment.name}: {experiment.title}")
    for phase, noun in (("pretrain", "pre-training"), ("finetune", "fine-tuning")):
        of_phase = [state for run, state in zip(runs, states, strict=True) if run.phase == phase]
        if of_phase:
            counts = ", ".join(f"{sum(state.startswith(name) for state in of_phase)} {name}" for name in STATES)
            print(f"{len(of_phase)} {noun}{'s' * (len(of_phase) > 1)}: {counts}")
    for run, state in zip(runs, states, strict=True):
        if not missing_only or state != "finished":
            print(f"{state:<22}{run.command}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0],
                                     epilog=f"experiments: {', '.join(names())}")
    parser.add_argument("words", nargs="*", metavar="key=value",
                        help="experiment=NAME or FILE.yaml; seed=1,2 and other keys of its grid; methods=NAME,NAME; "
                             "task=NAME,NAME; pretrain.KEY= and finetune.KEY= for one phase; any key of the scripts, "
                             "for every run (preset=cpu, run_root=DIR)")
    parser.add_argument("--missing", action="store_true", help="leave out what is finished")
    args = parser.parse_intermixed_args()
    try:
        plan(load(args.words), missing_only=args.missing)
        sys.stdout.flush()
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

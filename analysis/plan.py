"""What an experiment has and lacks, with the command of each of its runs.

python -m analysis.plan experiment=table_urlb [key=value ...] (--help)
"""

from __future__ import annotations

from experiment.board import NOUNS
from experiment.definition import Experiment, load, names
from experiment.runs import Run
from run.cli import own
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import plural

STATES = ("finished", "unfinished", "missing")


def count_lines(runs: list[Run], states: list[str]) -> list[str]:
    """ "240 pre-trainings: 0 finished, 0 unfinished, 240 missing", and the same of fine-tunings."""
    lines = []
    for phase, noun in NOUNS.items():
        found = [
            state.partition(" ")[0]
            for run, state in zip(runs, states, strict=True)
            if run.phase == phase
        ]
        if found:
            counts = ", ".join(f"{found.count(name)} {name}" for name in STATES)
            lines.append(f"{plural(len(found), noun)}: {counts}")
    return lines


def plan(experiment: Experiment, *, missing_only: bool = False) -> None:
    """A line per run: its state and its command, in an order in which they can be run."""
    runs = [*experiment.runs, *experiment.finetunings]
    states = [run.state for run in runs]
    print("\n".join([f"{experiment.name}: {experiment.title}", *count_lines(runs, states)]))
    for run, state in zip(runs, states, strict=True):
        if not missing_only or state != "finished":
            print(f"{state:<22}{run.command}")


def main() -> None:
    parser = Parser(
        description=__doc__.partition("\n")[0], epilog=f"experiments: {', '.join(names())}"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="experiment=NAME or FILE.yaml; seed=1,2 and other keys of its grid; methods=NAME,NAME; "
        "task=NAME,NAME; pretrain.KEY= and finetune.KEY= for one phase; any key of the scripts, "
        "for every run (preset=cpu, run_root=DIR)",
    )
    parser.add_argument("--missing", action="store_true", help="leave out what is finished")
    own.add_option(parser)
    args = parser.parse_intermixed_args()

    def task() -> None:
        own.use(args.config_dir)
        plan(load(args.words), missing_only=args.missing)

    run_command(task)


if __name__ == "__main__":
    main()

"""All runs of an experiment, on this machine or on a Slurm cluster.

    python sweep.py experiment=NAME cluster=local|slurm action=plan|run|status|cancel (--help)

Each run is an ordinary run of pretrain.py or finetune.py, a fine-tuning after its own pre-training.
The same command again runs what is missing, unfinished or failed, and nothing else. rows=FILE.csv leaves
out what has its row there, so that a long study goes on where another machine stopped.
"""

from __future__ import annotations

from run.signals import hear_early, hear_plainly, started_as

if started_as("sweep"):
    hear_early()  # what follows takes seconds

import shlex
from pathlib import Path
from typing import Any

from analysis.plan import count_lines
from experiment import cost, graph, local
from experiment.definition import SCORE_KINDS, Experiment, names, split_words, take
from experiment.rows import left_to_do
from experiment.runs import Run
from run.cli import own
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import UserError, choose

ACTIONS = ("plan", "run", "status", "cancel")


def backend(cluster: str) -> Any:
    """The module with run, status, cancel and check."""
    if cluster == "local":
        return local
    try:
        from experiment import slurm  # submitit is not needed on a laptop
    except ModuleNotFoundError as error:
        raise UserError(
            f'cluster={cluster} needs {error.name}; install it: pip install -e ".[slurm]"'
        ) from error

    return slurm


def plan(experiment: Experiment) -> None:
    """Counts, cost, then every run below the one that it needs."""
    runs = graph.runs_of(experiment)
    states, costs = {run.path: run.state for run in runs}, cost.estimate(runs)
    print(f"{experiment.name}: {experiment.title}")
    print("\n".join([*count_lines(runs, list(states.values())), costs.line()]))
    after: dict[Any, list[Run]] = {}
    for run in runs:
        after.setdefault(run.after, []).append(run)
    for run in after[None]:
        for depth, each in enumerate([run, *after.get(run.path, [])]):
            hours = costs.hours.get(str(each.path))
            mark = "  -> " if depth else ""
            print(
                f"{states[each.path]:<22}{'' if hours is None else cost.spell(hours):>9}  {mark}{each.phase} "
                f"{each.name}"
            )


def table_hint(experiment: Experiment, words: list[str]) -> str:
    module = "table" if experiment.figure.get("kind") in SCORE_KINDS else "figure"
    return f"all finished; python -m analysis.{module} {shlex.join([*own.options(), *words])}"


def main() -> None:
    if started_as("sweep"):
        hear_plainly()
    parser = Parser(
        description=__doc__.partition("\n")[0], epilog=f"experiments: {', '.join(names())}"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="experiment=NAME or FILE.yaml; cluster=local (default) or slurm; action=run (default), "
        "plan, status or cancel; cluster.KEY= for configs/cluster/*.yaml; rows=FILE.csv leaves out "
        "what has its row there; the rest as for python -m analysis.plan",
    )
    own.add_option(parser)
    args = parser.parse_intermixed_args()
    run_command(lambda: sweep(args.words, args.config_dir))


def sweep(words: list[str], config_dir: str | None = None) -> None:
    own.use(config_dir)
    given = split_words(words)
    action = choose("action", given.pop("action", "run"), ACTIONS)
    name, changes = given.pop("cluster", "local"), take(given, "cluster.")
    settings, module = graph.settings(name, changes), backend(name)
    module.check(settings)
    known = given.pop("rows", None)
    words = [f"{key}={value}" for key, value in given.items()]
    experiment = graph.load(words)
    if known is not None:
        experiment = left_to_do(experiment, Path(known))
    if action == "plan":
        plan(experiment)
    else:
        getattr(module, action)(experiment, settings)
    if action == "run" and all(graph.finished(run.path) for run in graph.runs_of(experiment)):
        print(table_hint(experiment, words))


if __name__ == "__main__":
    main()

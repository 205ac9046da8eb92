"""All runs of an experiment: python sweep.py experiment=NAME cluster=local|slurm action=plan|run|status|cancel (--help)

Each run is an ordinary run of pretrain.py or finetune.py, a fine-tuning after its own pre-training. The same command
again runs what is missing, unfinished or failed, and nothing else.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from agent.runner import Interrupted
from analysis.experiment import Experiment, names, split_words, take
from analysis.planned import Run
from cluster import cost, graph, local
from utils import UserError, choose

ACTIONS = ("plan", "run", "status", "cancel")


def backend(cluster: str) -> Any:
    """The module with run, status, cancel and check."""
    if cluster == "local":
        return local
    from cluster import slurm  # submitit is not needed on a laptop

    return slurm


def plan(experiment: Experiment) -> None:
    """Counts, cost, then every run below the one that it needs."""
    runs = graph.runs_of(experiment)
    states, costs = {run.path: run.state for run in runs}, cost.estimate(runs)
    print(f"{experiment.name}: {experiment.title}")
    for phase, noun in (("pretrain", "pre-training"), ("finetune", "fine-tuning")):
        found = [states[run.path].partition(" ")[0] for run in runs if run.phase == phase]
        if found:
            each = ", ".join(f"{found.count(state)} {state}" for state in ("finished", "unfinished", "missing"))
            print(f"{len(found)} {noun}{'s' * (len(found) > 1)}: {each}")
    print(costs.line())
    after: dict[Any, list[Run]] = {}
    for run in runs:
        after.setdefault(run.after, []).append(run)
    for run in after[None]:
        for depth, each in enumerate([run, *after.get(run.path, [])]):
            hours = costs.hours.get(str(each.path))
            mark = "  -> " if depth else ""
            print(f"{states[each.path]:<22}{'' if hours is None else cost.spell(hours):>9}  {mark}{each.phase} "
                  f"{each.name}")


def table_hint(experiment: Experiment, words: list[str]) -> str:
    module = "table" if experiment.figure.get("kind") in ("scores", "conflict") else "figure"
    return f"all finished; python -m analysis.{module} {' '.join(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0],
                                     epilog=f"experiments: {', '.join(names())}")
    parser.add_argument("words", nargs="*", metavar="key=value",
                        help="experiment=NAME or FILE.yaml; cluster=local (default) or slurm; action=run (default), "
                             "plan, status or cancel; cluster.KEY= for configs/cluster/*.yaml; the rest as for python "
                             "-m analysis.plan")
    words = parser.parse_args().words
    try:
        given = split_words(words)
        action = choose("action", given.pop("action", "run"), ACTIONS)
        name, changes = given.pop("cluster", "local"), take(given, "cluster.")
        settings, module = graph.settings(name, changes), backend(name)
        module.check(settings)
        words = [f"{key}={value}" for key, value in given.items()]
        experiment = graph.load(words)
        if action == "plan":
            plan(experiment)
        else:
            getattr(module, action)(experiment, settings)
        if action == "run" and all(graph.finished(run.path) for run in graph.runs_of(experiment)):
            print(table_hint(experiment, words))
        sys.stdout.flush()
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, OSError) as error:
        stop(f"error: {error}", 2)
    except Interrupted as signal:
        stop(str(signal), signal.exit_code)
    except KeyboardInterrupt:
        stop("interrupted; the same command continues", 130)


def stop(line: str, code: int) -> None:
    print(line, file=sys.stderr, flush=True)
    sys.exit(code)


if __name__ == "__main__":
    main()

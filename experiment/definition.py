"""Experiments: configs/experiment/<name>.yaml -> the exact list of its runs, each with its command
and directory.

    methods: [diayn, {label: AMPED without surgery, agent: amped, surgery: sum}]   an agent, or words for the scripts
    grid: {domain: tree_maze, skill_dim: [5, 10], seed: [1, 2]}                    every combination; or a list of grids
    preset: cpu, or {name: cpu, num_train_frames: 1250000}                         the size; preset= replaces all of it
    finetune: {task: all}                                                          optional: fine-tunings after each run
    figure: {kind: ..., ...}                                                       how to show them; optional: a table

A method's list, seed: [1, 2, 3], leaves it those points of the grid; its `finetune` holds words for
finetune.py alone. Methods that differ in nothing but those share their pre-trainings.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from experiment.asked import check as check_asked
from experiment.labels import label
from experiment.runs import Run, as_word, finetuning, pretraining, tasks, tasks_of
from experiment.shapes import SHAPES, as_list
from run.cli import own
from run.cli.guard import one_line
from run.cli.words import nearest, parse_value
from run.directory import RunDirectory
from utils import UserError, choose

KEYS, OPTIONAL = ("title", "preset", "methods", "grid"), ("figure", "finetune")
# Kinds of figures that analysis.table makes; the others are of mazes (analysis.figure).
SCORE_KINDS = ("scores", "conflict")
OF_ONE_PHASE = ("num_train_frames", "snapshots")  # what both phases have, each its own

Grid = dict[str, list[str]]
Words = dict[str, str]


class Method(NamedTuple):
    words: Words
    finetune: Words
    only: Grid  # the points of the grid at which it runs


class Experiment(NamedTuple):
    name: str
    title: str
    runs: list[Run]  # pre-trainings
    finetunings: list[Run]
    figure: dict[str, Any]


# ------------------------------------------------------------------------------------------ reading


def names() -> list[str]:
    return list(own.yamls("experiment"))


def read(name: str) -> dict[str, Any]:
    """One of configs/experiment, or a yaml file of the user's own."""
    path = Path(name) if name.endswith(".yaml") else own.yamls("experiment").get(name)
    if path is None or not path.exists():
        raise UserError(
            f"experiment={name} is not known; choose from {', '.join(names())}, or give a FILE.yaml"
            + nearest(name, names())
        )
    try:
        found = yaml.safe_load(path.read_text())
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(
            f"{path} cannot be read: {' '.join(str(error).split())}; give plain yaml as in "
            "configs/experiment"
        ) from error
    if not isinstance(found, dict) or not set(KEYS) <= set(found) <= {*KEYS, *OPTIONAL}:
        raise UserError(
            f"{path} must have the keys {', '.join(KEYS)}, may have {', '.join(OPTIONAL)}, and no others"
        )
    for key, (words, fits) in SHAPES.items():
        if key in found and not fits(found[key]):
            raise UserError(f"{path}: {key} is {words}, and nothing else")
    return {"figure": {"kind": "scores"}, **found}


def split_words(words: list[str]) -> Words:
    given = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key or not value:
            raise UserError(f"{word} is not key=value, such as seed=1")
        if key in given:
            raise UserError(f"{key}= is given twice; give it once")
        given[key] = value
    return given


def listed(value: str) -> list[str]:
    """The values of a key of the command line, each once: 1,2,3 or [1,2,3]."""
    if value.startswith("[") and value.endswith("]"):
        value = value[1:-1]
    return list(dict.fromkeys(each.strip() for each in value.split(",")))


def take(given: Words, prefix: str) -> Words:
    """Move the words that begin with the prefix out of `given`; they are returned without it."""
    return {key[len(prefix) :]: given.pop(key) for key in list(given) if key.startswith(prefix)}


def make_method(entry: Any) -> tuple[str, Method]:
    entry = {"agent": entry} if isinstance(entry, str) else dict(entry)
    if "agent" not in entry:
        raise UserError(f"method {entry} has no agent")
    name, tuned = entry.pop("label", entry["agent"]), entry.pop("finetune", {})
    only = {
        key: [as_word(v) for v in entry.pop(key)]
        for key in list(entry)
        if isinstance(entry[key], list)
    }
    return name, Method(
        {k: as_word(v) for k, v in entry.items()}, {k: as_word(v) for k, v in tuned.items()}, only
    )


def make_methods(entries: list, chosen: str | None) -> dict[str, Method]:
    """The methods by their names. `chosen` picks some of them by name, label or agent, or brings
    agents that are not in the list."""
    methods = dict(map(make_method, entries))
    if chosen is None:
        return methods
    known: dict[str, str] = {}
    for name, method in methods.items():
        if len(method.words) == 1:  # nothing but its agent, which then stands for it too
            known[method.words["agent"].lower()] = name
    for name in methods:  # a name of its own goes before the agent of another method
        known |= {name.lower(): name, label(name).lower(): name}
    picked = [known.get(name.lower(), name) for name in listed(chosen)]
    return {name: methods.get(name, Method({"agent": name}, {}, {})) for name in picked}


def make_grids(entries: Any, given: Words) -> list[Grid]:
    """The grids, with values of the command line in place of a key's own. Where several grids
    differ in a key, it picks among them instead: domain=tree_maze leaves the grid of that maze."""
    grids = [
        {key: list(dict.fromkeys(map(as_word, as_list(values)))) for key, values in entry.items()}
        for entry in as_list(entries)
    ]
    keys = [key for key in given if any(key in grid for grid in grids)]
    known = {key: {value for grid in grids for value in grid.get(key, [])} for key in keys}
    # Keys that may pick among the grids come first.
    for key in sorted(keys, key=lambda key: not set(listed(given[key])) <= known[key]):
        values = listed(given[key])
        own = [grid.get(key, []) for grid in grids]
        if all(each == own[0] for each in own):
            grids = [{**grid, key: values} for grid in grids]
            continue
        kept = [{**grid, key: [v for v in grid.get(key, []) if v in values]} for grid in grids]
        choices = list(dict.fromkeys(itertools.chain(*own)))
        if missing := [value for value in values if value not in choices]:
            raise UserError(
                f"{key}={','.join(missing)} is in no grid; choose from {', '.join(choices)}"
            )
        grids = [grid for grid in kept if grid[key]]
    return grids


# ----------------------------------------------------------------------------------------- the runs


class Plan(NamedTuple):
    """What makes the runs: the methods, the points of the grid, the experiment's own words for
    pre-trainings (`size`, which a method's words replace), and the words of all runs, of
    pre-trainings and of fine-tunings. Without tasks there are no fine-tunings."""

    methods: dict[str, Method]
    points: list[Words]
    size: Words
    shared: Words
    pretrain: Words
    finetune: Words
    tasks: list[str]


def make_plan(found: dict[str, Any], given: Words) -> Plan:
    methods = make_methods(found["methods"], given.pop("methods", None))
    if "seed" in given:  # the user's own stand for every method
        methods = {
            name: method._replace(
                only={key: values for key, values in method.only.items() if key != "seed"}
            )
            for name, method in methods.items()
        }
    before, after, wanted = take(given, "pretrain."), take(given, "finetune."), []
    if "finetune" in found:
        tuned = {key: as_word(value) for key, value in found["finetune"].items() if key != "task"}
        after, wanted = (
            {**tuned, **after},
            make_tasks(found["finetune"]["task"], given.pop("task", None)),
        )
        for key in OF_ONE_PHASE:
            if key in given:
                raise UserError(
                    f"{key}= means something else in each phase; give pretrain.{key}= or finetune.{key}="
                )
    grids = make_grids(found["grid"], given)
    points = [
        dict(zip(grid, values, strict=True))
        for grid in grids
        for values in itertools.product(*grid.values())
    ]
    size = dict(found["preset"]) if isinstance(found["preset"], dict) else {"name": found["preset"]}
    preset = size.pop("name")
    if "preset" in given:  # another preset has another size
        preset, size = given.pop("preset"), {}
    sizes = {key: as_word(value) for key, value in size.items()}
    keys = {key for grid in grids for key in grid}
    shared = {"preset": preset, **{key: value for key, value in given.items() if key not in keys}}
    return Plan(methods, points, sizes, shared, before, after, wanted)


def make_tasks(entry: Any, given: str | None) -> list[str]:
    found = listed(given) if given else list(tasks()) if entry == "all" else as_list(entry)
    return [choose("task", task, tuple(tasks())) for task in found]


def make_runs(plan: Plan) -> tuple[list[Run], list[Run]]:
    """Pre-trainings, and the fine-tunings after them, in the order of the grid."""
    before: dict[Path, Run] = {}
    after: dict[Path, Run] = {}
    for point, (name, method) in itertools.product(plan.points, plan.methods.items()):
        if any(point.get(key) not in values for key, values in method.only.items()):
            continue
        run = pretraining(
            name, point, {**point, **plan.size, **method.words, **plan.shared, **plan.pretrain}
        )
        source: Run | None = None  # what the fine-tunings start from
        if run.config["agent"]["objective"] is None:
            pass  # DDPG has nothing to pre-train: fine-tuning is all it does
        elif plan.tasks:
            source = before.setdefault(run.path, run)
        else:
            keep(before, run)
        own = {key: value for key, value in point.items() if key != "domain"}
        for task in (task for task in tasks_of(point["domain"]) if task in plan.tasks):
            words = {
                **own,
                "task": task,
                **method.words,
                **plan.shared,
                **plan.finetune,
                **method.finetune,
            }
            keep(after, finetuning(name, {"task": task, **own}, words, source))
    return list(before.values()), list(after.values())


def keep(runs: dict[Path, Run], run: Run) -> None:
    if run.path in runs:
        raise UserError(
            f"{runs[run.path].name} and {run.name} would be the same run; change or drop one"
        )
    runs[run.path] = run


def load(words: list[str], *, run_here: bool = True) -> Experiment:
    """experiment=NAME and any other key=value. A key of the grid replaces its values, methods= and
    task= pick, figure.* is for the drawing, pretrain.* and finetune.* for the runs of one phase;
    everything else goes to every run.

    run_here=False: unfinished runs may be of another device or thread count than this process has.
    """
    given = split_words(words)
    if "experiment" not in given:
        raise UserError(f"experiment= is missing; choose from {', '.join(names())}")
    name = given.pop("experiment")
    found = read(name)
    if "agent" in given:
        raise UserError("agent= is what the methods differ in; give methods=AGENT,AGENT")
    drawn = {
        key: parse_value(f"figure.{key}", value) for key, value in take(given, "figure.").items()
    }
    figure = {**found["figure"], **drawn}
    plan = make_plan(found, given)
    check_asked(figure, {**dict(map(make_method, found["methods"])), **plan.methods})
    try:
        runs, finetunings = make_runs(plan)
    except (HydraException, OmegaConfBaseException) as error:
        keys = {key for point in plan.points for key in point}
        line = re.sub(
            "--help lists the keys and groups",
            "python pretrain.py --help lists them; "
            + (
                f"{name} itself has methods, {', '.join(sorted(keys))} and figure.{{{','.join(found['figure'])}}}"
            ),
            one_line(error),
        )
        raise UserError(line) from error
    if not runs and not finetunings:
        raise UserError(
            f"experiment={name} has no runs with {' '.join(words)}; its methods are "
            f"{', '.join(plan.methods)}"
        )
    for directory in (RunDirectory(run.path, run.config) for run in runs):
        if run_here or directory.finished:
            directory.check()
    return Experiment(Path(name).stem, found["title"], runs, finetunings, figure)

"""A figure of the paper by one command, from the training to the picture.

    python -m analysis.figure experiment=fig_tree6 [key=value ...] (--help)

Trains what is missing as ordinary runs of pretrain.py, several at a time; then measures and draws.
The same command again continues, and trains and measures nothing twice.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from analysis.maze.episodes import load as load_trained
from analysis.maze.episodes import maze_domains
from analysis.maze.measure import KEY, MINE_STEPS, write_rows
from analysis.maze.pictures import EPISODES, draw_figure, draw_paths, small_print, trajectories
from analysis.maze.rows import BOUNDS, Measured, Target, measure_all
from analysis.maze.tables import NAMES, draw_bars, markdown, screen
from analysis.plan import plan
from experiment.definition import SCORE_KINDS, Experiment, load, names
from experiment.runs import Run, compose, spell
from run.cli import own
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.pool import Job, JobPool, default_workers
from run.pretraining import pretrain
from utils import UserError, choose, write_text

# Each kind of figure, and the keys that it has.
KINDS: dict[str, set[str]] = {
    "skills": set(),
    "evolution": {"skill", "snapshots", "epochs"},
    "bars": {"measures", "bounds"},
    "table": {"measures", "bounds", "against_best"},
}


# ------------------------------------------------------------------------------- what is to be done


def check(experiment: Experiment) -> None:
    """Refuse what could not be drawn before anything is trained for it."""
    figure = experiment.figure
    if figure.get("kind") in SCORE_KINDS:
        raise UserError(
            f"{experiment.name} is not of mazes: python -m analysis.table experiment={experiment.name}"
        )
    kind = choose("figure.kind", figure.get("kind"), tuple(KINDS))
    if set(figure) != KINDS[kind] | {"kind"}:
        raise UserError(
            f"figure.kind={kind} has the keys {', '.join(sorted(KINDS[kind])) or 'kind only'}; given: "
            f"{', '.join(sorted(set(figure) - {'kind'})) or 'none'}"
        )
    for key, known in (("measures", NAMES), ("bounds", BOUNDS)):
        if not isinstance(figure.get(key, []), list):
            raise UserError(
                f"figure.{key}={figure[key]} is not valid: a list such as [{next(iter(known))}]"
            )
        for name in figure.get(key, []):
            choose(f"figure.{key}", name, tuple(known))
    if not isinstance(figure.get("against_best"), str | None):
        raise UserError(
            f"figure.against_best={figure['against_best']} is not valid: the label of a method, or null"
        )
    for run in experiment.runs:
        if (
            run.config["domain"]["name"] not in maze_domains()
            or run.config["learner"]["name"] != "ppo"
        ):
            raise UserError(
                f"{run.name}: these figures are of learner=ppo on domain={' or '.join(maze_domains())}"
            )
        if kind == "evolution":
            drawn_frames(run, figure)


def drawn_frames(run: Run, figure: dict[str, Any]) -> list[int]:
    """The snapshots that the figure shows."""
    if figure["kind"] != "evolution":
        return [run.config["num_train_frames"]]
    skills = range(run.config["skill_dim"])
    if type(figure["skill"]) is not int or figure["skill"] not in skills:
        raise UserError(
            f"figure.skill={figure['skill']}: {run.name} has skills {skills[0]} to {skills[-1]}; "
            "choose one of them"
        )
    if type(figure["epochs"]) is not int or figure["epochs"] < 1:
        raise UserError(
            f"figure.epochs={figure['epochs']} is not valid: a whole number of 1 or more"
        )
    frames = [frame for frame in run.config["snapshots"] if frame <= run.config["num_train_frames"]]
    if type(figure["snapshots"]) is not int or not 1 <= figure["snapshots"] <= len(frames):
        raise UserError(
            f"figure.snapshots={figure['snapshots']}: {run.name} has snapshots at {frames}; "
            f"give how many of them, 1 to {len(frames)}"
        )
    return frames[: figure["snapshots"]]


def group_of(run: Run) -> str:
    return ", ".join(spell({key: value for key, value in run.point.items() if key != "seed"}))


def epoch_of(run: Run, frame: int, figure: dict[str, Any]) -> str:
    """Epochs are parts of the preset's whole schedule, however much of it a run makes."""
    return f"epoch {frame * figure['epochs'] / run.config['preset']['ppo']['pretrain_frames']:g}"


def make_targets(experiment: Experiment) -> list[Target]:
    """Every snapshot that is drawn, then the bounds of each group."""
    figure, targets = experiment.figure, []
    bounds: dict[tuple[str, str], Target] = {}  # one for all runs of a group
    for run in experiment.runs:
        for frame in drawn_frames(run, figure):
            epoch = [epoch_of(run, frame, figure)] if figure["kind"] == "evolution" else []
            targets.append(Target(", ".join([run.label, *epoch]), group_of(run), run, frame))
        for bound in figure.get("bounds", []):
            bounds.setdefault(
                (group_of(run), bound), Target(BOUNDS[bound], group_of(run), run, 0, bound)
            )
    return targets + list(bounds.values())


# ----------------------------------------------------------------------------------------- training


def train(words: list[str]) -> None:
    """One run as `python pretrain.py` makes it, in a process of its own."""
    pretrain(compose(words), words, draw_paths=draw_paths)


def say_finished(job: Job) -> None:
    tqdm.write(f"finished: {job.run}")


def train_missing(experiment: Experiment, workers: int) -> None:
    """Nothing is returned: what is left afterwards is an experiment whose runs are all finished, or
    an error."""
    sizes = [run.config["num_train_frames"] for run in experiment.runs]
    jobs = [
        Job(run.name, train, (run.words,), size, run.path)
        for run, size in zip(experiment.runs, sizes, strict=True)
        if run.state != "finished"
    ]
    print(
        f"{experiment.name}: {len(sizes)} runs, {len(sizes) - len(jobs)} finished"
        + (f", {min(workers, len(jobs))} at a time" if jobs else ""),
        flush=True,
    )
    if not jobs:
        return
    with tqdm(
        total=sum(sizes),
        initial=sum(sizes) - sum(job.size for job in jobs),
        unit="frame",
        unit_scale=True,
        desc="training",
        disable=None,
        dynamic_ncols=True,
    ) as bar:
        pool = JobPool(jobs, workers, "each run is saved where it was", bar, say_finished)
        pool.run()
    if pool.failed:
        raise UserError(
            f"{'; '.join(pool.failed)}: not finished, so nothing is drawn; the same command continues them"
        )


# ------------------------------------------------------------------------------------------ drawing


def draw_skills(experiment: Experiment, measured: list[Measured], path: Path) -> None:
    """A panel per run: methods side by side, below each other what else differs."""
    runs, points = experiment.runs, []
    for run in runs:
        if run.point not in points:
            points.append(run.point)
    differ = [key for key in points[0] if any(point.get(key) != points[0][key] for point in points)]
    columns = len(runs) // len(points)
    panels = []
    for i, (run, each) in enumerate(zip(runs, measured, strict=True)):
        small = small_print(int(each.row["skills"]), each.value("coverage"), each.value("mi_grid"))
        panels.append(
            trajectories(load_trained(run.snapshot()), run.label if i < columns else "", small)
        )
    if len(points) > 1:
        names = [
            ", ".join(spell({key: point[key] for key in differ if key in point}))
            for point in points
        ]
        draw_figure(panels, path, columns=columns, rows=names)
    else:
        draw_figure(panels, path, columns=columns if columns <= 5 else -(-columns // 2))


def draw_evolution(experiment: Experiment, path: Path) -> None:
    """One skill of each run, in its own colour, at snapshot after snapshot."""
    figure, panels = experiment.figure, []
    for run in experiment.runs:
        for frame in drawn_frames(run, figure):
            panel = trajectories(
                load_trained(run.snapshot(frame)), epoch_of(run, frame, figure), f"{frame:,} frames"
            )
            chosen = panel.skill == figure["skill"]
            panels.append(panel._replace(paths=panel.paths[chosen], skill=panel.skill[chosen]))
    rows = [f"{run.label}, seed {run.config['seed']}" for run in experiment.runs]
    draw_figure(
        panels,
        path,
        columns=len(panels) // len(rows),
        rows=rows if len(rows) > 1 else None,
        legend=False,
    )


def make(experiment: Experiment, args: argparse.Namespace, out: Path) -> None:
    """All of it, in order: train, measure, draw, show."""
    table, picture = out / f"{experiment.name}.csv", out / f"{experiment.name}.png"
    first = experiment.runs[0]
    workers = args.workers or default_workers(first.config, first.device)
    train_missing(experiment, workers)
    options = argparse.Namespace(episodes=args.episodes, mine_steps=args.mine_steps, out=table)
    measured = measure_all(make_targets(experiment), options, workers)
    write_rows(table, {tuple(each.row[key] for key in KEY): each.row for each in measured}.values())
    kind = experiment.figure["kind"]
    if kind == "skills":
        draw_skills(experiment, measured, picture)
    elif kind == "evolution":
        draw_evolution(experiment, picture)
    else:
        draw_bars(measured, experiment.figure["measures"], picture)
    print(screen(measured))
    if kind == "table":
        sizes = (
            []
            if (args.episodes, args.mine_steps) == (EPISODES, MINE_STEPS)
            else ["--episodes", str(args.episodes), "--mine-steps", str(args.mine_steps)]
        )
        command = shlex.join(["python", "-m", "analysis.figure", *args.words, *sizes])
        write_text(
            out / f"{experiment.name}.md",
            markdown(measured, experiment.title, command, experiment.figure["against_best"]),
        )
        print(f"table: {out / f'{experiment.name}.md'}")
    print(f"rows: {table}\npicture: {picture}", flush=True)


def main() -> None:
    parser = Parser(
        description=__doc__.partition("\n")[0], epilog=f"experiments: {', '.join(names())}"
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="experiment=NAME or FILE.yaml; seed=1,2 and other keys of its grid; methods=AGENT,AGENT; "
        "figure.KEY=...; any key of pretrain.py, for every run (preset=paper, run_root=DIR)",
    )
    parser.add_argument(
        "--plan", action="store_true", help="only say what is finished and what would run"
    )
    parser.add_argument(
        "--workers", type=at_least(1), help="processes at a time (cores / num_threads)"
    )
    parser.add_argument(
        "--out", type=Path, help="directory for the picture and the tables (<run_root>/figures)"
    )
    parser.add_argument(
        "--episodes", type=at_least(2), default=EPISODES, help="measured, per skill (%(default)s)"
    )
    parser.add_argument(
        "--mine-steps", type=at_least(1), default=MINE_STEPS, help="of MINE (%(default)s)"
    )
    own.add_option(parser)
    args = parser.parse_intermixed_args()
    run_command(lambda: run(args))


def run(args: argparse.Namespace) -> None:
    own.use(args.config_dir)
    experiment = load(args.words)
    check(experiment)
    if args.plan:
        return plan(experiment)
    out = args.out or Path(experiment.runs[0].config["run_root"]) / "figures"
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    make(experiment, args, out)


if __name__ == "__main__":
    main()

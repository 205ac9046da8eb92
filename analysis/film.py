"""Pictures of behaviour: films of the skills of a snapshot, and a gallery of the tasks.

python -m analysis.film skills SNAPSHOT --out DIR
python -m analysis.film gallery --out FILE.png
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from tqdm import tqdm

import envs
from agent.policy import Policy, load_policy, snapshot_of
from agent.skills.sources import SkillSpace
from envs.render import Renderer
from run.build import make_env
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.evaluation import EVAL_SKILLS
from run.video import control_seconds, font, import_av, name_skill, pace, write_film, write_on
from utils import UserError, load_snapshot, stream_seed, write_atomic, write_text

STILLS = 9  # per skill: the columns of the paper's last figure
SHEET_TIMES = 24  # columns of the sheet
STEPS = 300  # of an episode that may be longer: by then a skill has shown itself
REGISTERED = re.compile(r"gymnasium:(envs\.maze:)?[\w/-]+")  # nothing foreign is imported
BLANK, GAP, INK = 255, 2, "black"

# The gallery's poses, so that the four tasks of a body can be told apart: metres above the model's
# own height (z), degrees for the rest. Only drawn, never simulated. Jaco needs none: its tasks
# differ in where the brick lies.
POSES: dict[str, dict[str, float]] = {
    "walker_stand": {},
    "walker_walk": {
        "rootz": -0.05,
        "right_hip": 30,
        "right_knee": -20,
        "left_hip": -15,
        "left_knee": -20,
        "left_ankle": -10,
    },
    "walker_run": {
        "rootz": 0.05,
        "rooty": 15,
        "right_hip": 85,
        "right_knee": -75,
        "left_hip": -10,
        "left_knee": -35,
        "left_ankle": -35,
    },
    "walker_flip": {
        "rootz": 0.1,
        "rooty": 165,
        "right_hip": 60,
        "right_knee": -95,
        "left_hip": 40,
        "left_knee": -70,
    },
    "quadruped_stand": {},
    "quadruped_walk": {
        "yaw_front_left": 25,
        "yaw_back_right": 25,
        "pitch_front_left": 25,
        "pitch_back_right": 25,
    },
    "quadruped_run": {
        "root_z": 0.15,
        "yaw_front_left": -35,
        "yaw_front_right": 35,
        "yaw_back_left": 35,
        "yaw_back_right": -35,
        "knee_front_left": 30,
        "knee_front_right": 30,
    },
    "quadruped_jump": {
        "root_z": 0.75,
        **{f"knee_{leg}": 45 for leg in ("front_left", "front_right", "back_left", "back_right")},
    },
}


class Take(NamedTuple):
    """One episode: its pictures by step, and its return."""

    frames: dict[int, np.ndarray]
    steps: int
    total: float


def play(
    env: envs.Env,
    policy: Policy,
    skill: np.ndarray,
    *,
    seed: int,
    limit: int,
    shots=(),
    renderer=None,
) -> Take:
    """The mean actions of one skill from the start that the seed names, drawn at the steps
    `shots`."""
    env.seed(seed)
    time_step, step, total, frames = env.reset(), 0, 0.0, {}
    while True:
        if step in shots:
            frames[step] = renderer.frame(env)
        if step == limit or time_step.last():
            return Take(frames, step, total)
        time_step = env.step(policy.act(time_step.observation, skill))
        step, total = step + 1, total + time_step.reward


def tile(pictures: list[np.ndarray], columns: int) -> np.ndarray:
    """Pictures of one size in rows with thin white lines between; missing ones at the end stay
    white."""
    height, width = pictures[0].shape[:2]
    rows = -(-len(pictures) // columns)
    sheet = np.full(
        (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), BLANK, np.uint8
    )
    for i, picture in enumerate(pictures):
        y, x = i // columns * (height + GAP), i % columns * (width + GAP)
        sheet[y : y + height, x : x + width] = picture
    return sheet


def save_png(path: Path, picture: np.ndarray | Image.Image) -> None:
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    write_atomic(path, lambda file: image.save(file, "PNG"))
    print(f"picture: {path}")


# ------------------------------------------------------------------------------------------- skills


def filmstrip(
    takes: dict[str, Take], times: list[int], size: int, title: str, clock
) -> Image.Image:
    """One row per skill, its name and return at the left; a state after the end of an episode stays
    white."""
    blank = np.full((size, size, 3), BLANK, np.uint8)
    sheet = tile([take.frames.get(t, blank) for take in takes.values() for t in times], len(times))
    letters = max(10, size // 10)
    head = 3 * letters + GAP
    labels = [name.split("\n") + [f"return {take.total:.1f}"] for name, take in takes.items()]
    left = int(max(font(letters).getlength(line) for lines in labels for line in lines)) + letters
    image = Image.new("RGB", (left + sheet.shape[1], head + sheet.shape[0]), "white")
    image.paste(Image.fromarray(sheet), (left, head))
    draw = ImageDraw.Draw(image)
    draw.text((letters // 2, letters // 4), title, INK, font(letters))
    for column, t in enumerate(times):
        draw.text(
            (left + column * (size + GAP) + size // 2, head - GAP),
            clock(t),
            INK,
            font(letters),
            anchor="md",
        )
    for row, lines in enumerate(labels):
        centre = (letters // 2, head + row * (size + GAP) + size // 2)
        draw.multiline_text(centre, "\n".join(lines), INK, font(letters), anchor="lm")
    return image


def save_sheet(out: Path, takes: dict[str, Take], steps: range, size: int, title: str) -> None:
    """The pictures as one sheet, a row per skill, for the sliders of the report: sheet.jpg, and what
    each picture is in sheet.json."""
    shown = steps[:: -(-len(steps) // SHEET_TIMES)]
    pictures = []
    for take in takes.values():
        last = next(iter(take.frames.values()))
        for step in shown:
            last = take.frames.get(step, last)
            pictures.append(last)
    image = Image.fromarray(tile(pictures, len(shown)))
    write_atomic(out / "sheet.jpg", lambda file: image.save(file, "JPEG", quality=80))
    names = [name.replace("\n", " ") for name in takes]
    told = {"title": title, "names": names, "steps": list(shown), "size": size, "gap": GAP}
    write_text(out / "sheet.json", json.dumps(told) + "\n")


def movie(takes: dict[str, Take], steps: range):
    """The skills side by side, near-square; an episode that ends early keeps its last picture."""
    last = {name: next(iter(take.frames.values())) for name, take in takes.items()}
    for step in steps:
        last.update(
            {name: take.frames[step] for name, take in takes.items() if step in take.frames}
        )
        named = [write_on(picture, name.partition("\n")[0]) for name, picture in last.items()]
        yield tile(named, math.ceil(math.sqrt(len(named))))


def choose_skills(space: SkillSpace, seed: int, only: list[int] | None) -> dict[str, np.ndarray]:
    """The words beside each picture, and the skill. Skills that cannot be counted are drawn as in
    the run's own evaluations."""
    panel = space.panel(np.random.default_rng(stream_seed(seed, "eval skills")), EVAL_SKILLS)
    shown = list(range(len(panel))) if only is None else list(dict.fromkeys(only))
    if wrong := [i for i in shown if not 0 <= i < len(panel)]:
        raise UserError(
            f"--only {wrong[0]}: this agent shows {len(panel)} skills; choose 0 to {len(panel) - 1}"
        )
    if space.one_hot:
        return {name_skill(panel[i]): panel[i] for i in shown}
    return {
        f"draw {i}\n{name_skill(panel[i])}" if space.dim else "no skill": panel[i] for i in shown
    }


def env_of(snapshot: str | Path, config: dict[str, Any], given: str | None) -> str:
    """The environment of the run. Where its name would import a module, the snapshot alone must
    not decide that: the user has to repeat the name as --env."""
    name = (
        config["task"]["env"] if config["phase"] == "finetune" else config["domain"]["primal_task"]
    )
    if given is None and name not in (*envs.TASKS, "dummy") and not REGISTERED.fullmatch(name):
        raise UserError(
            f"{snapshot} was trained on {name}, which would be imported; if you trust it: --env {name}"
        )
    return given or name


def film_skills(args: argparse.Namespace) -> dict[str, Take]:
    path = snapshot_of(args.snapshot)
    snapshot, policy = load_snapshot(path), load_policy(path)
    config, frame = snapshot["config"], snapshot["frame"]
    seed = config["seed"] if args.seed is None else args.seed
    # The start of the run's own evaluation at this frame: the pictures belong to that row of eval.csv.
    start = stream_seed(seed, "eval", frame)
    skills = choose_skills(
        SkillSpace(config["agent"]["skill_space"], config["skill_dim"]), seed, args.only
    )
    name = env_of(args.snapshot, config, args.env)
    env = make_env(name, start, config)
    make_directory(args.out)
    # One episode without pictures says how long they are, so that only what is shown is drawn.
    length = play(env, policy, next(iter(skills.values())), seed=start, limit=args.steps).steps
    every, fps = pace(env, config["action_repeat"])
    seconds = control_seconds(env)
    if not args.stills:
        import_av()  # its absence is told before anything is drawn
    times = [round(t) for t in np.linspace(0, length, STILLS)]
    steps = range(0) if args.stills else range(0, length + 1, every)
    with Renderer(args.size, args.size) as renderer:
        takes = {
            name: play(
                env,
                policy,
                skill,
                seed=start,
                limit=args.steps,
                shots={*times, *steps},
                renderer=renderer,
            )
            for name, skill in tqdm(skills.items(), desc="skills", disable=None)
        }
    env.close()
    title = f"{snapshot['agent']}, {name}, frame {frame:,}, seed {seed}"
    save_png(
        args.out / "filmstrip.png",
        filmstrip(
            takes,
            times,
            args.size,
            title,
            lambda t: f"{t * seconds * config['action_repeat']:.1f} s" if seconds else f"step {t}",
        ),
    )
    if not args.stills:
        save_sheet(args.out, takes, steps, args.size, title)
        bar = tqdm(movie(takes, steps), total=len(steps), desc="film", disable=None)
        write_film(args.out / "skills.mp4", bar, fps)
        print(f"film: {args.out / 'skills.mp4'}")
    return takes


# ------------------------------------------------------------------------------------------ gallery


def pose(physics, joints: dict[str, float]) -> None:
    """Put the body into its model's own pose, changed as POSES says."""
    model, data = physics.model.ptr, physics.data.ptr
    data.qpos[:] = model.qpos0
    for name, value in joints.items():
        address = model.joint(name.removesuffix("_z")).qposadr[0]
        if name.endswith("_z"):  # of a free joint, whose positions begin with x, y, z
            address += 2
        data.qpos[address] += value if name.endswith("z") else np.deg2rad(value)
    physics.forward()


def gallery(names: list[str], size: int, seed: int) -> np.ndarray:
    """The tasks' pictures with their names, four in a row, with shadows: they show what touches the
    ground."""
    pictures = []
    with Renderer(size, size, shadows=True) as renderer:
        for name in tqdm(names, desc="gallery", disable=None):
            env = make_env(name, seed, {"obs_type": "states", "action_repeat": 1})
            env.reset()
            if name in POSES:
                pose(env.unwrapped.physics, POSES[name])
            pictures.append(write_on(renderer.frame(env), bottom=name))
            env.close()
    return tile(pictures, min(4, len(pictures)))


# ------------------------------------------------------------------------------------- command line


def make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot write into {path}: {error.strerror}; give --out another place"
        ) from error


def film_tasks(args: argparse.Namespace) -> None:
    make_directory(args.out.parent)
    save_png(args.out, gallery(args.env or list(envs.TASKS), args.size, args.seed))


def main() -> None:
    parser = Parser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    skills = commands.add_parser(
        "skills",
        help="every skill of a snapshot from one and the same start",
        description="Writes filmstrip.png and skills.mp4: every skill from one start.",
    )
    skills.add_argument(
        "snapshot",
        help="a snapshot_<frame>.pt, a run directory, or zoo:NAME (python -m analysis.zoo list)",
    )
    skills.add_argument("--out", type=Path, required=True, help="directory to write into")
    skills.add_argument(
        "--steps", type=at_least(1), default=STEPS, help="at most so many per episode (%(default)s)"
    )
    skills.add_argument(
        "--seed",
        type=at_least(0, 2**32 - 1),
        help="of the start and of drawn skills (the run's own)",
    )
    skills.add_argument(
        "--size",
        type=at_least(1, 4096),
        default=128,
        help="of one picture, in pixels (%(default)s)",
    )
    skills.add_argument(
        "--only", type=at_least(0), nargs="+", metavar="K", help="these skills only, counted from 0"
    )
    skills.add_argument(
        "--env",
        metavar="NAME",
        help="of a run on an environment that is imported (module:function)",
    )
    skills.add_argument("--stills", action="store_true", help="only the filmstrip")
    tasks = commands.add_parser("gallery", help="the twelve tasks, or others, in one picture")
    tasks.add_argument(
        "--env", nargs="+", metavar="NAME", help="these environments, such as gymnasium:Pendulum-v1"
    )
    tasks.add_argument("--out", type=Path, required=True, help="picture to write (.png)")
    tasks.add_argument(
        "--size",
        type=at_least(1, 4096),
        default=240,
        help="of one picture, in pixels (%(default)s)",
    )
    tasks.add_argument(
        "--seed",
        type=at_least(0, 2**32 - 1),
        default=2,
        help="of jaco's start (%(default)s: the hand clear of the brick)",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)  # one row at a time, and sums in one order
    run_command(
        lambda: film_skills(args) if args.command == "skills" else film_tasks(args), ValueError
    )


if __name__ == "__main__":
    main()

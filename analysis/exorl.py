"""Data of a pre-training to and from ExORL's episodes.

python -m analysis.exorl export runs/pretrain/walker/amped/cpu/seed_1 OUT_DIR [--task walker_run]
python -m analysis.exorl import EPISODE_DIR OUT.pt --task walker_run

An episode of L steps is a file episode_<number>_<L>.npz with arrays of L + 1 rows: observation, action,
reward, discount, skill where there are skills, physics where it was kept. Row i holds what led to
observation i; the first row has a zero action and reward. `import` writes a replay.pt, which
`finetune.py data=relabelled data.file=OUT.pt` reads; where the episodes hold physics, it has the rewards
of every task of the domain, as dm_control computes them from that physics.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import torch

import envs
from run import data
from run.cli.console import Parser, leave_out
from run.cli.guard import run_command
from run.files import LIMIT, Damaged, read_bytes
from utils import UserError, choose, plural, save_torch, write_atomic

NEEDED = ("observation", "action", "reward", "discount")
MORE = ("skill", "physics")


def episodes(found: data.Data) -> list[slice]:
    """Where the episodes of the data lie: each from its first row to its last."""
    starts = np.flatnonzero(np.diff(found.columns["episode_step"], prepend=-2) != 1)
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(found)]) if b - a > 1]


def as_episode(found: data.Data, rewards: np.ndarray, rows: slice) -> dict[str, np.ndarray]:
    """One episode with its dummy first row."""
    steps = slice(rows.start, rows.stop - 1)  # rows out of which a step was taken
    columns = found.columns

    def led_to(values: np.ndarray, first: float) -> np.ndarray:
        start = np.full((1, *values.shape[1:]), first, values.dtype)
        return np.concatenate([start, values[steps]])

    episode = {
        "observation": columns["obs"][rows],
        "action": led_to(columns["action"], 0),
        "reward": led_to(rewards, 0),
        "discount": led_to(columns["discount"], 1),
    }
    if columns["skill"].shape[1]:
        skills = columns["skill"].astype(np.float32)
        episode["skill"] = np.concatenate([skills[steps][:1], skills[steps]])
    if "physics" in columns:
        episode["physics"] = columns["physics"][rows]
    return episode


def export(run: Path, out: Path, task: str | None) -> None:
    found = data.load(run / data.FILE if run.is_dir() else run)
    rewards = found.rewards(task or found.env)
    out.mkdir(parents=True, exist_ok=True)
    parts = episodes(found)
    for number, rows in enumerate(parts):
        episode = as_episode(found, rewards, rows)
        name = f"episode_{number:06d}_{rows.stop - rows.start - 1}.npz"
        write_atomic(out / name, lambda file, e=episode: np.savez_compressed(file, **e))
    print(f"{plural(len(parts), 'episode')} with the rewards of {task or found.env}: {out}")


# ------------------------------------------------------------------------------------------- import


def read_episode(path: Path) -> dict[str, np.ndarray]:
    """The columns of our replay from one file; Damaged where it is no episode."""
    try:
        content = io.BytesIO(read_bytes(path))
        with zipfile.ZipFile(content) as archive:  # what is small may say that it becomes huge
            if sum(part.file_size for part in archive.infolist()) > LIMIT:
                raise Damaged(f"it unpacks to more than {LIMIT:,} bytes")
        with np.load(content, allow_pickle=False) as file:
            known = [name for name in (*NEEDED, *MORE) if name in file.files]
            episode = {name: np.asarray(file[name]) for name in known}
    except Damaged:
        raise
    except Exception as error:  # of zip, zlib and numpy, whose list is long
        raise Damaged(f"it cannot be read as an episode ({type(error).__name__})") from error
    if missing := [name for name in NEEDED if name not in episode]:
        raise Damaged(f"it has no {', '.join(missing)}")
    for name, array in episode.items():
        if array.dtype.kind not in "fiub":
            raise Damaged(f"{name} holds {array.dtype}, no numbers")
    lengths = {len(array) if array.ndim else 0 for array in episode.values()}
    if len(lengths) != 1 or lengths.pop() < 2:
        raise Damaged("its arrays differ in length, or have one row")
    rows = as_rows(episode)
    if problem := data.wrong_columns(rows, 0):
        raise Damaged(problem)
    return rows


def as_rows(episode: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of our replay: row i holds what was done at observation i."""
    count = len(episode["observation"])

    def done_at(name: str) -> np.ndarray:
        values = np.asarray(episode[name], np.float32).reshape(count, -1)
        return np.concatenate([values[1:], np.zeros_like(values[:1])])

    columns = {
        "obs": np.asarray(episode["observation"], np.float32).reshape(count, -1),
        "action": done_at("action"),
        "reward": done_at("reward"),
        "discount": done_at("discount"),
        "skill": done_at("skill") if "skill" in episode else np.zeros((count, 0), np.float32),
        "episode_step": np.arange(count, dtype=np.int32),
    }
    if "physics" in episode:
        columns["physics"] = np.asarray(episode["physics"], np.float64).reshape(count, -1)
    return columns


def import_episodes(directory: Path, out: Path, task: str) -> None:
    names = [p for p in directory.glob("*.npz") if re.fullmatch(r"episode_\d+_\d+", p.stem)]
    if not names:
        raise UserError(f"no episode_<number>_<length>.npz in {directory}")
    env = envs.make(task, seed=0)
    parts = []
    for path in sorted(names):
        try:
            rows = read_episode(path)
        except Damaged as error:
            leave_out(f"{path}: {error}")
            continue
        if rows["obs"].shape[1] != env.obs_dim or rows["action"].shape[1] != env.action_dim:
            raise UserError(f"{path} is not of {task}: its observations or actions differ in size")
        if "physics" in rows and env.tasks:
            paid = [data.by_physics(rows["physics"], each) for each in env.tasks]
            rows["task_rewards"] = np.concatenate(paid, 1)
        parts.append(rows)
    if not parts:
        raise UserError(f"{directory} has no episode that can be read")
    if len({tuple((name, rows[name].shape[1:]) for name in rows) for rows in parts}) != 1:
        raise UserError(f"the episodes of {directory} hold different arrays; give one kind")
    columns = {name: np.concatenate([rows[name] for rows in parts]) for name in parts[0]}
    one_hot = bool(columns["skill"].size) and bool(np.isin(columns["skill"], (0, 1)).all())
    save_torch(
        out,
        {
            "kind": "replay",
            "format": 1,
            "columns": {name: torch.from_numpy(array) for name, array in columns.items()},
            "tasks": list(env.tasks) if "task_rewards" in columns else [],
            "env": task,
            "one_hot": one_hot,
            "frame": len(columns["obs"]) - len(parts),
            "action_repeat": 1,
        },
    )
    print(f"{plural(len(parts), 'episode')}, {len(columns['obs']) - len(parts):,} steps: {out}")


def main() -> None:
    summary, _, details = __doc__.partition("\n")
    parser = Parser(description=summary, epilog=details)
    commands = parser.add_subparsers(dest="command", required=True)
    out = commands.add_parser("export", help="replay.pt of a run -> episodes")
    out.add_argument("run", type=Path, help="directory of a pre-training, or a replay.pt")
    out.add_argument("out", type=Path)
    out.add_argument("--task", help="whose rewards; by default those of the pre-training")
    back = commands.add_parser("import", help="episodes -> replay.pt")
    back.add_argument("directory", type=Path)
    back.add_argument("out", type=Path)
    back.add_argument("--task", required=True, help="the task whose rewards the episodes hold")
    args = parser.parse_args()
    if args.command == "export":
        run_command(lambda: export(args.run, args.out, args.task))
    else:
        known = tuple(envs.TASKS)
        run_command(
            lambda: import_episodes(args.directory, args.out, choose("--task", args.task, known))
        )


if __name__ == "__main__":
    main()

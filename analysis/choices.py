"""What a skill selector chose, as a picture: python -m analysis.choices RUN_DIR ..."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from run.cli.console import Parser, leave_out, printable
from run.cli.guard import run_command
from run.files import Damaged, read_bytes, read_config
from utils import Unreadable, UserError, first_line, plural, write_atomic

BINS = 100  # of time, at most
MOST = 10**6  # skills
BROKEN = (Unreadable, zipfile.BadZipFile, zlib.error, NotImplementedError, MemoryError)


def shares(choices: np.ndarray, skills: int) -> np.ndarray:
    """How often each skill was chosen as an episode goes on: skill indices (episodes, T), -1 past
    the end, become shares (skills, bins)."""
    bins = min(BINS, choices.shape[1])
    counts = np.zeros((skills, bins))
    episode, step = np.nonzero(choices >= 0)
    np.add.at(counts, (choices[episode, step], step * bins // choices.shape[1]), 1)
    return counts / np.maximum(counts.sum(0), 1)


def load_choices(run: Path, name: str) -> np.ndarray:
    """Skill indices (episodes, T) that a selector chose, -1 past an episode's end. An array of
    objects is refused and not unpickled, since that could run code."""
    try:
        with np.load(io.BytesIO(read_bytes(run / "choices.npz")), allow_pickle=False) as stored:
            found = stored[name]
        if found.ndim != 2 or found.dtype.kind != "i" or (found.size and found.max() > MOST):
            raise ValueError(f"{name} is no table of skills")
        return found
    except (OSError, ValueError, KeyError, TypeError, EOFError, *BROKEN) as error:
        raise Unreadable(
            f"{run / 'choices.npz'} cannot be read ({first_line(error)}); run that fine-tuning again"
        ) from error


def draw(run: Path) -> Path:
    """choices.png beside choices.npz: the last training episodes, and those of the last
    evaluation."""
    try:
        skills = (read_config(run) or {}).get("skill_dim")
    except Damaged as error:
        raise Unreadable(f"{run}/{error}") from error
    if not skills:
        raise Unreadable(f"{run} has no config.yaml of a run with skills")
    played = {name: load_choices(run, name) for name in ("training", "evaluation")}
    if any(choices.size and choices.max() >= skills for choices in played.values()):
        raise Unreadable(f"{run / 'choices.npz'} has more skills than config.yaml ({skills})")
    heat = {name: shares(choices, skills) for name, choices in played.items() if choices.size}
    highest = max((each.max() for each in heat.values()), default=1)
    figure, axes = plt.subplots(
        2, 1, figsize=(8, 1.6 + 0.28 * 2 * max(skills, 4)), layout="constrained"
    )
    for axis, (name, choices) in zip(axes, played.items(), strict=True):
        rule = "with epsilon" if name == "training" else "greedy"
        axis.set_title(f"{name}: last {plural(len(choices), 'episode')}, {rule}", fontsize=10)
        if choices.size:
            image = axis.imshow(
                heat[name],
                aspect="auto",
                origin="lower",
                vmin=0,
                vmax=highest,
                cmap="magma",
                interpolation="nearest",
                extent=(0, choices.shape[1], -0.5, skills - 0.5),
            )
            figure.colorbar(image, ax=axis, label="share of choices")
        axis.set_ylabel("skill")
        axis.yaxis.get_major_locator().set_params(integer=True)
    axes[-1].set_xlabel("step of the episode")
    path = run / "choices.png"
    write_atomic(path, lambda file: figure.savefig(file, format="png", dpi=110))
    plt.close(figure)
    return path


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="directories of fine-tunings with skills=selector"
    )
    args = parser.parse_args()
    run_command(lambda: draw_all(args.runs))


def draw_all(runs: list[Path]) -> None:
    if missing := [str(run) for run in runs if not (run / "choices.npz").exists()]:
        raise UserError(
            f"no choices.npz in {', '.join(missing)}; give finished runs of skills=selector"
        )
    for run in runs:
        try:
            print(f"picture: {printable(draw(run))}")
        except Unreadable as error:
            if len(runs) == 1:
                raise
            leave_out(error)


if __name__ == "__main__":
    main()

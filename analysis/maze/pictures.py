"""Trajectories of skills in a maze, as in the paper: one colour per skill, walls in black."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.maze.episodes import Trained, play
from envs.maze.geometry import geometry, walls
from envs.maze.measures import coverage, mi_grid
from utils import stream_seed, write_atomic

EPISODES = 100  # of each skill, that the numbers below a picture are of
TRAJECTORIES = 20  # of each skill, that are drawn
START = (0.0, -0.5)  # where they all begin, as in EDL's notebooks


class Panel(NamedTuple):
    """One maze with its trajectories."""

    paths: np.ndarray  # (E, T, 2)
    skill: np.ndarray  # (E,) numbers from 0
    maze: str
    title: str = ""
    small: str = ""
    start: tuple[float, float] | None = None  # where all of them begin

    @property
    def skills(self) -> int:
        return int(self.skill.max()) + 1


def colours(n: int) -> np.ndarray:
    """A colour (n, 3) for each skill. EDL's own, but for more than 20 skills, where its smooth map
    has a yellow that cannot be seen on white."""
    from matplotlib import colormaps

    if n <= 20:
        listed: Any = colormaps["tab10" if n <= 10 else "tab20"]
        return np.array(listed.colors[:n])
    return colormaps["turbo"](np.linspace(0.03, 0.97, n))[:, :3]


def draw_panel(axis, panel: Panel) -> None:
    from matplotlib.collections import LineCollection

    # The first trajectory of every skill, then the second of every skill, and so on: drawn by
    # turns, no skill covers the others.
    order = np.argsort(panel.skill, kind="stable")
    turn = np.arange(len(order)) - np.searchsorted(panel.skill[order], panel.skill[order])
    shown = order[np.argsort(turn, kind="stable")][: np.count_nonzero(turn < TRAJECTORIES)]
    axis.add_collection(
        LineCollection(
            list(panel.paths[shown]),
            colors=colours(panel.skills)[panel.skill[shown]],
            alpha=0.2,
            linewidths=2,
        )
    )
    axis.add_collection(
        LineCollection(
            list(walls(panel.maze)),
            colors="black",
            linewidths=2,
            capstyle="projecting",
            clip_on=False,
        )
    )
    if panel.start is not None:
        axis.plot(*panel.start, "o", color="black", markersize=5)  # EDL: 8, in a panel of 5 inches
    (left, bottom), (right, top) = geometry(panel.maze).low - 0.05, geometry(panel.maze).high + 0.05
    axis.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axis.axis("off")
    for text, size, above in ((panel.title, 11, 13), (panel.small, 7.5, 3)):
        axis.annotate(
            text, (0.5, 1), (0, above), "axes fraction", "offset points", ha="center", fontsize=size
        )


def draw_figure(
    panels: list[Panel],
    path: Path,
    *,
    columns: int | None = None,
    rows: list[str] | None = None,
    legend: bool = True,
) -> None:
    """Panels side by side, `rows` named at the left; below them the colours of the skills, where
    all panels have the same ones."""
    from matplotlib.figure import Figure  # without pyplot: no window system, nothing to close

    columns = columns or (len(panels) if len(panels) <= 3 else math.ceil(math.sqrt(len(panels))))
    count, n = math.ceil(len(panels) / columns), panels[0].skills
    sides = np.array(
        [geometry(panel.maze).high - geometry(panel.maze).low + 0.1 for panel in panels]
    )
    steep = float((sides[:, 1] / sides[:, 0]).max())
    # all of these are inches
    wide, gap, head = min(3.2, 2.6 / math.sqrt(steep)), 0.12, 0.45
    foot = 0.4 if legend and all(panel.skills == n for panel in panels) else 0.0
    tall, side = wide * steep, 0.3 if rows else gap
    width, height = side + columns * (wide + gap), count * (tall + head) + gap + foot
    figure = Figure(figsize=(width, height), dpi=100)
    for i, panel in enumerate(panels):
        left = side + i % columns * (wide + gap)
        bottom = height - (i // columns + 1) * (tall + head)
        draw_panel(
            figure.add_axes((left / width, bottom / height, wide / width, tall / height)), panel
        )
        if rows and i % columns == 0:
            figure.text(
                0.15 / width,
                (bottom + tall / 2) / height,
                rows[i // columns],
                rotation=90,
                ha="center",
                va="center",
                fontsize=11,
            )
    if foot:
        draw_legend(figure, n)
    save_picture(figure, path)


def draw_legend(figure, n: int) -> None:
    width, height = figure.get_size_inches()
    strip = min(0.26 * n, width - 0.8)
    axis = figure.add_axes(
        ((width - strip) / 2 / width, 0.22 / height, strip / width, 0.12 / height)
    )
    axis.imshow(colours(n)[None], aspect="auto")
    axis.set(yticks=[], xticks=range(0, n, 1 if n <= 20 else 5))
    axis.tick_params(length=0, pad=2, labelsize=7)
    axis.set_frame_on(False)
    axis.text(-0.7, 0, "skill", ha="right", va="center", fontsize=7.5)


def save_picture(figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    # 256 colours take a third of the bytes, and the eye sees no difference
    image = image.quantize(256, dither=Image.Dither.NONE)
    write_atomic(path, lambda file: image.save(file, "PNG", optimize=True))


def draw_paths(
    paths: np.ndarray, skill: np.ndarray, maze: str, path: Path, *, title: str = ""
) -> None:
    """A picture of episodes that were played already: states (E, T, 2) under skills numbered (E,),
    of which the first TRAJECTORIES of each skill are drawn."""
    draw_figure([Panel(paths, skill, maze, title)], path)


# -------------------------------------------------------------------------------- of snapshots


def small_print(skills: int, coverage: float, mi: float) -> str:
    return f"{skills} skills, coverage {coverage:.2f}, MI {mi:.2f} nats"


def trajectories(trained: Trained, title: str, small: str) -> Panel:
    rng = np.random.default_rng(stream_seed(trained.config["seed"], "maze picture"))
    paths, skill = play(trained.policy, trained.lanes, trained.skills, TRAJECTORIES, rng, START)
    return Panel(paths, skill, trained.lanes.maze, title, small, START)


def panel_of(trained: Trained, title: str) -> Panel:
    """A panel with the numbers that `measure` writes by default below its title. They come from
    many more episodes than are drawn."""
    paths, skill = trained.episodes(EPISODES)
    states, label = paths.reshape(-1, 2), np.repeat(skill, paths.shape[1])
    return trajectories(
        trained,
        title,
        small_print(
            len(trained.skills), coverage(states, trained.lanes.maze), mi_grid(states, label)
        ),
    )

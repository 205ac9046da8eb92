"""python -m analysis.curves: a line per setting with an interval over its seeds, and no blank panel."""

import numpy as np

from analysis import curves
from analysis.scores.seeds import interval, over_seeds


def make(root, agent, seed, rows):
    run = root / f"finetune/walker_run/{agent}/cpu/none/seed_{seed}"
    run.mkdir(parents=True)
    lines = ["frame,return_mean,return_std", *(f"{x},{y},0" for x, y in rows)]
    (run / "eval.csv").write_text("\n".join(lines) + "\n")
    return run


def test_an_interval_is_of_the_mean_over_seeds():
    assert interval(np.array([3.0])) == (3.0, 3.0)
    low, high = interval(np.array([1.0, 2.0, 3.0]))
    assert 1.0 <= low < 2.0 < high <= 3.0 and interval(np.array([3.0, 1.0, 2.0])) == (low, high)
    frames = [np.array([0, 10]), np.array([0, 10, 20])]
    at, mean, low, high = over_seeds(frames, [np.array([1, 3]), np.array([3, np.nan, 5])])
    assert at.tolist() == [0, 10, 20] and mean.tolist() == [2, 3, 5]
    assert (low[0], high[0]) == (1, 3) and (low[1:] == mean[1:]).all()


def test_seeds_share_a_line_with_a_band_and_every_panel_has_one(run_main, tmp_path):
    runs = [make(tmp_path, "ddpg", seed, [(0, seed), (10, 2 * seed)]) for seed in (1, 2)]
    runs.append(make(tmp_path, "rnd", 1, [(0, 5.0), (10, 6.0)]))
    figure = curves.draw(runs)
    (axis,) = figure.axes  # nothing but the panel that is needed
    lines = {line.get_label(): line.get_ydata().tolist() for line in axis.lines}
    assert lines == {
        "walker_run/ddpg/cpu/none (2 seeds)": [1.5, 3.0],
        "walker_run/rnd/cpu/none/seed_1": [5.0, 6.0],
    }
    assert len(axis.collections) == 1  # the band of the setting with two seeds
    done = run_main(curves.main, *runs, "--out", tmp_path / "curves.png")
    assert done.code == 0 and (tmp_path / "curves.png").stat().st_size > 5000

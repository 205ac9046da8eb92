"""The strip shows the agent's own observations, frame by frame."""

import numpy as np
from PIL import Image

from analysis import seen
from analysis.film import GAP
from envs.dummy import Dummy

TASK = ("obs_type=pixels", "task=walker_run", "task.env=dummy", "agent=ddpg")


def test_columns_are_moments_and_rows_the_frames_of_a_stack(cli, run_main, tmp_path):
    assert cli("finetune", *TASK).code == 0
    (result,) = cli.root.glob("finetune/**/result.json")
    done = run_main(seen.main, result.parent, "--out", tmp_path / "seen.png", "--moments", 4)
    assert done.code == 0, done.err
    picture = np.asarray(Image.open(tmp_path / "seen.png"))
    side = 4 * Dummy.SIDE  # of 24 pixels, each a square of 4
    assert picture.shape == (3 * side + 2 * GAP, 4 * side + 3 * GAP, 3)
    middle = side // 2
    steps = [
        [
            int(picture[row * (side + GAP) + middle, column * (side + GAP) + middle, 0])
            for column in range(4)
        ]
        for row in range(3)
    ]
    # Episodes of five steps, two at a time: observations after 0, 2, 4 and 5 of them.
    assert steps == [[0, 0, 0, 2], [0, 0, 2, 4], [0, 2, 4, 5]]


def test_a_run_of_states_has_nothing_to_show(cli, run_main, tmp_path):
    assert cli("finetune", "agent=ddpg", "task=walker_run", "task.env=dummy").code == 0
    (result,) = cli.root.glob("finetune/**/result.json")
    done = run_main(seen.main, result.parent, "--out", tmp_path / "seen.png")
    assert done.code == 2 and "sees states; give a run with obs_type=pixels" in done.err

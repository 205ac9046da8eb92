"""The tables hold window means, may grow columns, go back to a checkpoint, and stop a run that is
not finite."""

import csv
import io
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from PIL import Image

from run.logger import Logger
from utils import ROOT, UserError


def make(path, **switches):
    return Logger(
        path,
        **{
            "use_tb": False,
            "use_wandb": False,
            "project": "p",
            "name": "n",
            "config": {},
            **switches,
        },
    )


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def add(logger, **metrics):
    logger.add({key: torch.tensor(value) for key, value in metrics.items()})


def window(logger, frame, values, **extra):
    for value in values:
        add(logger, loss=value)
    return logger.close_window(frame, extra)


# ---- rows


def test_a_row_holds_the_means_of_its_window(tmp_path):
    logger = make(tmp_path)
    assert window(logger, 10, [1.0, 2.0, 6.0], episodes=1) == {"loss": 3.0}
    assert window(logger, 20, [5.0], episodes=2) == {"loss": 5.0}  # nothing is left of the first
    assert read(tmp_path / "train.csv") == [
        {"frame": "10", "episodes": "1", "loss": "3"},
        {"frame": "20", "episodes": "2", "loss": "5"},
    ]


def test_a_quantity_that_is_reported_less_often_is_averaged_over_its_own_reports(tmp_path):
    logger = make(tmp_path)
    add(logger, loss=1.0, conflict=0.25)
    add(logger, loss=3.0)
    add(logger, loss=5.0, conflict=0.75)
    assert logger.close_window(10, {}) == {"loss": 3.0, "conflict": 0.5}


def test_looking_at_the_means_leaves_the_window_open(tmp_path):
    logger = make(tmp_path)
    add(logger, loss=1.0)
    assert logger.means(5) == {"loss": 1.0}
    add(logger, loss=3.0)
    assert logger.close_window(10, {}) == {"loss": 2.0} and logger.means(10) == {}


def test_adding_leaves_the_metrics_tensors_alone(tmp_path):
    logger, value = make(tmp_path), torch.tensor(2.0)
    logger.add({"loss": value})
    logger.add({"loss": value})
    assert value.item() == 2.0 and logger.close_window(1, {}) == {"loss": 2.0}


def test_a_column_that_appears_later_is_empty_before_and_where_it_is_missing(tmp_path):
    logger = make(tmp_path)
    add(logger, loss=1.0)
    logger.close_window(10, {"fps": 5})
    add(logger, loss=2.0, late=7.0)
    logger.close_window(20, {"fps": 6})
    add(logger, loss=3.0)
    logger.close_window(30, {"fps": 7})
    rows = read(tmp_path / "train.csv")
    assert list(rows[0]) == ["frame", "fps", "loss", "late"]
    assert [row["late"] for row in rows] == ["", "7", ""]
    assert [row["loss"] for row in rows] == ["1", "2", "3"]


def test_every_row_is_on_disk_as_soon_as_its_window_closes(tmp_path):
    logger = make(tmp_path)
    for frame in (10, 20, 30):
        window(logger, frame, [float(frame)])
        assert [row["frame"] for row in read(tmp_path / "train.csv")] == [
            str(f) for f in range(10, frame + 1, 10)
        ]
    assert [p.name for p in tmp_path.iterdir()] == ["train.csv"]  # no temporary files


def test_evaluations_have_their_own_table_and_keep_their_words(tmp_path):
    logger = make(tmp_path)
    logger.add_eval(0, {"return_mean": 12.5, "skills": "per_episode", "returns": "10 15"})
    logger.add_eval(40, {"return_mean": 1 / 3, "skills": 'a "quoted", word', "returns": ""})
    rows = read(tmp_path / "eval.csv")
    assert rows[0] == {
        "frame": "0",
        "return_mean": "12.5",
        "skills": "per_episode",
        "returns": "10 15",
    }
    assert rows[1] == {
        "frame": "40",
        "return_mean": "0.333333",
        "skills": 'a "quoted", word',
        "returns": "",
    }
    assert not (tmp_path / "train.csv").exists()


# ---- values that are no numbers


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_quantity_that_is_not_finite_stops_the_run_in_one_line(tmp_path, value):
    logger = make(tmp_path)
    window(logger, 10, [1.0])
    for v in (1.0, value, 1.0):  # one bad value among good ones is enough
        logger.add({"critic_loss/diversity": torch.tensor(v), "fine": torch.tensor(1.0)})
    with pytest.raises(UserError) as error:
        logger.close_window(2000, {})
    line = str(error.value)
    assert (
        "critic_loss/diversity" in line
        and "frame 2000" in line
        and "fine" not in line
        and "\n" not in line
    )
    # The bad row is not written.
    assert [row["frame"] for row in read(tmp_path / "train.csv")] == ["10"]


def test_a_table_that_cannot_be_written_is_a_one_line_error(tmp_path):
    logger = make(tmp_path)
    window(logger, 10, [1.0])
    (tmp_path / "train.csv").unlink()
    (tmp_path / "train.csv").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*train.csv: Is a directory"):
        window(logger, 20, [1.0])


# ---- checkpoints


def saved(logger):
    file = io.BytesIO()
    torch.save(logger.state_dict(), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_going_back_to_a_checkpoint_cuts_the_rows_written_after_it(tmp_path):
    logger = make(tmp_path)
    window(logger, 10, [1.0])
    logger.add_eval(10, {"return_mean": 1.0, "skills": "fixed"})
    state = saved(logger)
    before = [(tmp_path / name).read_bytes() for name in ("train.csv", "eval.csv")]
    window(logger, 20, [2.0])
    add(logger, late=1.0)
    logger.close_window(30, {})
    logger.add_eval(30, {"return_mean": 2.0, "skills": "fixed"})

    revived = make(tmp_path)
    revived.load_state_dict(state)
    assert [(tmp_path / name).read_bytes() for name in ("train.csv", "eval.csv")] == before


def test_a_resumed_table_equals_an_uninterrupted_one(tmp_path):
    def first(logger):
        window(logger, 10, [1.0])
        # The checkpoint comes in mid-window.
        logger.add({"loss": torch.tensor(4.0), "half": torch.tensor(1.0)})

    def second(logger):
        logger.add({"loss": torch.tensor(6.0), "half": torch.tensor(2.0)})
        logger.close_window(20, {})
        window(logger, 30, [0.1])
        logger.add_eval(30, {"return_mean": 1.0})

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    logger = make(whole)
    first(logger)
    second(logger)
    logger = make(broken)
    first(logger)
    state = saved(logger)
    logger.add({"loss": torch.tensor(100.0)})  # lost in the crash
    logger.close_window(20, {})
    logger = make(broken)
    logger.load_state_dict(state)
    second(logger)
    for name in ("train.csv", "eval.csv"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()
    assert read(whole / "train.csv")[1] == {"frame": "20", "loss": "5", "half": "1.5"}


def test_a_checkpoint_from_before_the_first_row_leaves_no_table(tmp_path):
    logger = make(tmp_path)
    state = saved(logger)
    window(logger, 10, [1.0])
    logger.add_eval(10, {"return_mean": 1.0})
    revived = make(tmp_path)
    revived.load_state_dict(state)
    assert not list(tmp_path.iterdir())
    window(revived, 10, [2.0])
    assert read(tmp_path / "train.csv") == [{"frame": "10", "loss": "2"}]


def test_a_checkpoint_is_not_moved_by_what_is_logged_after_it(tmp_path):
    logger = make(tmp_path)
    add(logger, loss=1.0)
    state = saved(logger)
    add(logger, loss=5.0)
    revived = make(tmp_path)
    revived.load_state_dict(state)
    add(revived, loss=3.0)
    assert revived.close_window(10, {}) == {"loss": 2.0}
    assert logger.close_window(10, {}) == {"loss": 3.0}


# ---- TensorBoard, Weights & Biases


def test_tensorboard_gets_the_same_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logger = make(tmp_path, use_tb=True)
    window(logger, 10, [1.0, 3.0], episodes=4)
    logger.add_eval(20, {"return_mean": 7.0, "skills": "fixed"})
    logger.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    points = {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert points == {
        "train/loss": [(10, 2.0)],
        "train/episodes": [(10, 4.0)],
        "eval/return_mean": [(20, 7.0)],
    }


def test_no_switch_no_directory(tmp_path):
    logger = make(tmp_path)
    window(logger, 10, [1.0])
    logger.close()
    assert [p.name for p in tmp_path.iterdir()] == ["train.csv"]


def run(code, path, **environment):
    return subprocess.run(
        [sys.executable, "-c", code, str(path)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


WANDB = """
import sys, torch
from pathlib import Path
from run.logger import Logger
from utils import UserError
try:
    logger = Logger(Path(sys.argv[1]), use_tb=False, use_wandb=True, project="p", name="n", config={"seed": 1})
except UserError as error:
    sys.exit(f"UserError: {error}")
logger.add({"loss": torch.tensor(2.0)})
logger.close_window(10, {})
logger.add_eval(10, {"return_mean": 1.0, "skills": "fixed"})
logger.close()
"""


def test_wandb_works_without_a_network(tmp_path):
    done = run(
        WANDB,
        tmp_path,
        WANDB_MODE="offline",
        WANDB_CACHE_DIR=str(tmp_path / "cache"),
        WANDB_CONFIG_DIR=str(tmp_path / "config"),
        WANDB_DATA_DIR=str(tmp_path / "data"),
    )
    assert done.returncode == 0, done.stderr
    files = list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 1 and b"train/loss" in files[0].read_bytes()
    assert read(tmp_path / "train.csv") == [{"frame": "10", "loss": "2"}]


def test_wandb_that_does_not_start_is_a_warning_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    import wandb

    def refuse(**_):
        raise RuntimeError("no key\nand a paragraph about it")

    monkeypatch.setattr(wandb, "init", refuse)
    logger = make(tmp_path, use_wandb=True)
    window(logger, 10, [1.0])
    logger.close()
    first, second = capsys.readouterr().err.splitlines()
    assert "(no key); logging offline" in first and "(no key); going on without it" in second
    assert read(tmp_path / "train.csv") == [{"frame": "10", "loss": "1"}]


def test_a_resumed_run_is_the_same_one_for_wandb_and_is_found_by_group_type_and_tags(
    tmp_path, monkeypatch
):
    import wandb

    asked = []

    class Run:
        def log(self, row):
            asked[-1].setdefault("logged", []).append(row)

        def finish(self):
            pass

    def init(**given):
        asked.append(given)
        return Run()

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setenv("WANDB_ENTITY", "somebody")
    config = {
        "phase": "pretrain",
        "agent": {"name": "amped"},
        "domain": {"name": "walker"},
        "preset": {"name": "cpu"},
    }
    for _ in range(2):
        logger = Logger(
            tmp_path,
            use_tb=False,
            use_wandb=True,
            project="p",
            name="pretrain/walker/amped/cpu/seed_1",
            config=config,
        )
        Image.new("RGB", (4, 4)).save(tmp_path / "skills_10.png")
        logger.add_media(10)
        logger.add_media(20)  # left nothing
        logger.close()
    first, second = asked
    assert first["id"] == second["id"] and len(first["id"]) == 16 and first["resume"] == "allow"
    assert first["group"] == "pretrain/walker/amped/cpu" and first["job_type"] == "pretrain"
    assert first["tags"] == ["amped", "cpu", "walker"] and first["entity"] == "somebody"
    (row,) = first["logged"]
    assert row["frame"] == 10 and isinstance(row["media/skills"], wandb.Image)


def test_wandb_that_never_finishes_costs_a_line_and_no_run(tmp_path, monkeypatch, capsys):
    import wandb

    class Hangs:
        def log(self, row):
            raise ConnectionError("network is unreachable")

        def finish(self):
            threading.Event().wait(30)

    monkeypatch.setattr(wandb, "init", lambda **_: Hangs())
    monkeypatch.setattr("run.logger.FINISH_SECONDS", 0.05)
    logger = make(tmp_path, use_wandb=True)
    logger.close()
    assert "did not finish (no answer in 0.05 s)" in capsys.readouterr().err
    logger = make(tmp_path, use_wandb=True)
    window(logger, 10, [1.0])
    logger.close()
    assert "stopped (network is unreachable); going on without it" in capsys.readouterr().err
    assert read(tmp_path / "train.csv") == [{"frame": "10", "loss": "1"}]


def test_tensorboard_gets_films_and_pictures(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from run.video import write_film

    logger = make(tmp_path, use_tb=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "skills_10.png")
    frames = [np.full((16, 16, 3), 20 * i, np.uint8) for i in range(8)]
    write_film(tmp_path / "videos/eval_10_0.mp4", frames, 10)
    logger.add_media(10)
    logger.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    shapes = {
        tag: (events.Images(tag)[0].width, events.Images(tag)[0].height)
        for tag in events.Tags()["images"]
    }
    assert shapes == {"media/skills": (8, 8), "media/eval_0": (6 * 16, 16)}

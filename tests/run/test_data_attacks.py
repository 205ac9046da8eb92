"""A damaged or foreign replay.pt is refused in one line, wherever data is read."""

import shutil

import pytest

from run import data
from tests.kit.data_attacks import REPLAY
from utils import UserError

WHERE = "pretrain/walker/amped/smoke/seed_1"


@pytest.fixture
def kept(whole, tmp_path):
    """A pre-training that kept its data, to spoil."""
    return shutil.copytree(whole("save_replay=true") / WHERE, tmp_path / "kept")


@pytest.mark.parametrize("name", REPLAY)
def test_every_spoilt_replay_is_refused_in_one_line_that_names_it(name, kept):
    assert len(data.load(kept / "replay.pt")) > 100
    REPLAY[name](kept)
    with pytest.raises(UserError) as error:
        data.load(kept / "replay.pt")
    line = str(error.value)
    assert str(kept / "replay.pt") in line and len(line) < 400 and "\n" not in line


def test_a_fine_tuning_says_so_before_anything_is_built(cli, kept):
    REPLAY["obs is nan"](kept)
    words = ("task=walker_run", "adapt=reuse", f"snapshot={kept / 'snapshots/snapshot_120.pt'}")
    done = cli("finetune", *words)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "replay.pt is no replay of this code: obs holds nan or infinity" in done.err
    assert not (cli.root / "finetune").exists()

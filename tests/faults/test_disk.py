"""A full or read-only disk ends a run in one line; no half file stays, and the run goes on when
there is room."""

import subprocess
import sys

import pytest
import torch

from run.directory import RunDirectory
from run.logger import Table
from tests.faults.damage import resize, small_disk
from tests.faults.same import compare
from tests.kit.cli import Output
from tests.kit.runs import stop_at
from utils import ROOT, UserError, save_torch

RUN = "pretrain/walker/amped/smoke/seed_1"


@pytest.fixture
def disk(tmp_path):
    try:
        with small_disk(tmp_path / "disk", 8000) as path:
            yield path
    except OSError as error:
        pytest.skip(str(error))


def fill(disk, leave: int) -> None:
    """All but `leave` kilobytes."""
    (disk / "filler").unlink(missing_ok=True)
    free = int(subprocess.check_output(["stat", "-fc", "%a", disk]))  # blocks of 4 kB
    (disk / "filler").write_bytes(bytes(4096 * max(free - leave // 4, 0)))


def one_line(out: Output, *words: str) -> bool:
    return out.code == 2 and out.err.count("\n") == 1 and all(word in out.err for word in words)


@pytest.mark.parametrize(
    ("frame", "file"), [(15, "checkpoint_15.pt"), (60, "snapshot_60.pt"), (120, "result.json")]
)
def test_a_full_disk_names_the_file_and_the_run_goes_on_when_there_is_room(
    cli, disk, whole, monkeypatch, frame, file
):
    """The disk fills up at a frame; what is due there does not fit."""
    from run.loop import Runner

    due = {"checkpoint": "save_checkpoint", "snapshot": "save_snapshot", "result": "_result"}
    name = due[file.partition("_")[0].partition(".")[0]]
    original = getattr(Runner, name)

    def full(self):
        if self.frame == frame:
            fill(disk, 0)
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, name, full)
        out = cli("pretrain", f"run_root={disk}")
    assert one_line(out, f"/{file}: the disk is full; what was written before is intact"), out.err
    assert not list(disk.rglob(".*.tmp")) and not list(disk.rglob(file))
    (disk / "filler").unlink()
    resumed = cli("pretrain", f"run_root={disk}")
    assert resumed.code == 0 and ("continuing at frame" in resumed.out) == (frame > 15)
    assert not compare(whole() / RUN, disk / RUN).differences


def test_a_row_that_does_not_fit_leaves_no_half_row(disk):
    table = Table(disk / "train.csv")
    table.add({"frame": 1, "note": "x" * 3000})
    before = table.path.read_bytes()
    fill(disk, 0)
    with pytest.raises(UserError, match=r"train.csv: the disk is full"):
        table.add({"frame": 2, "note": "y" * 3000})  # crosses into a page that there is not
    assert table.path.read_bytes() == before


@pytest.mark.parametrize("room", [0, 8, 80, 400])
def test_a_tensor_that_does_not_fit_is_said_to_be_the_disks_fault_however_far_torch_came(
    disk, room
):
    fill(disk, room)
    with pytest.raises(UserError, match=r"a.pt: the disk is full"):
        save_torch(
            disk / "a.pt", {"kind": "snapshot", "x": torch.zeros(200_000), "y": torch.zeros(10)}
        )
    assert [p.name for p in disk.iterdir()] == ["filler"]


def test_a_run_in_a_directory_that_became_read_only_waits_to_be_continued(
    cli, disk, whole, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_at(patch, 70)
        assert cli("pretrain", f"run_root={disk}").code == 143
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    refused = cli("pretrain", f"run_root={disk}")
    assert one_line(refused, f"cannot write {disk / RUN}", "Read-only file system"), refused.err
    assert one_line(
        cli("pretrain", f"run_root={disk}", "variant=new"), "Read-only file system", "run_root=DIR"
    )
    subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    resize(disk, 8000)
    assert "continuing at frame 70" in cli("pretrain", f"run_root={disk}").out
    assert not compare(whole() / RUN, disk / RUN).differences


KILLED = """
import os, signal, sys
from pathlib import Path
from utils import write_atomic
def half(file):
    file.write(b"x" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
write_atomic(Path(sys.argv[1]) / "checkpoint_15.pt", half)
"""


def test_what_a_killed_write_left_is_removed_when_the_run_is_opened_again(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=ROOT)
    (half,) = tmp_path.iterdir()
    assert half.stat().st_size == 100_000 and half.name.startswith(".checkpoint_15.pt.")
    directory = RunDirectory(tmp_path, {})
    assert directory.checkpoints() == []
    directory.open()
    directory.close()
    assert [p.name for p in tmp_path.iterdir()] == ["config.yaml"]

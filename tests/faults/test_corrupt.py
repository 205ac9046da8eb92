"""A damaged file is found by its checksum and named; a run goes on from the checkpoint before."""

import random
import shutil
import struct
import zipfile

import pytest
import torch

from tests.faults.damage import cuts, flip, flips, outcome
from tests.faults.same import compare, same_value
from tests.kit.runs import stop_at
from utils import UserError, load_snapshot, load_torch, save_torch

RUN = "pretrain/walker/amped/smoke/seed_1"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    return tmp_path_factory.mktemp("stopped")


@pytest.fixture
def files(cli, stopped, monkeypatch):
    """A real snapshot and a real checkpoint, of a run that was stopped."""
    if not (stopped / "pretrain").exists():
        with monkeypatch.context() as patch:
            stop_at(patch, 70)
            assert cli("pretrain", f"run_root={stopped}").code == 143
    shutil.copytree(stopped, cli.root)
    run = cli.root / RUN
    return {"snapshot": run / "snapshots/snapshot_60.pt", "checkpoint": run / "checkpoint_70.pt"}


def test_any_flipped_bit_and_any_missing_end_is_refused_or_changes_nothing(files, tmp_path):
    for what, file in files.items():
        rng = random.Random(0)
        flipped = flips(file, what, 300, rng, tmp_path / "flipped.pt")
        assert flipped["refused"] == 300, flipped
        cut = cuts(file, what, 60, rng, tmp_path / "cut.pt")
        # Without the comment alone it is whole.
        assert cut["WRONG"] == 0 and cut["refused"] >= 59, cut


def test_a_header_bit_that_hides_a_tensor_is_found(files, tmp_path):
    """0x10 among the attributes of a record says `directory`: torch then reads nothing into the
    tensor, and no checksum of a record sees it."""
    file = files["snapshot"]
    data, sound, wrong = file.read_bytes(), load_snapshot(file), 0
    with zipfile.ZipFile(file) as archive:
        at, entries = archive.start_dir, archive.infolist()
    for _ in entries:
        assert data[at : at + 4] == b"PK\x01\x02"
        damaged = flip(data, 8 * (at + 38) + 4)
        assert outcome(tmp_path / "hidden.pt", "snapshot", damaged, sound) == "refused"
        try:
            wrong += not same_value(torch.load(tmp_path / "hidden.pt", weights_only=True), sound)
        except Exception:
            pass  # noticed by torch
        at += 46 + sum(struct.unpack_from("<3H", data, at + 28))
    assert wrong > 0  # what the seal is for


def test_sealed_files_are_ordinary_ones_for_torch_and_zip(files):
    for what, file in files.items():
        assert same_value(torch.load(file, weights_only=True), load_torch(file, what))
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None and archive.comment.startswith(b"crc32:")


def test_a_file_from_before_the_seal_still_loads_and_its_records_are_checked(files, tmp_path):
    content, old = load_snapshot(files["snapshot"]), tmp_path / "old.pt"
    torch.save(content, old)
    assert same_value(load_snapshot(old), content)
    data = old.read_bytes()
    with zipfile.ZipFile(old) as archive:
        tensors = [entry for entry in archive.infolist() if "/data/" in entry.filename]
        biggest = max(tensors, key=lambda entry: entry.file_size)
    old.write_bytes(
        flip(
            data, 8 * (biggest.header_offset + 30 + len(biggest.filename) + biggest.file_size // 2)
        )
    )
    with pytest.raises(
        UserError,
        match=r"old\.pt is not a readable snapshot \(the checksum of its record .*/data/\d+",
    ):
        load_snapshot(old)


def test_a_damaged_snapshot_is_named_to_the_one_who_fine_tunes(cli, files):
    data = files["snapshot"].read_bytes()
    files["snapshot"].write_bytes(flip(data, 4 * len(data)))
    out = cli("finetune", "task=walker_run", f"snapshot={files['snapshot']}")
    reason = "its checksum does not match: it was changed after it was written"
    assert (
        out.code == 2
        and out.err == f"error: {files['snapshot']} is not a readable snapshot ({reason})\n"
    )


def test_a_damaged_checkpoint_is_set_aside_and_does_not_count_as_one_of_the_two_kept(
    cli, files, whole, monkeypatch
):
    run, data = files["checkpoint"].parent, files["checkpoint"].read_bytes()
    files["checkpoint"].write_bytes(flip(data, 8 * len(data) // 3))
    with monkeypatch.context() as patch:
        stop_at(patch, 80)
        resumed = cli("pretrain")
    assert "continuing at frame 60" in resumed.out and "trying the one before" in resumed.err
    assert sorted(p.name for p in run.glob("*checkpoint_*")) == [
        "checkpoint_75.pt",
        "checkpoint_80.pt",
        "damaged_checkpoint_70.pt",
    ]
    assert cli("pretrain").code == 0
    (run / "damaged_checkpoint_70.pt").unlink()
    assert not compare(whole() / RUN, run).differences


def test_without_a_readable_checkpoint_a_run_does_not_start_anew_by_itself(cli, files):
    run = files["checkpoint"].parent
    for path in run.glob("checkpoint_*.pt"):
        path.write_bytes(path.read_bytes()[:-100])
    refused = cli("pretrain")
    assert refused.code == 2 and len(refused.err.splitlines()) == 3
    assert refused.err.splitlines()[-1] == (
        f"error: no checkpoint of {run} can be read; the same command starts again from frame 0"
    )
    assert cli("pretrain").code == 0  # asked twice, it does


def test_saving_does_not_change_what_is_loaded(tmp_path):
    content = {
        "kind": "snapshot",
        "x": torch.arange(7),
        "empty": torch.zeros(0),
        "words": ["a", 1, None],
    }
    save_torch(tmp_path / "a.pt", content)
    assert same_value(load_torch(tmp_path / "a.pt", "snapshot"), content)

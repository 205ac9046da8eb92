"""Exact resume, determinism, signals: what a crash may cost is time, never a number."""

import re
import signal

import pytest

from run.directory import RunDirectory
from tests.kit.cli import assert_same_run, finish, process, rows
from tests.kit.runs import continued_from, kill_after_checkpoint, stamps, stop_at

DOMAINS = ("walker", "quadruped", "jaco")


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_killed_pretraining_resumes_as_if_nothing_had_happened(cli, tmp_path, domain):
    where = f"pretrain/{domain}/amped/smoke/seed_1"
    assert cli("pretrain", f"domain={domain}").code == 0
    args = ("preset=smoke", f"domain={domain}", f"run_root={tmp_path / 'killed'}")
    started = process("pretrain", *args)
    kill_after_checkpoint(started, tmp_path / "killed" / where, 45, signal.SIGKILL)
    assert finish(started).code == -signal.SIGKILL
    resumed = finish(process("pretrain", *args))
    assert resumed.code == 0, resumed.err
    assert 45 <= continued_from(resumed.out) < 120
    assert_same_run(cli.root / where, tmp_path / "killed" / where)
    assert not list((tmp_path / "killed" / where).glob("checkpoint_*"))


def test_a_killed_finetuning_resumes_as_if_nothing_had_happened(cli, tmp_path):
    where = "finetune/walker_run/amped/smoke/switching/seed_1"
    assert cli("pretrain").code == 0
    snapshot = cli.root / "pretrain/walker/amped/smoke/seed_1/snapshots/snapshot_120.pt"
    args = ("task=walker_run", f"snapshot={snapshot}")
    assert cli("finetune", *args).code == 0
    args = ("preset=smoke", f"run_root={tmp_path / 'killed'}", *args)
    started = process("finetune", *args)
    kill_after_checkpoint(started, tmp_path / "killed" / where, 30, signal.SIGKILL)
    finish(started)
    resumed = finish(process("finetune", *args))
    assert resumed.code == 0 and continued_from(resumed.out) >= 30
    assert_same_run(cli.root / where, tmp_path / "killed" / where)


def test_a_run_that_learns_from_finished_episodes_waits_for_one_and_resumes_bit_for_bit(
    cli, monkeypatch
):
    """Episodes of the maze have 50 steps: the first update is after them, not after the warm-up."""
    args = ("pretrain", "domain=tree_maze", "learner=ddpg", "replay.running_episode=false")
    assert cli(*args, "variant=whole").code == 0
    whole = cli.root / "pretrain/tree_maze/amped/whole/seed_1"
    learned = [int(row["frame"]) for row in rows(whole / "train.csv") if row.get("actor/loss")]
    assert min(learned) == 60  # the log has a row every 10 frames
    with monkeypatch.context() as patch:
        stop_at(patch, 70)
        assert cli(*args, "variant=stopped").code == 143
    assert cli(*args, "variant=stopped").code == 0
    assert_same_run(whole, whole.parents[1] / "stopped/seed_1")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_command_continues_there(cli, tmp_path, signum):
    where = "pretrain/walker/amped_literal/smoke/seed_1"
    assert cli("pretrain", "agent=amped_literal").code == 0
    args = ("preset=smoke", "agent=amped_literal", f"run_root={tmp_path / 'stopped'}")
    started = process("pretrain", *args)
    kill_after_checkpoint(started, tmp_path / "stopped" / where, 15, signum)
    stopped = finish(started)
    assert (
        stopped.code == 128 + signum
        and "saved at frame" in stopped.err
        and "Traceback" not in stopped.err
    )
    frame = int(re.search(r"saved at frame (\d+)", stopped.err)[1])
    resumed = finish(process("pretrain", *args))
    assert resumed.code == 0 and continued_from(resumed.out) == frame >= 15
    assert_same_run(cli.root / where, tmp_path / "stopped" / where)


def test_stopping_in_many_places_gives_the_same_run(cli, monkeypatch):
    """In one process: stop at frame 7, 23, 39, ..., each time continuing in the middle of an
    episode."""
    assert cli("pretrain", "variant=whole").code == 0
    frames = list(range(7, 120, 16))
    for frame in frames:
        with monkeypatch.context() as patch:
            stop_at(patch, frame)
            assert cli("pretrain", "variant=pieces").code == 143
    assert f"continuing at frame {frames[-1]}" in cli("pretrain", "variant=pieces").out
    base = cli.root / "pretrain/walker/amped"
    assert_same_run(base / "whole/seed_1", base / "pieces/seed_1")


def test_same_seed_same_numbers_and_another_seed_others(cli):
    for variant, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert cli("pretrain", f"variant={variant}", f"seed={seed}").code == 0
    base = cli.root / "pretrain/walker/amped"
    assert_same_run(base / "a/seed_3", base / "b/seed_3")
    assert rows(base / "a/seed_3/train.csv") != rows(base / "c/seed_4/train.csv")


def test_a_finished_run_says_so_and_does_nothing(cli):
    assert cli("pretrain").code == 0
    before = stamps(cli.root)
    again = cli("pretrain")
    assert again.code == 0 and "is finished" in again.out
    assert stamps(cli.root) == before


def test_another_thread_count_is_refused_on_an_unfinished_run(cli, monkeypatch):
    stop_at(monkeypatch, 50)
    assert cli("pretrain").code == 143
    refused = cli("pretrain", "num_threads=2")
    assert refused.code == 2 and "num_threads (1 there, 2 here)" in refused.err
    assert "continuing at frame 50" in cli("pretrain").out


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(cli, monkeypatch):
    assert cli("pretrain", "variant=whole").code == 0
    stop_at(monkeypatch, 50)
    assert cli("pretrain", "variant=hurt").code == 143
    monkeypatch.undo()
    run = cli.root / "pretrain/walker/amped/hurt/seed_1"
    assert sorted(p.name for p in run.glob("checkpoint_*")) == [
        "checkpoint_45.pt",
        "checkpoint_50.pt",
    ]
    (run / "checkpoint_50.pt").write_bytes((run / "checkpoint_50.pt").read_bytes()[:1000])
    resumed = cli("pretrain", "variant=hurt")
    assert (
        resumed.code == 0
        and "continuing at frame 45" in resumed.out
        and "checkpoint_50.pt" in resumed.err
    )
    assert_same_run(cli.root / "pretrain/walker/amped/whole/seed_1", run)


def test_a_second_process_on_the_same_run_is_refused(cli):
    run = cli.root / "pretrain/walker/amped/smoke/seed_1"
    assert cli("pretrain", "variant=other").code == 0
    first = RunDirectory(run, {})
    first.open()
    (run / "config.yaml").unlink()
    refused = cli("pretrain")
    first.close()
    assert refused.code == 2 and "in use by another process" in refused.err
    assert cli("pretrain").code == 0


def test_two_settings_never_share_a_directory(cli):
    assert cli("pretrain", "variant=mine").code == 0
    refused = cli("pretrain", "variant=mine", "beta=3")
    assert refused.code == 2 and "beta (10 there, 3 here)" in refused.err
    assert cli("pretrain", "beta=3", "alpha=0.5").code == 0
    assert (cli.root / "pretrain/walker/amped/smoke,alpha=0.5,beta=3/seed_1/result.json").exists()
    same = cli("pretrain", "alpha=0.5", "beta=3")  # the order of overrides is not a setting
    assert "is finished" in same.out


def test_an_env_that_cannot_be_restored_continues_with_a_new_episode_and_says_so(cli, monkeypatch):
    args = ("domain.primal_task=tests.kit.env_zoo:forgetful", "agent=amped")
    stop_at(monkeypatch, 50)
    assert cli("pretrain", *args).code == 143
    resumed = cli("pretrain", *args)
    assert (
        resumed.code == 0
        and "continuing at frame 50" in resumed.out
        and "not bit for bit" in resumed.out
    )

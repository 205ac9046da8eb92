"""skills=oracle: every skill alone, in processes of their own, resumable, with one table at the
end.

Pendulum keeps the processes light; a plain run of one skill in this process is what each of them
must equal.
"""

import csv
import fcntl
import json
import os
import signal
import time

import numpy as np
import pytest
import yaml

from tests.kit.cli import assert_same_run, finish, process
from tests.kit.runs import group_is_gone, is_free, kill_after_checkpoint, stamps, wait_for

SKILLS = 2
PENDULUM = "gymnasium:Pendulum-v1"
PRIMAL = f"domain.primal_task={PENDULUM}"
TASK = ("task=walker_run", "variant=v", PRIMAL, f"task.env={PENDULUM}", "num_eval_episodes=2")
LONG = ("num_train_frames=400", "eval_every_frames=200")  # long enough to be stopped in the middle
EXPERT = 796  # of walker_run, whose name these runs carry


@pytest.fixture
def pretrained(cli):
    done = cli(
        "pretrain",
        PRIMAL,
        "variant=v",
        f"skill_dim={SKILLS}",
        "num_train_frames=40",
        "snapshots=[]",
    )
    assert done.code == 0, done.err
    return cli.root / "pretrain/walker/amped/v/seed_1/snapshots/snapshot_40.pt"


def where(root, skills):
    return root / f"finetune/walker_run/amped/v/{skills}/seed_1"


def read(path):
    return json.loads(path.read_text())


def plain(cli, root, snapshot, *args):
    """Each skill by a plain fine-tuning in this process; their results."""
    for skill in range(SKILLS):
        done = cli(
            "finetune",
            *TASK,
            *args,
            "skills=fixed",
            f"skills.index={skill}",
            f"snapshot={snapshot}",
            f"run_root={root}",
        )
        assert done.code == 0, done.err
    return [read(where(root, f"fixed_{skill}") / "result.json") for skill in range(SKILLS)]


def assert_summary(result, results):
    """Mean, best and curve of an oracle's result.json, recomputed from the runs of single
    skills."""
    # (skills, evaluations)
    returns = np.array([[point["return_mean"] for point in r["curve"]] for r in results])
    final = np.array([r["final"]["return_mean"] for r in results])
    assert len(set(final)) == SKILLS  # else the best and the mean would say the same
    assert (
        result["score"] == result["final"]["return_mean"] == pytest.approx(final.mean(), rel=1e-12)
    )
    assert result["final"]["return_std"] == pytest.approx(final.std(), rel=1e-12)
    assert result["normalized"] == pytest.approx(final.mean() / EXPERT, rel=1e-12)
    best = result["best"]
    assert (best["skill"], best["return_mean"]) == (final.argmax(), final.max())
    assert best["normalized"] == pytest.approx(final.max() / EXPERT, rel=1e-12)
    assert result["best_zero_shot"] == {
        "skill": returns[:, 0].argmax(),
        "zero_shot": returns[:, 0].max(),
    }
    assert [point["frame"] for point in result["curve"]] == [
        point["frame"] for point in results[0]["curve"]
    ]
    for key, expected in (
        ("return_mean", returns.mean(0)),
        ("return_std", returns.std(0)),
        ("return_best", returns.max(0)),
    ):
        np.testing.assert_allclose([point[key] for point in result["curve"]], expected, rtol=1e-12)
    assert [
        (row["skill"], row["zero_shot"], row["return_mean"], row["normalized"])
        for row in result["per_skill"]
    ] == [
        (skill, r["curve"][0]["return_mean"], r["final"]["return_mean"], r["normalized"])
        for skill, r in enumerate(results)
    ]


def assert_table(out, result):
    """The last lines on the screen: a row per skill, the best one marked, and the two numbers of
    the paper."""
    lines = out.splitlines()[-SKILLS - 2 :]
    assert lines[0].split() == ["skill", "zero-shot", "return", "std"]
    for row, line in zip(result["per_skill"], lines[1:-1], strict=True):
        numbers = [
            str(row["skill"]),
            *(f"{row[key]:.1f}" for key in ("zero_shot", "return_mean", "return_std")),
        ]
        assert line.split() == numbers + ["best"] * (row["skill"] == result["best"]["skill"])
    final, best = result["final"], result["best"]
    assert lines[-1] == (
        f"single skill: {final['return_mean']:.1f} +- {final['return_std']:.1f} (over skills); "
        f"oracle best: {best['return_mean']:.1f} (skill {best['skill']})"
    )


def start(root, snapshot, *args):
    """An oracle as a user starts it, with a process group of its own."""
    return process(
        "finetune",
        "preset=smoke",
        *TASK,
        *LONG,
        "checkpoint_every_frames=15",
        "skills=oracle",
        f"snapshot={snapshot}",
        f"run_root={root}",
        *args,
        start_new_session=True,
    )


# -------------------------------------------------------------------------------------- undisturbed


def test_an_oracle_is_its_skills_finetuned_alone_and_their_mean_and_best(cli, pretrained, tmp_path):
    done = cli("finetune", *TASK, "skills=oracle", "skills.workers=2")
    assert done.code == 0, done.err
    expected = plain(cli, tmp_path / "plain", pretrained)
    for skill in range(SKILLS):
        assert_same_run(
            where(cli.root, f"fixed_{skill}"), where(tmp_path / "plain", f"fixed_{skill}")
        )
    result = read(where(cli.root, "oracle") / "result.json")
    assert_summary(result, expected)
    assert_table(done.out, result)
    assert "2 skills, 0 finished, 2 at a time" in done.out and done.err == ""
    assert (result["skills"], result["frame"], result["seed"], result["pretrained_seed"]) == (
        "oracle",
        80,
        1,
        1,
    )
    with (where(cli.root, "oracle") / "skills.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["skill"] for row in table] == ["0", "1"]
    for row, r in zip(table, expected, strict=True):
        assert float(row["return_mean"]) == pytest.approx(r["score"], rel=1e-5)
        assert float(row["zero_shot"]) == pytest.approx(r["curve"][0]["return_mean"], rel=1e-5)

    words = yaml.safe_load((where(cli.root, "fixed_1") / "config.yaml").read_text())["overrides"]
    assert set(TASK) < set(words)  # those that would start the skill alone
    assert [word for word in words if word.startswith("skills")] == [
        "skills=fixed",
        "skills.index=1",
    ]

    before = stamps(cli.root)
    # Workers are no setting: the same directory.
    again = cli("finetune", *TASK, "skills=oracle", "skills.workers=1")
    assert again.code == 0 and "is finished; nothing to do" in again.out
    assert_table(again.out, result)
    alone = cli("finetune", *TASK, "skills=fixed", "skills.index=1")
    assert (
        alone.code == 0 and f"{where(cli.root, 'fixed_1')} is finished; nothing to do" in alone.out
    )
    assert stamps(cli.root) == before


def test_without_training_frames_an_oracle_is_the_zero_shot_return_of_every_skill(
    cli, pretrained, tmp_path
):
    """One skill was played before, so that a single process is left to start."""
    args = ("num_train_frames=0", f"snapshot={pretrained}")
    assert cli("finetune", *TASK, *args, "skills=fixed", "skills.index=0").code == 0
    done = cli("finetune", *TASK, *args, "skills=oracle", "skills.workers=1")
    assert done.code == 0 and "2 skills, 1 finished, 1 at a time" in done.out, done
    result = read(where(cli.root, "oracle") / "result.json")
    assert_summary(result, plain(cli, tmp_path / "plain", pretrained, "num_train_frames=0"))
    assert_table(done.out, result)
    assert result["frame"] == 0 and len(result["curve"]) == 1
    for row in result["per_skill"]:
        assert row["zero_shot"] == pytest.approx(row["return_mean"], rel=1e-5)
    assert result["best_zero_shot"]["skill"] == result["best"]["skill"]


def test_a_skill_whose_directory_holds_another_setting_is_refused_before_anything_starts(
    cli, pretrained
):
    other = cli(
        "finetune", *TASK, "skills=fixed", "skills.index=1", "learner.lr=0.5", "num_train_frames=0"
    )
    assert other.code == 0
    before = stamps(cli.root)
    refused = cli("finetune", *TASK, "skills=oracle")
    assert refused.code == 2 and refused.err.count("\n") == 1 and refused.out == ""
    assert f"{where(cli.root, 'fixed_1')} holds a run with other settings" in refused.err
    assert "learner.lr (0.5 there, 0.001 here)" in refused.err
    assert stamps(cli.root) == before and not where(cli.root, "fixed_0").exists()
    assert not where(cli.root, "oracle").exists()


def test_a_skill_that_fails_is_named_and_the_others_finish(cli, pretrained):
    """Somebody else holds the directory of skill 1 while the oracle runs."""
    where(cli.root, "fixed_1").mkdir(parents=True)
    handle = os.open(where(cli.root, "fixed_1"), os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    failed = cli("finetune", *TASK, "skills=oracle")
    os.close(handle)
    assert (
        failed.code == 2
        and "skill 1 (exit code 2) did not finish; the same command continues" in failed.err
    )
    assert (where(cli.root, "fixed_0") / "result.json").exists()
    assert not (where(cli.root, "oracle") / "result.json").exists()


# ---------------------------------------------------------------------------------------- disturbed


def finished(root, skill):
    return (where(root, f"fixed_{skill}") / "result.json").exists()


def saved(root, skill):
    return list(where(root, f"fixed_{skill}").glob("checkpoint_*"))


def test_an_oracle_that_was_terminated_and_then_killed_ends_with_the_numbers_of_an_undisturbed_one(
    cli, pretrained, tmp_path
):
    root = tmp_path / "disturbed"
    started = start(root, pretrained, "skills.workers=1")
    kill_after_checkpoint(started, where(root, "fixed_0"), 45, signal.SIGTERM)
    stopped = finish(started)
    assert stopped.code == 143, stopped
    assert (
        stopped.err
        == "SIGTERM: each skill is saved where it was; the same command continues there\n"
    )
    wait_for(lambda: group_is_gone(started.pid), "a process outlived the oracle")
    assert (saved(root, 0) or finished(root, 0)) and not where(root, "fixed_1").exists()

    started = start(root, pretrained, "skills.workers=2")
    kill_after_checkpoint(started, where(root, "fixed_1"), 45, signal.SIGKILL)
    assert started.wait(30) == -signal.SIGKILL
    wait_for(lambda: group_is_gone(started.pid), "a skill goes on without its oracle")
    assert finish(started).err == ""
    assert all(is_free(where(root, skills)) for skills in ("oracle", "fixed_0", "fixed_1"))
    assert saved(root, 1) and not finished(root, 1)

    done = cli(
        "finetune", *TASK, *LONG, "skills=oracle", f"snapshot={pretrained}", f"run_root={root}"
    )
    assert done.code == 0, done.err
    result = read(where(root, "oracle") / "result.json")
    assert_summary(result, plain(cli, tmp_path / "plain", pretrained, *LONG))
    assert_table(done.out, result)
    for skill in range(SKILLS):
        assert_same_run(where(root, f"fixed_{skill}"), where(tmp_path / "plain", f"fixed_{skill}"))
        assert not saved(root, skill)


def test_ctrl_c_while_the_skills_are_starting_is_one_line(pretrained, tmp_path):
    """A terminal sends SIGINT to the whole group, and the processes of the skills take seconds to
    import."""
    started = start(tmp_path / "stopped", pretrained, "skills.workers=2")
    started.stdout.readline()
    time.sleep(0.3)
    os.killpg(started.pid, signal.SIGINT)
    stopped = finish(started)
    assert (
        stopped.code == 130 and stopped.err.count("\n") == 1 and stopped.err.startswith("SIGINT: ")
    ), stopped


def test_a_signal_that_ends_the_skills_before_the_oracle_looks_is_still_a_signal(
    pretrained, tmp_path
):
    """Batch systems send SIGTERM to all processes at once; stopping the parent meanwhile makes it
    look last."""
    started = start(tmp_path / "stopped", pretrained, "skills.workers=2")
    started.stdout.readline()
    time.sleep(0.3)
    started.send_signal(signal.SIGSTOP)
    os.killpg(started.pid, signal.SIGTERM)
    time.sleep(0.3)
    started.send_signal(signal.SIGCONT)
    stopped = finish(started)
    assert (
        stopped.code == 143 and stopped.err.count("\n") == 1 and stopped.err.startswith("SIGTERM: ")
    ), stopped

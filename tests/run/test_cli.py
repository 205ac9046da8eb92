"""The command line as a user meets it: every domain and task, and one clear line for every
mistake."""

import json
import re
import resource

import numpy as np
import pytest
import torch
import yaml

import envs
from agent.policy import load_policy
from tests.kit.cli import finish, process, rows
from tests.kit.configs import AGENTS
from utils import ROOT, UserError, load_snapshot, save_torch

TASKS = sorted(p.stem for p in (ROOT / "configs/task").glob("*.yaml"))


def snapshot_of(cli, domain="walker", agent="amped", variant="smoke", frame=120):
    return cli.root / f"pretrain/{domain}/{agent}/{variant}/seed_1/snapshots/snapshot_{frame}.pt"


# ----------------------------------------------------------------------------------- what must work


@pytest.mark.parametrize("domain", ["walker", "quadruped", "jaco"])
def test_pretrain_then_finetune_every_task_of_the_domain(cli, domain):
    assert cli("pretrain", "agent=amped", f"domain={domain}").code == 0
    tasks = [task for task in TASKS if task.startswith(domain)]
    assert len(tasks) == 4 and set(tasks) <= set(envs.TASKS)
    for task in tasks:
        done = cli("finetune", "agent=amped", f"task={task}")
        assert done.code == 0, done.err
        run = cli.root / f"finetune/{task}/amped/smoke/switching/seed_1"
        assert [row["frame"] for row in rows(run / "eval.csv")] == ["0", "40", "80"]
        assert json.loads((run / "result.json").read_text())["pretrained_frame"] == 120


@pytest.mark.parametrize(
    "override",
    [
        "beta=0",
        "alpha=0",
        "agent.objective.diversity=false",
        "surgery=sum",
        "surgery=pcgrad_symmetric",
        "p=0",
        "p=1",
        "skill_dim=8",
        "skill_dim=32",
        "agent.objective.metric=none",
        "agent.objective.metric=cosine",
        "learner.critic_heads=per_stream",
    ],
)
def test_every_ablation_is_one_override_and_finetunes_by_the_same_override(cli, override):
    short = ("num_train_frames=40", "snapshots=[]")
    assert cli("pretrain", override, *short, "variant=ablation").code == 0
    assert (
        cli("finetune", override, "task=walker_walk", "num_train_frames=0", "variant=ablation").code
        == 0
    )


def test_finetuning_finds_the_pretraining_with_the_same_method_overrides(cli):
    assert cli("pretrain", "skill_dim=8", "num_train_frames=120").code == 0
    missing = cli("finetune", "skill_dim=4", "task=walker_walk")
    assert (
        missing.code == 2
        and "smoke,num_train_frames=120,skill_dim=8 seed_1: 60, 120" in missing.err
    )
    # commas and equal signs need no quotes
    variant = "pretrain_variant=smoke,num_train_frames=120,skill_dim=8"
    found = cli("finetune", "skill_dim=8", "task=walker_walk", variant)
    assert found.code == 0 and "skills 8" in found.out and "note:" not in found.out


def test_ddpg_learns_a_task_from_scratch_without_a_snapshot(cli):
    assert cli("finetune", "agent=ddpg", "task=walker_walk").code == 0
    assert (cli.root / "finetune/walker_walk/ddpg/smoke/none/seed_1/result.json").exists()


def test_skill_regimes_and_evaluation_rules_are_named_in_path_and_log(cli):
    assert cli("pretrain").code == 0
    base = cli.root / "finetune/walker_stand/amped"
    for args, where, rule in [
        (("skills=fixed", "skills.index=3"), "smoke/fixed_3", "fixed"),
        (("skills=fixed",), "smoke/fixed_random", "fixed"),
        (("skills.eval=per_call",), "smoke,skills.eval=per_call/switching", "per_call"),
        (("skills.eval=switching",), "smoke,skills.eval=switching/switching", "switching"),
        ((), "smoke/switching", "per_episode"),
    ]:
        assert cli("finetune", "task=walker_stand", *args).code == 0
        assert {row["skills"] for row in rows(base / where / "seed_1/eval.csv")} == {rule}


def test_no_training_frames_means_only_an_evaluation(cli):
    assert cli("pretrain").code == 0
    assert cli("finetune", "task=walker_run", "num_train_frames=0").code == 0
    (table,) = cli.root.glob("finetune/walker_run/**/eval.csv")
    assert len(rows(table)) == 1


def test_evaluation_rows_hold_mean_deviation_and_each_return(cli):
    assert cli("finetune", "agent=ddpg", "task=walker_run", "num_eval_episodes=3").code == 0
    (table,) = cli.root.glob("finetune/walker_run/**/eval.csv")
    for row in rows(table):
        returns = np.array(row["returns"].split(), float)
        assert len(returns) == 3 and np.isclose(
            returns.mean(), float(row["return_mean"]), rtol=1e-4
        )
        assert np.isclose(returns.std(), float(row["return_std"]), rtol=1e-3, atol=1e-6)


def test_the_snapshot_is_a_policy_in_one_line(cli):
    assert cli("pretrain").code == 0
    policy = load_policy(snapshot_of(cli))
    assert (policy.obs_dim, policy.action_dim, policy.skill_dim, policy.frame) == (24, 6, 16, 120)
    obs = np.random.default_rng(0).normal(size=(5, 24)).astype(np.float32)
    batch = policy.act(obs, 3)
    assert batch.shape == (5, 6) and np.abs(batch).max() <= 1
    np.testing.assert_allclose(policy.act(obs[0], np.eye(16)[3]), batch[0], atol=1e-6)
    assert not np.allclose(policy.act(obs, 4), batch)
    for wrong in (None, 16, -1):
        with pytest.raises(ValueError, match="needs a skill: an index below 16 or a vector of 16"):
            policy.act(obs, wrong)


def test_a_policy_with_continuous_skills_takes_vectors_only(cli):
    assert cli("pretrain", "agent=cic").code == 0
    policy = load_policy(snapshot_of(cli, agent="cic"))
    assert policy.act(np.zeros(24), np.full(64, 0.5)).shape == (6,)
    with pytest.raises(ValueError, match="needs a skill: a vector of 64; got 3"):
        policy.act(np.zeros(24), 3)


def test_a_snapshot_round_trips_and_says_where_it_comes_from(cli):
    assert cli("pretrain").code == 0
    payload = load_snapshot(snapshot_of(cli))
    assert payload["frame"] == 120 and payload["agent"] == "amped" and payload["domain"] == "walker"
    assert payload["versions"]["mujoco"] and payload["config"]["replay"]["nstep"] == 3
    assert (
        yaml.safe_load((snapshot_of(cli).parents[1] / "config.yaml").read_text())
        == payload["config"]
    )
    assert not any("_extra_state" in key for key in payload["learner"])


def test_the_help_of_both_scripts_lists_the_choices():
    for script in ("pretrain", "finetune"):
        shown = finish(process(script, "--help"))
        assert shown.code == 0 and f"agent: {', '.join(AGENTS)}" in shown.out
        assert "preset: cpu, paper, smoke" in shown.out
        assert "domain: jaco, quadruped, square_maze, tree_maze, walker" in shown.out
    assert f"task: {', '.join(TASKS)}" in shown.out


def test_the_help_shows_what_the_words_give_by_topic_with_a_line_on_each_key(cli):
    shown = cli("pretrain", "--help", "preset=cpu", "agent=cic").out
    assert "${" not in shown and not cli.root.exists()
    topics = re.findall(r"^(\w[\w ,]+):$", shown, re.M)
    assert topics[:3] == ["Which run", "How long, and what is kept", "Evaluation and logs"]
    for line in (
        r"num_train_frames=100000",
        r"learner\.hidden_dim=128",
        r"log_every_frames=1000 +one row of train\.csv",
    ):
        assert re.search(rf"^  {line}", shown, re.M), line
    assert "agent: " in shown and "(here: cic)" in shown
    wrong = cli("pretrain", "--help", "agent=nobody")
    assert wrong.code == 2 and "agent=nobody is not known" in wrong.err


def test_a_multirun_runs_every_job_and_leaves_nothing_in_the_working_directory(tmp_path):
    args = (
        "-m",
        "seed=1,2",
        "preset=smoke",
        "num_train_frames=20",
        f"run_root={tmp_path / 'runs'}",
    )
    (tmp_path / "cwd").mkdir()
    done = finish(process("pretrain", *args, cwd=tmp_path / "cwd"))
    assert done.code == 0, done.err
    assert len(list((tmp_path / "runs").glob("pretrain/walker/amped/*/seed_*/result.json"))) == 2
    assert not list((tmp_path / "cwd").iterdir())


# ---------------------------------------------------------------------------------------- bad input


WRONG = [
    ("pretrain", ("agent=ampedd",), f"agent=ampedd is not known; choose from {', '.join(AGENTS)}"),
    ("pretrain", ("domain=moon",), "choose from jaco, quadruped, square_maze, tree_maze, walker"),
    ("pretrain", ("preset=big",), "choose from cpu, paper, smoke"),
    ("finetune", ("task=walker_fly",), "walker_flip, walker_run, walker_stand, walker_walk"),
    ("finetune", (), "task= is missing; choose from"),
    (
        "pretrain",
        ("agent=ddpg",),
        "nothing to pre-train; train it on a task instead: python finetune.py agent=ddpg",
    ),
    ("finetune", ("task=walker_run", "domain=jaco"), "task=walker_run belongs to domain walker"),
    ("finetune", ("task=walker_run", "agent=ddpg", "skills=switching"), "use skills=none"),
    ("pretrain", ("beta2=1",), "beta2 is not a key of this run"),
    ("pretrain", ("seed=many",), "seed='many' is not valid; it must be a whole number"),
    ("pretrain", ("num_train_frames=many",), "num_train_frames='many'"),
    ("pretrain", ("num_train_frames=-5",), "num_train_frames=-5"),
    ("pretrain", ("learner.batch_size=0",), "learner.batch_size=0"),
    ("pretrain", ("learner.hidden_dim=-1",), "learner.hidden_dim=-1"),
    ("pretrain", ("learner.lr=fast",), "learner.lr='fast'"),
    ("pretrain", ("learner.lr=nan",), "learner.lr=nan"),
    ("pretrain", ("p=1.5",), "must be a number from 0 to 1"),
    ("pretrain", ("alpha=-1",), "alpha=-1"),
    ("pretrain", ("skill_dim=0",), "skill_dim=0 is too small"),
    ("pretrain", ("use_tb=perhaps",), "must be true or false"),
    ("pretrain", ("snapshots=7",), "must be a list of frames"),
    ("pretrain", ("device=cuda",), "no CUDA device here; use device=cpu"),
    ("pretrain", ("device=abacus",), "choose from auto, cpu, cuda"),
    ("pretrain", ("obs_type=sound",), "choose from states, pixels"),
    ("pretrain", ("obs_type=pixels", "domain=tree_maze"), "obs_type=pixels is for learner=ddpg"),
    ("pretrain", ("obs_type=pixels", "save_replay=true"), "save_replay= keeps states"),
    ("pretrain", ("obs_type=pixels", "render.size=16"), "render.size=16"),
    ("pretrain", ("obs_type=pixels", "replay.on_device=true"), "on_device=true copies states"),
    ("pretrain", ("variant=../../elsewhere",), "a file name without slashes"),
    ("pretrain", ("agent.objective.metric=round",), "choose from diag, full, none, cosine"),
    ("pretrain", ("replay.skill_index=early",), "choose from acting, legacy"),
    ("pretrain", ("learner.surgery_scope=actor",), "needs learner.critic_heads=per_stream"),
    ("pretrain", ("surgery.first=speed",), "choose from diversity, exploration"),
    ("pretrain", ("alpha=0", "beta=0", "agent.objective.diversity=false"), "leave no reward"),
    ("pretrain", ("replay.capacity=3",), "too small for nstep=3"),
    ("pretrain", ("action_repeat=7",), "is not a multiple of action_repeat=7"),
    ("pretrain", ("domain.primal_task=walker_fly",), "unknown environment"),
    ("pretrain", ("seed=[1",), "error: "),
    ("pretrain", ("=3",), "error: "),
    ("finetune", ("task=walker_run",), "frames present: none"),
    (
        "finetune",
        ("task=walker_run", "snapshot=/nowhere/snapshot.pt"),
        "no snapshot at /nowhere/snapshot.pt",
    ),
]


@pytest.mark.parametrize(
    ("script", "args", "expected"), WRONG, ids=[" ".join(w[1]) or "nothing" for w in WRONG]
)
def test_wrong_input_gets_one_clear_line_and_exit_code_2(cli, script, args, expected):
    out = cli(script, *args)
    assert out.code == 2 and expected in out.err, out
    assert out.err.count("\n") == 1 and out.err.startswith("error: ") and out.out == ""
    assert not cli.root.exists()  # nothing was left behind


@pytest.mark.parametrize(("script", "args", "expected"), [WRONG[0], WRONG[4], WRONG[9], WRONG[25]])
def test_wrong_input_reads_the_same_from_a_true_process(tmp_path, script, args, expected):
    out = finish(process(script, "preset=smoke", f"run_root={tmp_path}", *args))
    assert out.code == 2 and expected in out.err and out.err.count("\n") == 1 and out.out == ""


def test_snapshots_that_do_not_fit_are_refused_by_name(cli, tmp_path):
    assert cli("pretrain").code == 0
    path = snapshot_of(cli)
    for args, expected in [
        (
            ("task=quadruped_run", f"snapshot={path}"),
            "pre-trained with domain=walker, not quadruped",
        ),
        (
            ("task=walker_run", "agent=amped_literal", f"snapshot={path}"),
            "agent=amped, not amped_literal",
        ),
        (("task=walker_run", "skill_dim=8", f"snapshot={path}"), "skill_dim=8 does not fit"),
        (
            ("task=walker_run", "learner.layers=2", f"snapshot={path}"),
            "learner.layers=2 does not fit",
        ),
        (("task=walker_run", "learner.layers=2"), "(variant smoke,learner.layers=2, seed 1)"),
        (("task=walker_run", "snapshot_ts=7"), "frames present: smoke seed_1: 60, 120"),
        (("task=walker_run", "seed=9"), "seed 9) below"),
        (("task=walker_run", "skills=fixed", "skills.index=16"), "choose 0 to 15"),
    ]:
        out = cli("finetune", *args)
        assert out.code == 2 and expected in out.err and out.err.count("\n") == 1, out
    assert not (cli.root / "finetune").exists()


class Trap:
    """Pickles into a call; loading it must not make the call."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_files_that_are_no_snapshots_are_refused_and_never_executed(cli, tmp_path):
    assert cli("pretrain").code == 0
    good = snapshot_of(cli).read_bytes()
    torch.save(
        {"kind": "snapshot", "frame": 1, "learner": Trap(str(tmp_path / "sprung"))},
        tmp_path / "trap.pt",
    )
    torch.save([1, 2], tmp_path / "list.pt")
    torch.save({"kind": "snapshot", "format": 1}, tmp_path / "empty.pt")
    (tmp_path / "half.pt").write_bytes(good[: len(good) // 2])
    (tmp_path / "text.pt").write_text("not a snapshot")
    for name in ("trap", "list", "empty", "half", "text"):
        out = cli("finetune", "task=walker_run", f"snapshot={tmp_path / name}.pt")
        assert out.code == 2 and f"{name}.pt" in out.err and out.err.count("\n") == 1, out
    assert not (tmp_path / "sprung").exists()


# ----------------------------------------------------------------------------- surroundings, faults


def test_an_unwritable_place_is_named(cli, tmp_path):
    (tmp_path / "file").write_text("")
    out = cli("pretrain", f"run_root={tmp_path / 'file'}")
    assert out.code == 2 and "cannot write to" in out.err and "run_root=DIR" in out.err


def test_a_full_disk_leaves_the_old_file_as_it_was(tmp_path):
    """A file-size limit makes the kernel refuse the write as a full disk does."""
    path = tmp_path / "snapshot.pt"
    save_torch(path, {"kind": "snapshot", "x": torch.arange(5)})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(UserError, match=r"cannot write .*intact"):
            save_torch(path, {"kind": "snapshot", "x": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert torch.equal(torch.load(path, weights_only=True)["x"], torch.arange(5))
    assert [p.name for p in tmp_path.iterdir()] == ["snapshot.pt"]


def test_a_full_disk_ends_a_run_in_one_line(tmp_path):
    out = finish(
        process(
            "pretrain",
            "preset=smoke",
            f"run_root={tmp_path}",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000)),
        )
    )
    assert out.code == 2 and "cannot write" in out.err and "Traceback" not in out.err


def test_a_loss_that_is_not_finite_stops_the_run_and_is_named(cli):
    out = cli("pretrain", "learner.lr=1e30")
    assert out.code == 2 and re.search(r"(became (nan|inf)|is not finite).* frame \d+", out.err), (
        out.err
    )


def test_tensorboard_is_a_switch(cli):
    assert cli("finetune", "agent=ddpg", "task=walker_walk", "use_tb=true", "variant=tb").code == 0
    assert list(cli.root.rglob("events.out.tfevents*"))
    assert cli("finetune", "agent=ddpg", "task=walker_walk").code == 0
    assert len(list(cli.root.rglob("events.out.tfevents*"))) == 1

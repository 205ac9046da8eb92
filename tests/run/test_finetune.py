"""Fine-tuning regimes: every one for every method with numbered skills, exact resume, frozen
skills, whose snapshot."""

import json

import numpy as np
import pytest
import torch

from agent.policy import load_policy
from tests.kit.cli import assert_same_run, rows
from tests.kit.runs import stop_at
from utils import load_snapshot, load_torch

AGENTS = ("amped", "amped_release", "diayn", "becl", "cesd", "comsd", "metra_discrete")
SELECTORS = ("selector", "selector_release")
# How the method's own rule evaluates; the others: fixed.
NATIVE = {"diayn": "per_call", "metra_discrete": "per_call"}
PARTS = ("actor.", "critics.", "targets.")  # of a selector's network
SKILLS = 3


def pretrain(cli, agent="amped", *args, seed=1, skills=SKILLS, frames=40):
    """A few frames of pre-training; the path of its snapshot."""
    done = cli(
        "pretrain",
        f"agent={agent}",
        "variant=v",
        f"seed={seed}",
        f"skill_dim={skills}",
        "snapshots=[]",
        f"num_train_frames={frames}",
        *args,
    )
    assert done.code == 0, done.err
    return cli.root / f"pretrain/walker/{agent}/v/seed_{seed}/snapshots/snapshot_{frames}.pt"


def finetune(cli, *args, agent="amped", variant="v"):
    """A fine-tuning from that snapshot, and its directory."""
    done = cli(
        "finetune",
        f"agent={agent}",
        "task=walker_run",
        f"variant={variant}",
        "pretrain_variant=v",
        *args,
    )
    name = next((a.partition("=")[2] for a in args if a.startswith("skills=")), "switching")
    folder = {"fixed": "fixed_random"}.get(name, name)
    return done, cli.root / f"finetune/walker_run/{agent}/{variant}/{folder}/seed_1"


def final_snapshot(run):
    (path,) = (run / "snapshots").glob(
        f"snapshot_{json.loads((run / 'result.json').read_text())['frame']}.pt"
    )
    return load_snapshot(path)


def same(a, b):
    """Two state dicts hold the same names and, bit for bit, the same tensors."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def under(state, prefix):
    return {name: value for name, value in state.items() if name.startswith(prefix)}


def choices(run):
    with np.load(run / "choices.npz") as stored:
        return {name: stored[name] for name in stored.files}


# -------------------------------------------------------------------------------- every regime runs


@pytest.mark.parametrize("agent", AGENTS)
def test_every_regime_finetunes_the_same_snapshot(cli, agent):
    snapshot = pretrain(cli, agent)
    assert load_snapshot(snapshot)["skills"] == {}
    rules = {
        "selector": "greedy",
        "selector_release": "greedy",
        "switching": "per_episode",
        "fixed": "fixed",
        "native": NATIVE.get(agent, "fixed"),
    }
    for regime, rule in rules.items():
        done, run = finetune(cli, f"skills={regime}", "num_eval_episodes=2", agent=agent)
        assert done.code == 0, done.err
        result = json.loads((run / "result.json").read_text())
        assert (result["agent"], result["skills"], result["pretrained"]) == (
            agent,
            regime,
            str(snapshot),
        )
        evaluations = rows(run / "eval.csv")
        assert [row["frame"] for row in evaluations] == ["0", "40", "80"]
        assert {(row["skills"], row["episodes"]) for row in evaluations} == {(rule, "2")}
        learned = final_snapshot(run)["skills"]
        if regime not in SELECTORS:
            assert learned == {} and not list(run.glob("choices.*"))
            continue
        assert (run / "choices.png").read_bytes().startswith(b"\x89PNG")
        assert f"picture: {run / 'choices.png'}" in done.out
        assert all(under(learned, part) for part in PARTS)
        # The last bias: a logit per skill.
        assert under(learned, "actor.").popitem()[1].shape == (SKILLS,)
        chosen = choices(run)
        assert {name: array.shape for name, array in chosen.items()} == {
            "training": (1, 80),
            "evaluation": (2, 5),
        }
        assert all(((array >= 0) & (array < SKILLS)).all() for array in chosen.values())


def test_choices_hold_a_row_per_episode_and_minus_one_past_its_end(cli):
    primal = "domain.primal_task=dummy"  # episodes of 5 steps
    pretrain(cli, "amped", primal)
    done, run = finetune(
        cli,
        "skills=selector",
        primal,
        "task.env=dummy",
        "num_train_frames=82",
        "num_eval_episodes=4",
        "eval_episode_steps=3",
    )
    assert done.code == 0, done.err
    chosen = choices(run)
    assert chosen["training"].shape == (10, 5) and chosen["evaluation"].shape == (4, 3)
    assert ((chosen["training"][:-1] >= 0) & (chosen["training"][:-1] < SKILLS)).all()
    last = chosen["training"][-1]  # 82 frames: the last episode has come to its second step
    assert (last[:2] >= 0).all() and (last[2:] == -1).all()


# ------------------------------------------------------------------------------------- exact resume


@pytest.mark.parametrize("regime", SELECTORS)
def test_a_stopped_selector_resumes_bit_for_bit(cli, monkeypatch, regime):
    """Stopped where an evaluation is due, and again between two checkpoints."""
    pretrain(cli)
    args = (f"skills={regime}", "snapshots=[60]")
    done, whole = finetune(cli, *args, variant="whole")
    assert done.code == 0, done.err
    for frame in (40, 52):
        with monkeypatch.context() as patch:
            stop_at(patch, frame)
            done, pieces = finetune(cli, *args, variant="pieces")
            assert done.code == 143 and f"saved at frame {frame}" in done.err
    done, _ = finetune(cli, *args, variant="pieces")
    assert done.code == 0 and "continuing at frame 52" in done.out
    assert_same_run(whole, pieces)
    for name in ("snapshot_60.pt", "snapshot_80.pt"):
        ours, theirs = (
            load_snapshot(run / "snapshots" / name)["skills"] for run in (whole, pieces)
        )
        assert ours and same(ours, theirs)
    ours, theirs = choices(whole), choices(pieces)
    assert ours.keys() == theirs.keys() and all(
        np.array_equal(ours[name], theirs[name]) for name in ours
    )
    ours, theirs = (json.loads((run / "result.json").read_text()) for run in (whole, pieces))
    assert all(ours[key] == theirs[key] for key in ("score", "final", "curve", "frame"))


# ------------------------------------------------------------------------------------------- frozen


@pytest.mark.parametrize("agent", ["amped", "amped_release", "cesd"])
def test_frozen_skills_stay_bit_equal_while_the_selector_learns(cli, agent):
    source = load_snapshot(pretrain(cli, agent))
    done, run = finetune(
        cli, "skills=selector", "learner.frozen=true", "snapshots=[1]", agent=agent
    )
    assert done.code == 0, done.err
    before, after = load_snapshot(run / "snapshots/snapshot_1.pt"), final_snapshot(run)
    for part in ("actor.", "critic.", "target."):
        assert under(after["learner"], part)
    assert same(before["learner"], after["learner"])
    assert same(under(source["learner"], "actor."), under(after["learner"], "actor."))
    for part in PARTS:
        assert not same(under(before["skills"], part), under(after["skills"], part)), part
    assert json.loads((run / "result.json").read_text())["frozen"] is True
    assert not any(
        column.startswith(("critic", "actor/")) for row in rows(run / "train.csv") for column in row
    )


def test_frozen_skills_act_with_the_mean_from_the_first_step(cli, monkeypatch):
    policy = load_policy(pretrain(cli))
    for frozen in (True, False):
        with monkeypatch.context() as patch:
            stop_at(patch, 30)
            done, run = finetune(
                cli,
                "skills=selector",
                f"learner.frozen={frozen}".lower(),
                variant=f"frozen_{frozen}",
            )
            assert done.code == 143, done
        memory = load_torch(run / "checkpoint_30.pt", "checkpoint")["memory"]
        obs, skill, action = (
            memory["fields"][name][:30].numpy() for name in ("obs", "skill", "action")
        )
        mean = np.array([policy.act(o, z) for o, z in zip(obs, skill, strict=True)])
        assert (skill.sum(1) == 1).all()
        if frozen:
            np.testing.assert_array_equal(action, mean)
        else:
            assert (action != mean).any(1).all()  # uniform for 20 steps, then with noise


@pytest.mark.parametrize(
    ("script", "args", "expected"),
    [
        (
            "finetune",
            ("agent=ddpg", "task=walker_run"),
            "agent=ddpg has none: use learner.frozen=false",
        ),
        ("pretrain", ("agent=amped",), "learner.frozen=true has nothing to train in pre-training"),
    ],
)
def test_frozen_is_refused_where_there_is_nothing_to_freeze(cli, script, args, expected):
    refused = cli(script, *args, "learner.frozen=true")
    assert (
        refused.code == 2
        and expected in refused.err
        and refused.err.count("\n") == 1
        and refused.out == ""
    )
    assert refused.err.startswith("error: ") and not cli.root.exists()


# ----------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("agent", "regimes"),
    [
        ("cic", (*SELECTORS, "oracle")),
        ("rnd", (*SELECTORS, "oracle")),
        ("aps", ("selector",)),
        ("dads", ("oracle",)),
        ("metra_continuous", ("selector_release",)),
        ("ddpg", ("selector",)),
    ],
)
def test_agents_without_numbered_skills_are_told_so_before_a_snapshot_is_looked_for(
    cli, agent, regimes
):
    alternative = "skills=none" if agent in ("rnd", "ddpg") else "skills=switching, fixed or native"
    for regime in regimes:
        refused = cli("finetune", f"agent={agent}", "task=walker_run", f"skills={regime}")
        assert refused.code == 2 and refused.err.count("\n") == 1 and refused.out == "", refused
        assert refused.err.startswith(
            f"error: skills={regime} chooses among numbered skills; agent={agent} has "
        )
        assert (
            f"use {alternative}, or an agent with one-hot skills" in refused.err
            and "snapshot" not in refused.err
        )
    assert not cli.root.exists()


# -------------------------------------------------------------------- whose snapshot, which weights


def test_a_seed_takes_its_own_pretraining_or_says_whose_it_takes(cli):
    snapshot = pretrain(cli)
    refused, _ = finetune(cli, "seed=2")
    assert (
        refused.code == 2
        and "seed 2) below" in refused.err
        and "frames present: v seed_1: 40" in refused.err
    )
    assert not (cli.root / "finetune").exists()

    given, run = finetune(cli, "seed=2", f"snapshot={snapshot}", variant="given")
    result = json.loads((run.parent / "seed_2/result.json").read_text())
    assert (
        given.code == 0
        and f"note: seed 2 starts from the snapshot of seed 1 in {snapshot}\n" in given.out
    )
    assert (result["seed"], result["pretrained_seed"], result["pretrained"]) == (
        2,
        1,
        str(snapshot),
    )

    pretrain(cli, seed=2, frames=20)
    # Seed 1 has a later snapshot, which is not its own.
    own, run = finetune(cli, "seed=2", variant="own")
    result = json.loads((run.parent / "seed_2/result.json").read_text())
    assert own.code == 0 and "note:" not in own.out
    assert (result["seed"], result["pretrained_seed"], result["pretrained_frame"]) == (2, 2, 20)


def test_every_regime_starts_from_the_same_weights_and_is_judged_on_the_same_episodes(cli):
    """Before the first step, and with one skill so that there is nothing to choose."""
    source = load_snapshot(pretrain(cli, skills=1))["learner"]
    starts, returns = {}, {}
    for regime in ("switching", "fixed", "native", *SELECTORS):
        done, run = finetune(cli, f"skills={regime}", "num_train_frames=0", "num_eval_episodes=2")
        assert done.code == 0, done.err
        starts[regime] = final_snapshot(run)["learner"]
        (row,) = rows(run / "eval.csv")
        returns[regime] = row["returns"]
    assert all(same(starts["switching"], start) for start in starts.values())
    assert len(set(returns.values())) == 1, returns
    assert same(under(source, "critic.trunk."), under(starts["selector"], "critic.trunk."))
    heads = [name for name in source if name.startswith("critic.q") and name.endswith("weight")]
    # drawn anew
    assert heads and not any(torch.equal(source[name], starts["selector"][name]) for name in heads)
    chosen = choices(run)
    assert len(chosen["training"]) == 0 and (chosen["evaluation"] == np.zeros((2, 5))).all()

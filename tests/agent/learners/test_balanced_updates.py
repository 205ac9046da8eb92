"""Every resolver and schedule in whole updates of real configs: DDPG and PPO, compiled, on the meta
device, stopped and continued."""

import pytest
import torch
import yaml

from benchmarks.cost import updater
from run.build import make_surgery
from run.cli.words import options
from tests.kit.cli import assert_same_run, table
from tests.kit.configs import composed
from tests.kit.learners import TWO, Tape, Traced, make_ddpg, task_and_negative
from tests.kit.meta import build, learn_twice
from tests.kit.runs import stop_at, undocumented
from utils import load_snapshot

NEW = sorted(set(options("surgery")) - {"sum", "pcgrad", "pcgrad_symmetric"})
HEADS = "learner.critic_heads=per_stream"
ALL = (HEADS, "learner.surgery_scope=all")
FULL = (*ALL, "surgery=famo", "balance=hold", "learner.reward_scale=per_stream")
MAZE = ("domain=tree_maze", "skill_dim=3")


def compiled_beside_plain(plain, traced, objectives, batches):
    """The same metrics from both, update by update."""
    capture = Traced()
    for batch in batches:
        expected = plain.update(objectives[0], [batch])
        found = capture(traced.job(objectives[1]), [batch])
        assert expected.keys() == found.keys()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-3, atol=1e-4)
    return expected


@pytest.mark.parametrize("name", NEW)
def test_a_compiled_update_gives_the_numbers_of_the_plain_one(name):
    torch._dynamo.reset()
    config = composed("pretrain", "preset=smoke", f"surgery={name}")
    scope = "all" if name == "famo" else "critic"
    settings = dict(critic_heads="per_stream", surgery_scope=scope, reward_scale="per_stream")
    plain, traced = (
        make_ddpg(streams=TWO, surgery=make_surgery(config["surgery"], TWO, None), **settings)
        for _ in range(2)
    )
    objectives = task_and_negative(), task_and_negative()
    metrics = compiled_beside_plain(plain, traced, objectives, Tape(0, 1, 2).batches)
    assert ("surgery_share/diversity" in metrics) == (name == "famo")
    if name == "famo":  # its weights moved, and alike
        for site in ("critic_surgery", "actor_surgery"):
            moved = getattr(plain, site).logits
            assert moved.abs().min() > 0
            torch.testing.assert_close(getattr(traced, site).logits, moved, rtol=1e-3, atol=1e-6)
        assert not torch.equal(plain.critic_surgery.logits, plain.actor_surgery.logits)


def test_amped_with_everything_is_a_single_graph_for_the_compiler():
    torch._dynamo.reset()
    plain, traced = (updater("amped", "preset=smoke", *FULL) for _ in range(2))
    plain.learner.capture, traced.learner.capture = None, Traced()
    for _ in range(3):
        expected, found = plain(), traced()
        assert expected.keys() == found.keys()
        for name in expected:
            torch.testing.assert_close(found[name], expected[name], rtol=2e-3, atol=1e-4)
    assert expected["balance/share"] != 0.5


@pytest.mark.parametrize(
    "words",
    [
        *((f"surgery={name}",) for name in NEW),
        (*ALL, "surgery=cagrad", "balance=linear"),
        (*ALL, "surgery=sum", "balance.share=0.3"),
        FULL,
    ],
    ids=" ".join,
)
def test_learning_stays_on_its_device(words):
    learn_twice(*build(composed("pretrain", "preset=smoke", "agent=amped", *words)))


@pytest.mark.parametrize("name", NEW)
@pytest.mark.parametrize("words", [(), (HEADS, "learner.surgery_scope=actor")])
def test_every_resolver_moves_ddpg_otherwise_than_the_sum(name, words):
    outcomes = []
    for surgery in (name, "sum"):
        update = updater("amped", "preset=smoke", f"surgery={surgery}", *words)
        for _ in range(2):
            metrics = update()
        assert all(value.isfinite() for value in metrics.values())
        outcomes.append(torch.cat([p.detach().flatten() for p in update.learner.parameters()]))
    assert not torch.equal(*outcomes)


@pytest.mark.parametrize(
    "name, scope", [*((name, "all") for name in NEW), ("famo", "policy"), ("famo", "value")]
)
def test_every_resolver_runs_under_ppo(cli, name, scope):
    words = (*MAZE, f"surgery={name}", f"learner.surgery_scope={scope}", "num_train_frames=80")
    assert cli("pretrain", *words, "snapshots=[]", "eval_every_frames=80", "variant=v").code == 0
    (row,) = table(cli.root / "pretrain/tree_maze/amped/v/seed_1/train.csv")
    assert set(undocumented(row)) <= {"seconds", "fps"}
    assert ("surgery_share/diversity" in row) == (name == "famo")


@pytest.mark.parametrize("where", [("domain=walker",), MAZE], ids=["ddpg", "ppo"])
def test_a_stopped_run_with_states_of_its_own_resumes_bit_for_bit(cli, monkeypatch, where):
    words = ("pretrain", *where, "surgery=famo", "balance=hold")
    if where != MAZE:
        words = (*words, *FULL[:2], "learner.reward_scale=per_stream")
    assert cli(*words, "variant=whole").code == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 240 if where == MAZE else 71)
        assert cli(*words, "variant=stopped").code == 143
    assert cli(*words, "variant=stopped").code == 0
    base = cli.root / f"pretrain/{where[0].partition('=')[2]}/amped"
    assert_same_run(base / "whole/seed_1", base / "stopped/seed_1")
    last = "snapshot_480.pt" if where == MAZE else "snapshot_120.pt"
    held = load_snapshot(base / "whole/seed_1/snapshots" / last)["learner"]
    assert held["stream_weights.logit"] != 0
    logits = [value for key, value in held.items() if key.endswith("surgery.logits")]
    assert len(logits) == (1 if where == MAZE else 2) and all(l.abs().max() > 0 for l in logits)


def test_finetuning_finds_the_pretraining_with_the_same_balance(cli):
    words = ("balance=linear", "surgery=mgda", "learner.reward_scale=per_stream", HEADS)
    assert cli("pretrain", *words).code == 0
    done = cli("finetune", "task=walker_walk", "num_train_frames=0", *words)
    assert done.code == 0, done.err


def test_a_finished_run_from_before_these_keys_is_recognised(cli):
    assert cli("pretrain", "num_train_frames=40", "snapshots=[]", "variant=old").code == 0
    (path,) = cli.root.glob("**/config.yaml")
    config = yaml.safe_load(path.read_text())
    del config["balance"], config["learner"]["reward_scale"], config["learner"]["reward_window"]
    path.write_text(yaml.safe_dump(config))
    again = cli("pretrain", "num_train_frames=40", "snapshots=[]", "variant=old")
    assert again.code == 0 and "is finished" in again.out
    other = cli(
        "pretrain", "num_train_frames=40", "snapshots=[]", "variant=old", "balance.share=0.2"
    )
    assert other.code == 2 and "balance.share (None there, 0.2 here)" in other.err

"""Every configs/agent/*.yaml keeps the promises of the house."""

import pytest
import torch

from agent.skills.sources import SkillSpace
from replay_buffer import Batch
from run.build import make_objective
from tests.kit import meta
from tests.kit.cli import assert_same_run, rows
from tests.kit.configs import AGENTS, PRETRAINED, composed
from tests.kit.runs import stop_at, undocumented
from utils import Streams

OBS, ACTION, BATCH = 24, 6, 64


class Env:
    obs_dim, action_dim = OBS, ACTION


def objective_and_batch(agent: str, seed: int = 0):
    config = composed("pretrain", f"agent={agent}", "preset=smoke")
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    torch.manual_seed(seed)
    objective = make_objective(config, Env, space.dim, Streams(seed))
    rng = Streams(seed).numpy("test")
    skill = torch.tensor(rng.normal(size=(BATCH, 0))).float()
    if space.dim:
        skill = torch.stack([torch.from_numpy(space.sample(rng)) for _ in range(BATCH)])
    normal = (
        torch.from_numpy(rng.normal(size=(BATCH, n))).float() for n in (OBS, ACTION, 1, OBS, OBS)
    )
    obs, action, reward, next_obs, next_obs_1 = normal
    return objective, Batch(
        obs, action.tanh(), reward, torch.full((BATCH, 1), 0.97), next_obs, skill, next_obs_1
    )


@pytest.mark.parametrize("agent", PRETRAINED)
def test_it_pretrains_resumes_bit_for_bit_and_finetunes(cli, monkeypatch, agent):
    assert cli("pretrain", f"agent={agent}").code == 0
    base = cli.root / f"pretrain/walker/{agent}"
    run = base / "smoke/seed_1"
    assert sorted(p.name for p in (run / "snapshots").iterdir()) == [
        "snapshot_120.pt",
        "snapshot_60.pt",
    ]
    assert [row["frame"] for row in rows(run / "eval.csv")] == ["0", "40", "80", "120"]
    assert not list(run.glob("checkpoint*"))
    assert not undocumented(rows(run / "train.csv")[-1])

    with monkeypatch.context() as patch:
        stop_at(patch, 70)
        assert cli("pretrain", f"agent={agent}", "variant=stopped").code == 143
    assert "continuing at frame 70" in cli("pretrain", f"agent={agent}", "variant=stopped").out
    assert_same_run(run, base / "stopped/seed_1")

    assert cli("finetune", f"agent={agent}", "task=walker_flip", "snapshot_ts=60").code == 0
    (result,) = (cli.root / f"finetune/walker_flip/{agent}").rglob("result.json")
    assert result.parent.parent.name.endswith("@60")
    assert cli("finetune", f"agent={agent}", "task=walker_flip", "skills=native").code == 0
    assert (cli.root / f"finetune/walker_flip/{agent}/smoke/native/seed_1/result.json").exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_stopped_finetuning_resumes_bit_for_bit(cli, monkeypatch, agent):
    if agent != "ddpg":
        assert cli("pretrain", f"agent={agent}", "variant=v").code == 0
    args = ("finetune", f"agent={agent}", "task=walker_walk", "pretrain_variant=v")
    assert cli(*args, "variant=whole").code == 0
    with monkeypatch.context() as patch:
        stop_at(patch, 50)
        assert cli(*args, "variant=stopped").code == 143
    assert "continuing at frame 50" in cli(*args, "variant=stopped").out
    runs = sorted((cli.root / f"finetune/walker_walk/{agent}").glob("*/*/seed_1"))
    assert len(runs) == 2
    assert_same_run(*runs)


@pytest.mark.parametrize("agent", PRETRAINED)
def test_rewards_are_one_number_per_row_finite_and_without_gradient(agent):
    objective, batch = objective_and_batch(agent)
    for remaining in reversed(range(objective.batches_per_update)):
        metrics = objective.update(batch, final=remaining == 0)
    rewards, parts = objective.rewards(batch)
    assert tuple(rewards) == tuple(objective.streams)
    for reward in rewards.values():
        assert reward.shape == (BATCH, 1) and reward.isfinite().all() and not reward.requires_grad
    for metric in {**metrics, **parts}.values():
        assert metric.ndim == 0 and metric.isfinite() and not metric.requires_grad


@pytest.mark.parametrize("agent", PRETRAINED)
def test_all_state_is_in_the_state_dict(agent, tmp_path):
    """Two objects, one loaded from the other's saved state, go on alike; without it they do not."""
    first, batch = objective_and_batch(agent)
    for _ in range(3):
        first.update(batch)
        first.rewards(batch)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second, _ = objective_and_batch(agent, seed=1)
    before = {k: v.clone() for k, v in second.state_dict().items() if isinstance(v, torch.Tensor)}
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    if first.generator is not None:  # generators travel with the run's random streams
        second.generator.set_state(first.generator.get_state())
    for _ in range(2):
        first.update(batch)
        second.update(batch)
        ours, theirs = first.rewards(batch)[0], second.rewards(batch)[0]
        assert all(torch.equal(ours[name], theirs[name]) for name in first.streams)
    ours, theirs = first.state_dict(), second.state_dict()
    tensors = [k for k, v in ours.items() if isinstance(v, torch.Tensor)]
    assert all(torch.equal(ours[k], theirs[k]) for k in tensors)
    assert any(not torch.equal(before[k], theirs[k]) for k in tensors)


@pytest.mark.parametrize("agent", AGENTS)
def test_learning_needs_no_host(agent):
    """On the meta device an .item(), a branch on a tensor or a tensor of the host raises."""
    for words in (
        (f"agent={agent}", "preset=smoke"),
        (f"agent={agent}", "preset=smoke", "obs_type=pixels"),
    ):
        learn_on_meta(agent, words)


def learn_on_meta(agent: str, words: tuple[str, ...]) -> None:
    meta.learn_twice(*meta.build(composed("finetune", *words, "task=walker_run")))
    if agent in PRETRAINED:
        meta.learn_twice(*meta.build(composed("pretrain", *words)))

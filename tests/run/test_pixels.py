"""Runs that see pixels: every agent, exact resume, what a snapshot decides, policies and films.

They play the dummy environment, which draws itself: no OpenGL is needed.
"""

import re

import numpy as np
import pytest
import torch

from agent.policy import load_policy
from envs import RenderSettings
from frame_replay import FrameReplay
from run import build
from run.cli.schema import flatten
from run.evaluation import Lane
from run.play import evaluate
from tests.kit.cli import assert_same_run, rows
from tests.kit.configs import AGENTS, PRETRAINED, composed
from tests.kit.runs import stop_at, undocumented
from utils import ROOT, UserError, load_snapshot, save_torch

DUMMY = ("obs_type=pixels", "domain.primal_task=dummy")
TASK = ("obs_type=pixels", "task=walker_run", "task.env=dummy")


def parts_of(phase: str, *words: str):
    config = composed(phase, "preset=smoke", "obs_type=pixels", *words)
    return config, build.make_parts(config, "dummy", torch.device("cpu"))


def gather(parts, steps: int) -> None:
    rng = np.random.default_rng(0)
    step = None
    for _ in range(steps):
        if step is None or step.last():
            step = parts.env.reset()
            parts.memory.begin(step.observation)
        action, skill = rng.uniform(-1, 1, 2).astype(np.float32), parts.skills.space.sample(rng)
        step = parts.env.step(action)
        parts.memory.add(action, skill, step.reward, step.discount, step.observation)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_learns_on_features_and_its_encoder_where_it_should(agent):
    phase, *words = ("finetune", "task=walker_run") if agent == "ddpg" else ("pretrain",)
    config, parts = parts_of(phase, f"agent={agent}", "pixels.critic_encoder=false", *words)
    assert isinstance(parts.memory, FrameReplay)
    gather(parts, 60)
    if parts.objective.observes:
        seen = parts.sight.see(parts.env.reset().observation)
        for _ in range(20):
            parts.objective.observe(seen, seen)
    before = [p.clone() for p in parts.learner.encoder.parameters()]
    for step in (0, 2):
        metrics = parts.learner.learn(parts.memory, parts.objective, step)
        assert all(value.isfinite() for value in metrics.values())
    moved = any(not torch.equal(a, b) for a, b in zip(before, parts.learner.encoder.parameters()))
    # RND sees pictures by encoders of its own; the others' losses are on features.
    assert moved == (config["pixels"]["update_encoder"] and agent not in ("rnd", "ddpg"))
    assert config["pixels"]["update_encoder"] == (agent not in ("cic", "cesd", "comsd"))


@pytest.mark.parametrize("agent", ["amped", "amped_literal", "becl"])
def test_a_stopped_pretraining_resumes_bit_for_bit(cli, monkeypatch, agent):
    """Stopped in mid-episode: frame 34 is the second step of an episode of three."""
    args = ("pretrain", f"agent={agent}", *DUMMY)
    assert cli(*args, "variant=whole").code == 0
    for frame in (34, 70):
        with monkeypatch.context() as patch:
            stop_at(patch, frame)
            assert cli(*args, "variant=pieces").code == 143
    assert "continuing at frame 70" in cli(*args, "variant=pieces").out
    base = cli.root / f"pretrain/walker/{agent}"
    assert_same_run(base / "whole/seed_1", base / "pieces/seed_1")
    assert not undocumented(rows(base / "whole/seed_1/train.csv")[-1])


@pytest.mark.parametrize("skills", ["switching", "selector", "selector_release", "bandit"])
def test_a_finetuning_finds_its_pretraining_and_resumes_bit_for_bit(cli, monkeypatch, skills):
    assert cli("pretrain", *DUMMY).code == 0
    args = ("finetune", *TASK, f"skills={skills}")
    whole = cli(*args)
    assert whole.code == 0 and "the only pre-training that fits" in whole.out, whole.err
    (found,) = cli.root.glob("pretrain/walker/amped/*/seed_1")
    args = (*args, "variant=stopped", f"pretrain_variant={found.parent.name!r}")
    with monkeypatch.context() as patch:
        stop_at(patch, 50)
        assert cli(*args).code == 143
    again = cli(*args)
    assert "continuing at frame 50" in again.out, again
    assert_same_run(*(path.parent for path in sorted(cli.root.glob("finetune/**/result.json"))))


def test_what_a_snapshot_saw_decides_for_what_starts_from_it(cli):
    sizes = ("render.size=20", "pixels.channels=3", "pixels.feature_dim=7")
    assert cli("pretrain", *DUMMY, *sizes, "variant=small").code == 0
    args = ("finetune", *TASK, "pretrain_variant=small")
    assert cli(*args).code == 0
    (snapshot,) = cli.root.glob("finetune/**/snapshots/*.pt")
    config = load_snapshot(snapshot)["config"]
    assert config["render"]["size"] == 20 and config["pixels"]["channels"] == 3
    assert "is finished" in cli(*args).out
    wrong = cli(*args, "render.size=24", "variant=other")
    assert wrong.code == 2 and "render.size=24 does not fit" in wrong.err
    file = next(cli.root.glob("pretrain/**/snapshot_120.pt"))
    wrong = cli("finetune", "task=walker_run", "variant=s", f"snapshot={file}")
    assert wrong.code == 2 and "was pre-trained with obs_type=pixels, not states" in wrong.err


def test_a_run_of_states_and_one_of_pixels_have_directories_of_their_own(cli):
    assert cli("pretrain", *DUMMY).code == 0
    assert cli("pretrain", "domain.primal_task=dummy").code == 0
    assert len(list(cli.root.glob("pretrain/walker/amped/*/seed_1/result.json"))) == 2


@pytest.mark.parametrize("skills", ["switching", "selector"])
def test_a_policy_acts_on_pictures_and_gets_its_runs_own_returns(cli, skills):
    assert cli("pretrain", *DUMMY).code == 0
    assert cli("finetune", *TASK, f"skills={skills}").code == 0
    (result,) = cli.root.glob("finetune/**/result.json")
    policy = load_policy(result.parent)
    assert policy.obs_shape == (9, 24, 24) and policy.chooses == (skills == "selector")
    last = rows(result.parent / "eval.csv")[-1]
    found = evaluate(policy, "dummy", episodes=1, steps=5)
    assert f"{found.mean:.4f}" == f"{float(last['return_mean']):.4f}"
    with pytest.raises(ValueError, match="9, 24, 24"):
        policy.act(np.zeros(5, np.float32))


@pytest.mark.parametrize(
    "change", [{"render": None}, {"render": {"size": 10**9, "stack": 3}}, {"pixels": {}}]
)
def test_a_snapshot_that_does_not_say_what_it_saw_is_refused_in_one_line(cli, change):
    assert cli("finetune", "agent=ddpg", *TASK).code == 0
    (path,) = cli.root.glob("finetune/**/snapshots/*.pt")
    payload = load_snapshot(path)
    payload["config"] |= change
    save_torch(path, payload)
    with pytest.raises(UserError) as error:
        load_policy(path)
    assert "\n" not in str(error.value)


def test_an_evaluation_measures_states_not_pictures():
    _, parts = parts_of("pretrain", "agent=diayn")
    lane = Lane(parts.env, parts.skills, 1, parts.sight)
    lane.step(np.zeros(2, np.float32), lane.choose())
    assert lane.last.observation.shape == (9, 24, 24) and lane.states[0].shape == (5,)


def test_the_header_says_what_is_seen_and_how_much_memory_it_takes(cli):
    out = cli("finetune", "agent=ddpg", *TASK, "replay.capacity=500").out
    assert "obs 9 x 24 x 24" in out and "replay 0.001 GB" in out
    done = cli("finetune", "agent=ddpg", *TASK, "replay.capacity=900000000", "variant=large")
    assert done.code == 2 and "out of memory" in done.err and "replay.capacity" in done.err


@pytest.mark.parametrize("preset", ["paper", "cpu", "smoke"])
def test_urlbs_settings_are_the_papers_preset_and_states_stay_as_they_were(preset):
    config = composed("pretrain", f"preset={preset}", "obs_type=pixels")
    assert config["action_repeat"] == 2 and config["render"]["stack"] == 3
    assert config["learner"]["layers"] == 2 and config["learner"]["action_input"] == "head"
    if preset == "paper":
        assert RenderSettings(**config["render"]).shape == (9, 84, 84)
        assert config["render"]["shadows"] and config["learner"]["batch_size"] == 256
        assert config["learner"]["lr"] == 1e-4 and config["replay"]["capacity"] == 1_000_000
        assert config["pixels"]["feature_dim"] == 50 and config["pixels"]["channels"] == 32
        assert build.images_of(config).features == 39_200
    states = composed("pretrain", f"preset={preset}")
    assert states["action_repeat"] == 1 and states["learner"]["layers"] == 1
    assert states["learner"]["batch_size"] == states["preset"]["ddpg"]["batch_size"]


def test_the_register_of_pixels_is_what_the_paper_preset_composes_to():
    config = flatten(composed("pretrain", "obs_type=pixels"))
    rows = re.findall(r"^\| (P\d+) \| (.+) \|$", (ROOT / "docs/fidelity.md").read_text(), re.M)
    assert [number for number, _ in rows] == [f"P{n}" for n in range(1, len(rows) + 1)]
    assert len(rows) == 13
    for number, row in rows:
        _, key, _, _, default, _ = row.split(" | ")
        assert str(config[key.strip("`")]).lower() == default, number


def test_pretrained_agents_are_all_there():
    assert set(AGENTS) - set(PRETRAINED) == {"ddpg"}

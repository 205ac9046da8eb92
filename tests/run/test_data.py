"""The data of a pre-training: kept whole, cut at the snapshot's frame, given the task's rewards, mixed
into batches; and a run that learns from it resumes bit for bit."""

import numpy as np
import pytest
import torch

import envs
from replay_buffer import MixedReplay
from run import data
from run.loop import Runner
from tests.kit.cli import assert_same_run, rows
from tests.kit.replay import SKILLS, make
from tests.kit.runs import stop_at
from utils import UserError, load_policy, load_snapshot, stream_seed

WHERE = "pretrain/walker/amped/smoke/seed_1"


@pytest.fixture
def kept(whole):
    """The run root of an AMPED pre-training that kept its data."""
    return whole("save_replay=true")


@pytest.fixture
def reuse(kept):
    """Words of a fine-tuning that starts from its weights and its data."""
    snapshot = kept / WHERE / "snapshots/snapshot_120.pt"
    return ("task=walker_run", "adapt=reuse", f"snapshot={snapshot}")


def replay(root):
    return data.load(root / WHERE / "replay.pt")


def test_keeping_the_data_moves_no_number_of_the_run(cli, kept, whole):
    assert_same_run(kept / WHERE, whole() / WHERE)
    assert not (whole() / WHERE / "replay.pt").exists()


def test_the_data_is_the_runs_own_steps_with_the_rewards_of_every_task(kept):
    """Playing the stored actions again in each task's own environment gives what is stored."""
    found = replay(kept)
    assert found.tasks == ("walker_stand", "walker_walk", "walker_run", "walker_flip")
    assert int(found.has_step().sum()) == 120 and found.frame == 120
    actions = found.columns["action"][found.has_step()]
    for name in found.tasks:
        env = envs.make(name, seed=stream_seed(1, "env"))
        assert np.array_equal(env.reset().observation, found.columns["obs"][0])
        paid = [env.step(action).reward for action in actions]
        np.testing.assert_array_equal(np.float32(paid), found.rewards(name)[found.has_step(), 0])
    np.testing.assert_array_equal(found.rewards("walker_stand"), found.columns["reward"])


def test_data_up_to_a_frame_is_what_had_been_seen_then(kept):
    found = replay(kept)
    cut = found.until(60)
    assert int(cut.has_step().sum()) == 60
    np.testing.assert_array_equal(cut.columns["obs"], found.columns["obs"][: len(cut)])
    assert found.until(120) is found and found.until(500) is found
    with pytest.raises(UserError, match="overwritten since frame 0"):
        found.until(0)


def test_a_reward_that_is_not_stored_is_refused(kept):
    with pytest.raises(UserError, match=r"no reward of quadruped_run, only of walker_stand, walk"):
        replay(kept).rewards("quadruped_run")


def test_stored_physics_tells_the_reward_of_any_environment_of_that_body(whole):
    """Tasks whose rewards are stored anyway show that those from the physics are the same, up to
    the rounding of computing them anew."""
    root = whole("agent=rnd", "domain=quadruped", "save_replay=physics")
    found = data.load(root / "pretrain/quadruped/rnd/smoke/seed_1/replay.pt")
    steps = found.has_step()
    for task in ("quadruped_run", "quadruped_jump"):
        again = data.by_physics(found.columns["physics"], task)[steps]
        assert again.std() > 0
        np.testing.assert_allclose(again, found.rewards(task)[steps], atol=1e-5)
    own = f"{__name__}:standing"
    paid = found.rewards(own)[steps, 0]
    np.testing.assert_allclose(paid, 2 * found.rewards("quadruped_stand")[steps, 0], atol=1e-5)
    with pytest.raises(UserError, match=r"it is of another body; use data=none"):
        found.rewards("walker_run")


def standing(seed):
    """An environment of a user's own: the quadruped paid twice for standing."""
    native = envs.make("quadruped_stand", seed=seed).unwrapped
    pays = native.task.get_reward
    native.task.get_reward = lambda physics: 2 * pays(physics)
    return native


def test_the_memory_of_the_data_holds_its_n_step_transitions_with_the_tasks_rewards(kept):
    found = replay(kept)
    memory = data.as_memory(
        found, "walker_run", nstep=3, gamma=0.9, rng=np.random.default_rng(0), device="cpu"
    )
    step, reward = found.columns["episode_step"], found.rewards("walker_run")[:, 0]
    starts = [i for i in range(len(found) - 3) if step[i + 3] == step[i] + 3]
    assert len(memory) == len(starts) > 100
    for row in (starts[0], starts[50], starts[-1]):
        batch = memory.gather(np.array([row]))
        expected = reward[row] + 0.9 * reward[row + 1] + 0.81 * reward[row + 2]
        assert batch.reward.item() == pytest.approx(expected, rel=1e-6)
        np.testing.assert_array_equal(batch.next_obs[0], found.columns["obs"][row + 3])


# ---- batches of old and new


def filled(count, value):
    """So many transitions whose observations are all this value, under skill 0."""
    memory, obs = make(capacity=200, nstep=3), np.full(2, value, np.float32)
    memory.begin(obs)
    for _ in range(count + 2):
        memory.add(np.zeros(2), np.eye(SKILLS)[0], value, 1.0, obs)
    return memory


@pytest.mark.parametrize(
    ("share", "fresh", "old_rows"),
    [(0.5, 100, 16), (0.25, 100, 8), (0.0, 100, 0), (1.0, 100, 32), (None, 50, 16), (None, 10, 27)],
)
def test_a_batch_holds_the_share_of_old_rows(share, fresh, old_rows):
    mixed = MixedReplay(filled(fresh, 1), filled(50, 7), share=share, skills=None)
    batch = mixed.sample(32)
    assert len(batch.obs) == 32 and int((batch.obs[:, 0] == 7).sum()) == old_rows


def test_a_batch_has_no_more_new_rows_than_there_are_new_transitions():
    new = make(capacity=50)
    mixed = MixedReplay(new, filled(50, 7), share=0.5, skills=None)
    assert len(mixed) == 50 and bool((mixed.sample(8).obs == 7).all())
    mixed = MixedReplay(filled(2, 1), filled(50, 7), share=0.5, skills=None)
    assert int((mixed.sample(8).obs[:, 0] == 1).sum()) == 2


def test_old_rows_may_carry_a_skill_of_now():
    drawn = np.eye(SKILLS, dtype=np.float32)[[2] * 16]
    mixed = MixedReplay(filled(100, 1), filled(50, 7), share=0.5, skills=lambda n: drawn[:n])
    batch = mixed.sample(32)
    assert bool((batch.skill.argmax(1) == torch.where(batch.obs[:, 0] == 7, 2, 0)).all())


# ---- runs


def test_offline_updates_touch_no_environment_and_come_before_the_first_frame(
    cli, reuse, monkeypatch
):
    seen = []
    learn_offline = Runner._learn_offline

    def watched(self):
        before = self.parts.env.get_state()
        learn_offline(self)
        seen.append((self.frame, self.offline, str(before) == str(self.parts.env.get_state())))

    monkeypatch.setattr(Runner, "_learn_offline", watched)
    assert cli("finetune", *reuse, "variant=watched").code == 0
    assert seen == [(0, 6, True)]
    first = rows(cli.root / "finetune/walker_run/amped/watched/switching/seed_1/train.csv")[0]
    assert first["frame"] == "0" and float(first["critic_loss/task"]) > 0


@pytest.mark.parametrize(
    "words",
    [
        ("skills=switching",),
        ("skills=by_data", "data.skill=stored"),
        ("skills=bandit", "data.share=null"),
        ("skills=bandit", "skills.method=ucb", "skills.trial=3"),
        ("skills=selector",),
        ("skills=fixed", "adapt.pull=1", "adapt.critic_first=4", "adapt.moments=true"),
    ],
)
def test_every_regime_with_data_resumes_bit_for_bit(cli, reuse, monkeypatch, words):
    name = "_".join(word.partition("=")[2] for word in words)
    args = (*reuse, *words)
    assert cli("finetune", *args, f"variant={name}_whole").code == 0
    for frame in (11, 33, 52):
        with monkeypatch.context() as patch:
            stop_at(patch, frame)
            assert cli("finetune", *args, f"variant={name}_pieces").code == 143
    assert cli("finetune", *args, f"variant={name}_pieces").code == 0
    base = cli.root / "finetune/walker_run/amped"
    (whole_run,) = base.glob(f"{name}_whole/*/seed_1")
    (pieces,) = base.glob(f"{name}_pieces/*/seed_1")
    assert_same_run(whole_run, pieces)


@pytest.mark.parametrize("rule", ["by_data", "bandit"])
def test_the_policy_acts_alone_under_the_skill_that_was_found(cli, reuse, rule):
    assert cli("finetune", *reuse, f"skills={rule}", "variant=found").code == 0
    run = cli.root / f"finetune/walker_run/amped/found/{rule}/seed_1"
    policy = load_policy(run)
    obs = np.linspace(-1, 1, policy.obs_dim)
    settled = load_snapshot(run / "snapshots/snapshot_80.pt")["settled"]
    assert policy.chooses and sum(settled) == 1
    np.testing.assert_array_equal(policy.act(obs), policy.act(obs, int(np.argmax(settled))))


def test_a_stop_among_the_offline_updates_continues_there(cli, reuse, monkeypatch):
    assert cli("finetune", *reuse, "variant=unbroken").code == 0
    with monkeypatch.context() as patch:
        pause = Runner._pause

        def interrupt(self):
            if self.offline == 4 and self.frame == 0 and self.resumed_offline == 0:
                self.signum = 15
            pause(self)

        patch.setattr(Runner, "_pause", interrupt)
        assert cli("finetune", *reuse, "variant=broken").code == 143
    assert cli("finetune", *reuse, "variant=broken").code == 0
    base = cli.root / "finetune/walker_run/amped"
    assert_same_run(base / "unbroken/switching/seed_1", base / "broken/switching/seed_1")


def test_what_cannot_be_is_one_line(cli, whole):
    plain = f"snapshot={whole() / WHERE / 'snapshots/snapshot_120.pt'}"
    without = cli("finetune", "task=walker_run", "adapt=reuse", plain)
    assert without.code == 2 and "ran without save_replay=true" in without.err
    scratch = cli("finetune", "agent=ddpg", "task=walker_run", "data=relabelled")
    assert (
        scratch.code == 2 and "agent=ddpg has none: use data=none, or give data.file" in scratch.err
    )
    blind = cli("finetune", "task=walker_run", "skills=by_data", plain)
    assert blind.code == 2 and "skills=by_data looks at the data of the pre-training" in blind.err
    maze = cli("pretrain", "domain=tree_maze", "save_replay=true")
    assert maze.code == 2 and "save_replay= is for learner=ddpg" in maze.err
    jaco = cli("pretrain", "domain=jaco", "agent=rnd", "save_replay=true")
    assert jaco.code == 0
    other = cli("finetune", "agent=rnd", "task=jaco_reach_top_right", "data=relabelled")
    assert other.code == 2 and "no reward of jaco_reach_top_right, only of jaco_reach" in other.err


def test_another_agents_data_serves_an_agent_from_scratch(cli, kept):
    file = kept / WHERE / "replay.pt"
    words = ("agent=ddpg", "task=walker_flip", "data=relabelled", f"data.file={file}")
    assert cli("finetune", *words).code == 0
    stored = cli("finetune", *words, "data.skill=stored", "variant=s")
    assert stored.code == 2 and "skills of size 16, this run of size 0" in stored.err

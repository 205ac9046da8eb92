"""The ring gives whole n-step transitions of one episode, each with the skill that chose its
action."""

import io

import numpy as np
import pytest
import torch

from agent.skills.sources import SkillSpace, Switching
from envs.dummy import Dummy
from replay_buffer import DeviceReplayBuffer
from tests.kit.replay import SKILLS, Diary, make, what_happens
from utils import UserError


def odd_lengths(count, longest, seed=3):
    return [int(n) for n in np.random.default_rng(seed).integers(1, longest + 1, count)]


# ---- which rows


@pytest.mark.parametrize("running_episode", [True, False])
@pytest.mark.parametrize("skill_index", ["acting", "legacy"])
@pytest.mark.parametrize(("nstep", "capacity"), [(1, 3), (1, 17), (3, 5), (3, 23), (5, 31)])
def test_every_row_drawn_is_a_whole_transition_of_one_episode(
    nstep, capacity, skill_index, running_episode
):
    """Whatever wraps; with running_episode=false of finished episodes alone, as in the public
    codes."""
    diary = Diary(
        nstep=nstep, capacity=capacity, skill_index=skill_index, running_episode=running_episode
    )
    # Mean 5: the ring wraps several times, and some episodes are shorter than n.
    lengths = odd_lengths(40, 9)
    assert min(lengths) < max(nstep, 2) and sum(lengths) > 5 * capacity
    for i, length in enumerate(lengths):
        for moment, _ in enumerate(diary.play(length, terminal=i % 3 == 0)):
            assert len(diary.memory) == len(diary.starts())
            if (i + moment) % 4 == 0:
                diary.check()
    diary.check()


def test_an_episode_longer_than_the_ring_leaves_only_its_own_tail():
    diary = Diary(capacity=11)
    for length in (4, 60, 2, 30):
        for _ in diary.play(length):
            assert len(diary.memory) == len(diary.starts())
        diary.check()
    assert {episode for episode, _ in diary.starts()} == {3}
    assert len(diary.starts()) == 11 - 3


def test_episodes_shorter_than_n_are_never_drawn():
    diary = Diary()
    for _ in range(12):
        for _ in diary.play(2):
            assert len(diary.memory) == 0
    for _ in diary.play(3):
        pass
    assert diary.starts() == [(12, 0)] and len(diary.memory) == 1
    diary.check()


def test_starts_are_drawn_uniformly():
    diary = Diary(capacity=40)
    for length in (7, 1, 13, 2, 9, 11, 5, 8):
        for _ in diary.play(length):
            pass
    starts, draws = diary.starts(), 60_000
    assert len(starts) < 40 - 8  # invalid rows lie between the valid ones, also at the write head
    batch = diary.memory.sample(draws)
    _, counts = np.unique(batch.obs.numpy(), axis=0, return_counts=True)
    p = 1 / len(starts)
    assert len(counts) == len(starts)
    assert np.abs(counts - draws * p).max() < 4.5 * np.sqrt(draws * p * (1 - p))


def test_batches_have_the_declared_shapes_and_types():
    diary = Diary()
    for _ in diary.play(8):
        pass
    batch = diary.memory.sample(6)
    shapes = {
        "obs": 2,
        "action": 2,
        "reward": 1,
        "discount": 1,
        "next_obs": 2,
        "skill": SKILLS,
        "next_obs_1": 2,
    }
    assert {name: tuple(t.shape) for name, t in batch._asdict().items()} == {
        k: (6, d) for k, d in shapes.items()
    }
    assert all(t.dtype == torch.float32 for t in batch)


def test_a_batch_does_not_change_when_the_ring_moves_on():
    diary = Diary(capacity=9)
    for _ in diary.play(8):
        pass
    batch = diary.memory.sample(8)
    before = [t.clone() for t in batch]
    for _ in diary.play(20):
        pass
    assert all(torch.equal(a, b) for a, b in zip(before, batch, strict=True))


# ---- rewards and discounts


def constant_reward(memory, length, *, last_discount=1.0):
    memory.begin(np.zeros(2, np.float32))
    for step in range(length):
        discount = last_discount if step + 1 == length else 1.0
        memory.add(
            np.zeros(2), np.eye(SKILLS)[0], 1.0, discount, np.array([0, step + 1], np.float32)
        )


def test_constant_reward_gives_the_known_three_step_sum_and_discount():
    memory = make(gamma=0.99)
    constant_reward(memory, 10)
    batch = memory.sample(64)
    np.testing.assert_allclose(batch.reward, 1 + 0.99 + 0.9801, rtol=1e-6)
    np.testing.assert_allclose(batch.discount, 0.970299, rtol=1e-6)


@pytest.mark.parametrize(("last_discount", "bootstrap"), [(0.0, 0.0), (1.0, 0.970299)])
def test_a_true_terminal_stops_the_bootstrap_and_a_time_limit_does_not(last_discount, bootstrap):
    memory = make(gamma=0.99)
    constant_reward(memory, 6, last_discount=last_discount)
    batch = memory.sample(200)
    at_end = batch.next_obs[:, 1] == 6
    assert 0 < at_end.sum() < 200
    np.testing.assert_allclose(batch.discount[at_end], bootstrap, rtol=1e-6)
    np.testing.assert_allclose(batch.discount[~at_end], 0.970299, rtol=1e-6)
    # The rewards before the end all count.
    np.testing.assert_allclose(batch.reward, 2.9701, rtol=1e-6)


def test_partial_discounts_weigh_the_rewards_that_follow():
    memory = make(gamma=0.9)
    memory.begin(np.zeros(2, np.float32))
    for reward, discount in ((1.0, 0.5), (10.0, 0.25), (100.0, 0.75)):
        memory.add(np.zeros(2), np.eye(SKILLS)[0], reward, discount, np.zeros(2, np.float32))
    batch = memory.sample(1)
    assert batch.reward.item() == pytest.approx(
        1 + 0.9 * 0.5 * 10 + 0.9**2 * 0.5 * 0.25 * 100, rel=1e-6
    )
    assert batch.discount.item() == pytest.approx(0.9**3 * 0.5 * 0.25 * 0.75, rel=1e-6)


# ---- in a loop with an environment and a skill source, as the runner drives it


@pytest.mark.parametrize("skill_index", ["acting", "legacy"])
@pytest.mark.parametrize("terminal", [False, True])
def test_the_loop_stores_what_the_environment_and_the_skill_source_said(terminal, skill_index):
    env, length = Dummy(seed=1, length=7, terminal=terminal), 7
    memory = make(
        obs_dim=env.obs_dim,
        action_dim=env.action_dim,
        capacity=37,
        skill_index=skill_index,
        gamma=0.99,
    )
    skills = Switching(
        SkillSpace("one_hot", SKILLS), np.random.default_rng(2), interval=3, eval="per_episode"
    )
    rng, acted, time_step = np.random.default_rng(5), {}, None
    for step in range(150):
        if time_step is None or time_step.last():
            time_step = env.reset()
            memory.begin(time_step.observation)
        obs = time_step.observation
        skill = skills.select(obs, step, first=time_step.first())
        action = rng.uniform(-1, 1, env.action_dim).astype(np.float32)
        acted[int(obs[1]), int(obs[0])] = skill.copy(), action
        time_step = env.step(action)
        memory.add(action, skill, time_step.reward, time_step.discount, time_step.observation)
    batch = memory.sample(400)
    count, episode = batch.obs[:, 0].int().tolist(), batch.obs[:, 1].int().tolist()
    assert max(episode) == 21 and len(set(zip(episode, count))) == len(memory)
    for row, (e, t) in enumerate(zip(episode, count)):
        assert batch.next_obs[row, :2].tolist() == [t + 3, e]
        assert batch.next_obs_1[row, :2].tolist() == [t + 1, e]
        before = max(t - 1, 0) if skill_index == "legacy" else t
        np.testing.assert_array_equal(batch.skill[row], acted[e, before][0])
        np.testing.assert_array_equal(batch.action[row], acted[e, t][1])
        # the environment itself reports the action that it was given
        np.testing.assert_allclose(batch.next_obs_1[row, 3:], batch.action[row], atol=1e-6)
        assert batch.reward[row].item() == pytest.approx(
            (t + 1) + 0.99 * (t + 2) + 0.99**2 * (t + 3), rel=1e-6
        )
        over = terminal and t + 3 == length
        assert batch.discount[row].item() == pytest.approx(0.0 if over else 0.970299, rel=1e-6)
    changed = sum(
        not np.array_equal(acted[e, t][0], acted[e, t - 1][0])
        for e, t in set(zip(episode, count))
        if t
    )
    assert changed > 3  # else acting and legacy would not differ


# ---- randomness, checkpoints, size, mistakes


def filled(seed=0, episodes=9):
    diary = Diary(seed=seed)
    for length in odd_lengths(episodes, 9):
        for _ in diary.play(length):
            pass
    return diary


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


def test_the_same_seed_gives_the_same_batches_and_another_seed_others():
    one, two, other = filled(seed=1).memory, filled(seed=1).memory, filled(seed=2).memory
    for _ in range(5):
        batch = one.sample(16)
        assert same(batch, two.sample(16))
        assert not same(batch, other.sample(16))


@pytest.mark.parametrize("episodes", [1, 9])  # before and after the ring is full
def test_a_checkpoint_continues_bit_for_bit(episodes):
    diary = filled(seed=4, episodes=episodes)
    diary.memory.sample(7)
    file = io.BytesIO()
    torch.save(
        {"memory": diary.memory.state_dict(), "rng": diary.memory.rng.bit_generator.state}, file
    )
    file.seek(0)
    state = torch.load(file, weights_only=True)
    revived = Diary(seed=99)
    revived.memory.load_state_dict(state["memory"])
    revived.memory.rng.bit_generator.state = state["rng"]
    revived.times, revived.lengths = list(diary.times), list(diary.lengths)
    revived.terminal = list(diary.terminal)
    for length in (5, 1, 8, 2, 9, 9, 6):
        assert len(revived.memory) == len(diary.memory)
        assert not len(diary.memory) or same(revived.memory.sample(32), diary.memory.sample(32))
        for _ in zip(diary.play(length), revived.play(length), strict=True):
            pass
    revived.check()


def test_a_checkpoint_holds_no_row_that_was_never_filled():
    diary = Diary(capacity=1000)
    for _ in diary.play(5):
        pass
    assert {len(array) for array in diary.memory.state_dict()["fields"].values()} == {6}


@pytest.mark.parametrize(("obs_dim", "action_dim", "limit"), [(24, 6, 0.25e9), (78, 12, 0.5e9)])
def test_a_million_rows_fit_in_memory(obs_dim, action_dim, limit):
    memory = make(obs_dim=obs_dim, action_dim=action_dim, skill_dim=16, capacity=1_000_000)
    # Observations once, float32; skills in bytes.
    least = 1_000_000 * (4 * obs_dim + 4 * action_dim + 16)
    assert least < memory.nbytes <= limit


def test_skills_that_are_no_one_hot_vectors_keep_their_values():
    memory = make(one_hot=False)
    skill = np.array([0.25, -0.5, 1.75, 0.1], np.float32)
    memory.begin(np.zeros(2))
    for _ in range(3):
        memory.add(np.zeros(2), skill, 0.0, 1.0, np.zeros(2))
    np.testing.assert_array_equal(memory.sample(1).skill[0], skill)


def test_agents_without_skills_get_empty_skills():
    memory = make(skill_dim=0)
    memory.begin(np.zeros(2))
    for _ in range(3):
        memory.add(np.zeros(2), np.zeros(0, np.float32), 0.0, 1.0, np.zeros(2))
    assert memory.sample(4).skill.shape == (4, 0)


def test_sampling_before_the_first_whole_transition_is_a_clear_error():
    diary = Diary()
    for _ in diary.play(2):
        with pytest.raises(UserError, match="no episode has 3 steps yet"):
            diary.memory.sample(4)


@pytest.mark.parametrize("nstep", [1, 3])
def test_a_ring_that_cannot_hold_a_transition_is_refused(nstep):
    with pytest.raises(
        UserError, match=rf"replay.capacity={nstep + 1} .* needs {nstep + 2} or more"
    ):
        make(capacity=nstep + 1, nstep=nstep)
    make(capacity=nstep + 2, nstep=nstep)


def on_device(memory, **settings):
    """One like `memory` whose batches come from a table, here on the CPU."""
    return DeviceReplayBuffer(
        obs_dim=2,
        action_dim=2,
        skill_dim=SKILLS,
        capacity=memory.capacity,
        nstep=memory.nstep,
        gamma=memory.gamma,
        rng=np.random.default_rng(0),
        device="cpu",
        **settings,
    )


@pytest.mark.parametrize("skill_index", ["acting", "legacy"])
@pytest.mark.parametrize(
    "every", [1, 7, 60]
)  # steps between batches; the last is longer than the ring
def test_batches_gathered_on_a_device_are_those_gathered_here(skill_index, every):
    plain = make(skill_index=skill_index, gamma=0.99)
    other = on_device(plain, skill_index=skill_index)
    steps = 0
    for episode, length in enumerate(odd_lengths(20, 30)):
        for memory in (plain, other):
            memory.begin(np.array([episode, 0], np.float32))
        for step in range(length):
            action, skill, reward = what_happens(episode, step)
            for memory in (plain, other):
                memory.add(
                    action, skill, reward / 3, 0.9, np.array([episode, step + 1], np.float32)
                )
            steps += 1
            if steps % every == 0 and len(plain):
                assert all(
                    torch.equal(a, b)
                    for a, b in zip(plain.sample(16), other.sample(16), strict=True)
                )


def test_a_table_on_a_device_is_filled_again_after_a_resume():
    plain = filled().memory
    other = on_device(plain, skill_index="acting")
    plain.rng, other.rng = np.random.default_rng(1), np.random.default_rng(1)
    other.load_state_dict(plain.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(plain.sample(64), other.sample(64), strict=True))

"""A bandit finds the best skill of a toy whose answers are known; stored data ranks skills as their
true returns do."""

import numpy as np
import pytest

from agent.skills.sources import SkillSpace
from agent.skills.trials import Bandit, ByData, best_by_data
from utils import UserError

OBS = np.zeros(2, np.float32)
ARMS = np.array([0.1, 0.4, 0.2, 0.8, 0.3, 0.0, 0.5, 0.6])  # true mean rewards; number 3 is best


def bandit(method, *, budget=1200, seed=0, skills=8):
    return Bandit(
        SkillSpace("one_hot", skills),
        np.random.default_rng(seed),
        method=method,
        budget=budget,
        trial=10,
        bonus=0.2,
    )


def play(source, steps, *, seed=0, start=0):
    """Act for some steps against the toy; the skill of each."""
    rng = np.random.default_rng([seed, start])
    chosen = []
    for step in range(start, start + steps):
        skill = int(source.select(OBS, step, first=step % 100 == 0).argmax())
        chosen.append(skill)
        source.observe(float(rng.random() < ARMS[skill]))
    return chosen


@pytest.mark.parametrize("method", ["halving", "ucb"])
def test_the_best_skill_is_found_and_kept_when_the_budget_is_spent(method):
    found = []
    for seed in range(20):
        source = bandit(method, seed=seed)
        play(source, 1200, seed=seed)
        after = play(source, 50, seed=seed, start=1200)
        assert len(set(after)) == 1, "after the budget one skill is left"
        assert source.evaluation(np.random.default_rng(0)).skill.argmax() == after[0]
        found.append(after[0])
    assert found.count(3) >= 19, found


def test_halving_gives_every_round_and_every_skill_of_a_round_the_same_steps():
    source = bandit("halving", budget=240)  # 3 rounds of 80 steps over 8, 4 and 2 skills
    chosen = play(source, 240)
    rounds = [chosen[:80], chosen[80:160], chosen[160:]]
    for each, alive in zip(rounds, (8, 4, 2), strict=True):
        counts = np.bincount(each, minlength=8)
        assert sorted(counts[counts > 0]) == [80 // alive] * alive
    assert set(rounds[2]) <= set(rounds[1]) <= set(rounds[0])


def test_the_worse_half_leaves_by_the_mean_of_all_its_steps():
    source = bandit("halving", budget=240)
    for step in range(80):
        skill = int(source.select(OBS, step, first=False).argmax())
        source.observe(ARMS[skill])  # without noise
    play(source, 1, start=80)
    assert sorted(source.alive) == [1, 3, 6, 7]


def test_ucb_tries_every_skill_once_and_then_takes_the_largest_bound():
    source = bandit("ucb")
    chosen = play(source, 80)
    assert sorted(chosen[::10]) == list(range(8))
    trials = source.counts / 10
    bound = source.sums / source.counts + 0.2 * np.sqrt(2 * np.log(trials.sum()) / trials)
    assert play(source, 1, start=80)[0] == bound.argmax()


def test_a_bandit_goes_on_from_a_checkpoint_as_if_nothing_had_happened():
    for method in ("halving", "ucb"):
        whole, pieces = bandit(method), bandit(method)
        play(whole, 333)
        play(pieces, 333)
        continued = bandit(method, seed=99)
        continued.load_state_dict(pieces.state_dict())
        assert play(whole, 300, start=333) == play(continued, 300, start=333)


def test_too_small_a_budget_is_refused_with_the_smallest_that_works():
    with pytest.raises(UserError, match=r"skills.budget=20 is too small: .* take 24 steps or more"):
        bandit("halving", budget=20)
    bandit("halving", budget=24)


# ---- by data


def stored(rng, *, steps=4000, interval=50):
    """Steps under skills that change every so often, with noisy rewards of known means."""
    index = rng.integers(8, size=steps // interval).repeat(interval)
    return np.eye(8, dtype=np.float32)[index], ARMS[index] + rng.normal(0, 0.3, steps)


def test_stored_data_chooses_the_skill_with_the_best_true_return():
    for seed in range(10):
        skills, rewards = stored(np.random.default_rng(seed))
        source = ByData(
            SkillSpace("one_hot", 8), np.random.default_rng(0), recent=1.0, data=(skills, rewards)
        )
        assert source.skill.argmax() == 3
        assert source.select(OBS, 7, first=True).argmax() == 3


def test_data_ranks_skills_as_their_true_returns_do():
    skills, rewards = stored(np.random.default_rng(1), steps=40_000)
    space, ranking = SkillSpace("one_hot", 8), []
    for _ in range(8):
        best = int(best_by_data(skills, rewards, space).argmax())
        ranking.append(best)
        rewards = np.where(skills.argmax(1) == best, -9.0, rewards)  # look for the next best one
    assert ranking == np.argsort(-ARMS).tolist()


def test_only_the_newest_share_of_the_data_counts():
    skills = np.eye(2, dtype=np.float32)[[0, 1] * 50]
    rewards = np.where(np.arange(100) < 75, skills[:, 0], skills[:, 1])  # 0 paid first, then 1
    space = SkillSpace("one_hot", 2)

    def chosen(recent):
        source = ByData(space, np.random.default_rng(0), recent=recent, data=(skills, rewards))
        return int(source.skill.argmax())

    assert (chosen(1.0), chosen(0.25)) == (0, 1)


def test_of_skills_that_are_vectors_the_stretch_that_paid_best_per_step_is_taken():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((20, 4)).astype(np.float32)
    skills = vectors.repeat(10, 0)
    rewards = rng.uniform(0, 0.5, 200)
    rewards[70:80] = 0.9  # under the eighth vector
    skills, rewards = skills[:-8], rewards[:-8]  # the last stretch is cut after two steps
    rewards[-2:] = 5.0
    found = best_by_data(skills, rewards, SkillSpace("gaussian", 4))
    np.testing.assert_array_equal(found, vectors[7])

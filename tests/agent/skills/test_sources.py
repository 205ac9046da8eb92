"""Skills change when the rule says so, are uniform, and evaluation draws them from its own
generator."""

import copy
import io
from itertools import pairwise

import numpy as np
import pytest
import torch

from agent.skills.regimes import make_skills
from agent.skills.sources import Fixed, SkillSource, SkillSpace, Switching
from tests.kit.configs import composed
from utils import UserError

OBS = np.zeros(3, np.float32)
MANY = 1000  # so many skills that a redraw is seen: one in a thousand repeats


def switching(*, dim=MANY, interval=50, eval_rule="per_episode", seed=0):
    return Switching(
        SkillSpace("one_hot", dim), np.random.default_rng(seed), interval=interval, eval=eval_rule
    )


def indices(source, steps, episode_length, start=0):
    """The skill at each step; episodes follow each other without a pause and `step` counts over all
    of them."""
    chosen = []
    for step in range(start, start + steps):
        skill = source.select(OBS, step, first=step % episode_length == 0)
        assert skill.dtype == np.float32 and skill.sum() == 1 and skill.max() == 1
        chosen.append(int(skill.argmax()))
    return chosen


def changes(chosen, start=0):
    return [start + i for i in range(1, len(chosen)) if chosen[i] != chosen[i - 1]]


# ---- the space


def test_a_skill_is_a_one_hot_vector():
    space = SkillSpace("one_hot", 4)
    np.testing.assert_array_equal([space.vector(i) for i in range(4)], np.eye(4))
    assert space.vector(2).dtype == np.float32 and space.one_hot


def test_an_agent_without_skills_has_a_space_of_dimension_zero():
    space = SkillSpace("none", 16)
    assert space.dim == 0 and not space.one_hot
    assert space.sample(np.random.default_rng(0)).shape == (0,)


def test_an_unknown_kind_of_space_names_the_choices():
    with pytest.raises(UserError, match=r"agent.skill_space='circle' .* none, one_hot"):
        composed("pretrain", "agent.skill_space=circle")


# ---- switching


def test_a_skill_lasts_until_the_interval_or_the_episode_ends():
    chosen = indices(switching(interval=10), 100, episode_length=25)
    # The interval counts over all episodes.
    assert changes(chosen) == [10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90]


def test_interval_zero_changes_the_skill_at_episode_starts_only():
    assert changes(indices(switching(interval=0), 100, episode_length=25)) == [25, 50, 75]


def test_at_the_papers_interval_blocks_align_with_episodes():
    assert changes(indices(switching(interval=50), 1000, episode_length=250)) == list(
        range(50, 1000, 50)
    )


def test_skills_are_uniform():
    chosen = indices(switching(dim=4, interval=1), 8000, episode_length=100)
    counts = np.bincount(chosen, minlength=4)
    assert np.abs(counts - 2000).max() < 4.5 * np.sqrt(8000 * 0.25 * 0.75)
    following = np.bincount([b for a, b in pairwise(chosen) if a == 0], minlength=4)  # memoryless
    assert np.abs(following / following.sum() - 0.25).max() < 0.05


def test_the_same_seed_gives_the_same_skills():
    one, two, other = (indices(switching(interval=5, seed=seed), 60, 20) for seed in (1, 1, 2))
    assert one == two and one != other


def test_a_selected_skill_is_not_changed_by_later_selections():
    source = switching(interval=1)
    first = source.select(OBS, 0, first=True)
    kept = first.copy()
    indices(source, 20, 10, start=1)
    np.testing.assert_array_equal(first, kept)


# ---- fixed


def test_a_fixed_skill_stays_in_training_and_evaluation():
    source = Fixed(SkillSpace("one_hot", 6), np.random.default_rng(0), index=4)
    assert set(indices(source, 50, 10)) == {4}
    assert set(indices(source.evaluation(np.random.default_rng(9)), 50, 10)) == {4}
    assert source.rule == "fixed"


def test_index_minus_one_draws_one_skill_for_the_whole_run():
    drawn = []
    for seed in range(300):
        source = Fixed(SkillSpace("one_hot", 6), np.random.default_rng(seed), index=-1)
        (index,) = set(indices(source, 20, 5)) | set(
            indices(source.evaluation(np.random.default_rng(1)), 20, 5)
        )
        drawn.append(index)
    counts = np.bincount(drawn, minlength=6)
    assert len(counts) == 6 and counts.min() > 25  # 50 expected


@pytest.mark.parametrize("index", [6, -2, 100])
def test_a_skill_outside_the_space_is_refused(index):
    with pytest.raises(
        UserError, match=f"skills.index={index} is outside the 6 skills; choose 0 to 5, or -1"
    ):
        Fixed(SkillSpace("one_hot", 6), np.random.default_rng(0), index=index)


# ---- evaluation


def evaluate(source, episodes=4, length=30, seed=5):
    """As the runner does it: the step restarts with every evaluation episode."""
    skills = source.evaluation(np.random.default_rng(seed))
    return [
        [int(skills.select(OBS, step, first=step == 0).argmax()) for step in range(length)]
        for _ in range(episodes)
    ]


def test_per_episode_evaluation_draws_a_fresh_skill_for_each_episode():
    played = evaluate(switching(interval=10, eval_rule="per_episode"))
    assert all(len(set(episode)) == 1 for episode in played)
    assert len({episode[0] for episode in played}) == 4


def test_switching_evaluation_changes_the_skill_as_in_training():
    played = evaluate(switching(interval=10, eval_rule="switching"))
    assert all(changes(episode) == [10, 20] for episode in played)
    assert len({episode[0] for episode in played}) == 4


def test_per_call_evaluation_keeps_one_skill_throughout_but_not_for_the_next():
    source = switching(interval=10, eval_rule="per_call")
    first, again, second = evaluate(source), evaluate(source), evaluate(source, seed=6)
    (one,), (two,) = ({i for episode in played for i in episode} for played in (first, second))
    assert one != two and again == first


@pytest.mark.parametrize("rule", ["per_episode", "switching", "per_call"])
def test_an_evaluation_leaves_the_training_skills_alone(rule):
    source = switching(interval=10, eval_rule=rule)
    indices(source, 15, 25)
    before, state = source.skill.copy(), copy.deepcopy(source.rng.bit_generator.state)
    evaluate(source)
    np.testing.assert_array_equal(source.skill, before)
    assert source.rng.bit_generator.state == state and source.rule == rule


def test_an_unknown_evaluation_rule_names_the_choices():
    with pytest.raises(UserError, match=r"skills.eval='best' .* per_episode, switching, per_call"):
        composed("finetune", "task=walker_run", "skills.eval=best")


# ---- checkpoints


@pytest.mark.parametrize("kind", ["switching", "fixed", "none"])
def test_a_source_continues_from_a_checkpoint(kind):
    def build(seed):
        rng = np.random.default_rng(seed)
        if kind == "none":
            return rng, SkillSource(SkillSpace("none", 0), np.zeros(0, np.float32))
        if kind == "fixed":
            return rng, Fixed(SkillSpace("one_hot", MANY), rng, index=-1)
        return rng, switching(interval=7, seed=seed)

    def play(source, steps):
        return [source.select(OBS, step, first=step % 20 == 0).tolist() for step in steps]

    rng, source = build(1)
    play(source, range(25))  # in the middle of an episode and of an interval
    file = io.BytesIO()
    generator = source.rng if kind == "switching" else rng
    torch.save({"skills": source.state_dict(), "rng": generator.bit_generator.state}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    rng, revived = build(2)
    revived.load_state_dict(state["skills"])
    (revived.rng if kind == "switching" else rng).bit_generator.state = state["rng"]
    assert revived.skill.dtype == np.float32
    assert play(revived, range(25, 80)) == play(source, range(25, 80))


# ---- which source a run gets


def built(phase, *words):
    """The source of skills that a small run with these words gets."""
    config = composed(phase, "preset=smoke", *words)
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    return make_skills(config, space, np.random.default_rng(0))


def test_pre_training_switches_every_fifty_steps_among_sixteen_skills():
    source = built("pretrain")
    chosen = indices(source, 6000, episode_length=1000)  # 120 draws
    assert source.space.dim == 16 and set(chosen) == set(range(16))
    assert all(step % 50 == 0 for step in changes(chosen)) and len(changes(chosen)) > 90


def test_fine_tuning_uses_the_rule_that_the_agent_names():
    task = "task=walker_run"
    source = built("finetune", task)
    assert isinstance(source, Switching) and (source.interval, source.rule) == (50, "per_episode")
    assert isinstance(built("finetune", task, "agent=amped_release"), Fixed)
    source = built("finetune", task, "agent=ddpg")
    assert source.select(OBS, 0, first=True).shape == (0,) and source.rule == "none"
    assert source.evaluation(np.random.default_rng(0)).select(OBS, 0, first=True).shape == (0,)


def test_the_command_line_wins_over_the_agent():
    task = "task=walker_run"
    source = built("finetune", task, "skills=fixed", "skills.index=3")
    assert set(indices(source, 100, 50)) == {3}
    source = built(
        "finetune", task, "agent=amped_release", "skills=switching", "skills.interval=20"
    )
    assert isinstance(source, Switching) and source.interval == 20
    source = built("finetune", task, "skills.eval=per_call", "skills.interval=0")
    assert isinstance(source, Switching) and (source.interval, source.rule) == (0, "per_call")


def test_a_source_that_does_not_fit_the_agent_is_refused():
    with pytest.raises(UserError, match="skills=none does not fit an agent with 16 skills"):
        built("finetune", "task=walker_run", "skills=none")
    with pytest.raises(
        UserError, match=r"skills=switching does not fit an agent with 0 skills; use skills=none"
    ):
        built("finetune", "task=walker_run", "agent=ddpg", "skills=switching")
    with pytest.raises(UserError, match=r"skills.index=16 is outside the 16 skills"):
        built("finetune", "task=walker_run", "skills=fixed", "skills.index=16")


def test_an_unknown_source_names_the_choices():
    choices = "none, switching, fixed, constant, bandit, by_data, selector, selector_release, native, oracle"
    with pytest.raises(UserError, match=f"skills.name='best' is not valid; choose from {choices}"):
        composed("finetune", "task=walker_run", "skills.name=best")
    own = "agent.native_skills.name=best"
    with pytest.raises(
        UserError, match=r"native_skills.name='best' .* none, switching, fixed, cons"
    ):
        composed("finetune", "task=walker_run", own)

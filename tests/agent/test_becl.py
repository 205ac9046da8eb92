"""BeCL: InfoNCE on cosines between states of one skill, and its ratio as the reward."""

import math

import numpy as np
import pytest
import torch

from tests.kit.configs import composed
from tests.kit.objectives import (
    SIZE,
    SKILLS,
    Fixed,
    array,
    assert_learns_on_meta,
    assert_rewards_are_sound,
    assert_state_round_trip,
    assert_updates_lower,
    close,
    depends_on,
    make,
    make_batch,
    moved,
)
from tests.kit.oracles import drawn_partners
from utils import UserError

PARTS = "agent.objective."
FOUR = f"skill_dim={SKILLS}"
READINGS = [
    ("negatives_only", "random"),
    ("negatives_only", "first"),
    ("all", "random"),
    ("all", "first"),
]


def reading(denominator, positive):
    return FOUR, f"{PARTS}denominator={denominator}", f"{PARTS}positive={positive}"


def lone(batch):
    """The same batch with its first row alone with its skill."""
    index = batch.skill.argmax(1) % (SKILLS - 1)
    index[0] = SKILLS - 1
    return batch._replace(skill=torch.eye(SKILLS)[index])


def ratios(objective, batch, denominator, positive, temperature=0.5):
    """Share of the positive, in a loop over anchors, with the positives to come."""
    index = batch.skill.argmax(1).numpy()
    features = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    drawn, out = drawn_partners(objective, index), []
    for i, f in enumerate(features):
        cosine = [f @ g / np.linalg.norm(f) / np.linalg.norm(g) for g in features]
        others = [j for j in range(len(features)) if j != i]
        mates = [j for j in others if index[j] == index[i]]
        partner = drawn[i] if positive == "random" else (mates or others)[0]
        below = (
            others
            if denominator == "all"
            else [j for j in others if j not in mates or j == partner]
        )
        out.append(
            math.exp(cosine[partner] / temperature)
            / sum(math.exp(cosine[j] / temperature) for j in below)
        )
    return np.array(out)


@pytest.mark.parametrize("denominator, positive", READINGS)
def test_the_loss_is_the_mean_negative_log_ratio_of_anchors_with_a_positive(denominator, positive):
    objective, batch = make("becl", *reading(denominator, positive)), lone(make_batch())
    expected = -np.log(ratios(objective, batch, denominator, positive))
    if positive == "random":
        # Row 0 has no positive; the public code takes the first row of the others.
        expected = expected[1:]
    close(objective.update(batch)["diversity/loss"], expected.mean())


@pytest.mark.parametrize("denominator, positive", READINGS)
def test_the_reward_is_the_ratio(denominator, positive):
    objective, batch = make("becl", *reading(denominator, positive)), lone(make_batch())
    for seed in range(3):
        objective.update(make_batch(seed=seed))
    expected = ratios(objective, batch, denominator, positive)
    if positive == "random":
        expected[0] = expected[1:].mean()  # alone with its skill: the mean of the others
    close(objective.rewards(batch)[0]["diversity"], expected[:, None])


@pytest.mark.parametrize(
    "denominator, expected",
    [
        (
            "negatives_only",
            math.exp(2) / (math.exp(2) + 3 * math.exp(-2)),
        ),  # the positive, three of the other skill: 0.948
        (
            "all",
            math.exp(2) / (2 * math.exp(2) + 3 * math.exp(-2)),
        ),  # and the third row of the own skill: 0.487
    ],
)
def test_the_reward_by_hand(denominator, expected):
    """Three rows of skill 0 at (1, 0), three of skill 1 at (-1, 0): cosines 1 and -1, T = 0.5."""
    objective = make("becl", *reading(denominator, "random"))
    skill = torch.eye(SKILLS)[[0, 0, 0, 1, 1, 1]]
    # any length
    objective.contrast.head = Fixed((1 - 2 * skill[:, 1:2]) * torch.tensor([[7.0, 0.0]]))
    close(
        objective.rewards(make_batch(size=6)._replace(skill=skill))[0]["diversity"],
        [[expected]] * 6,
    )


@pytest.mark.parametrize(
    "denominator, blind, perfect",
    [
        # 1024 rows, 16 skills of 64 rows. Blind: all cosines 1. Perfect: skills at the corners of a
        # simplex, cosine -1/15
        (
            "all",
            1 / 1023,
            math.exp(2) / (63 * math.exp(2) + 960 * math.exp(-2 / 15)),
        ),  # 0.00098 and 0.00566
        (
            "negatives_only",
            1 / 961,
            math.exp(2) / (math.exp(2) + 960 * math.exp(-2 / 15)),
        ),  # 0.00104 and 0.00872
    ],
)
def test_at_the_papers_size_the_reward_is_small(denominator, blind, perfect):
    objective = make("becl", PARTS + "denominator=" + denominator)
    skill = torch.eye(16).repeat(64, 1)
    batch = make_batch(size=1024, skills=16)._replace(skill=skill)
    for features, expected in ((torch.ones_like(skill), blind), (skill - 1 / 16, perfect)):
        objective.contrast.head = Fixed(features)
        close(objective.rewards(batch)[0]["diversity"], np.full((1024, 1), expected), rtol=1e-3)


@pytest.mark.parametrize("denominator, positive", READINGS)
def test_the_ratio_stays_between_its_bounds(denominator, positive):
    """Cosines lie in [-1, 1], so with m rows beside the positive e^-2 / (e^-2 + m e^2) <= r <= e^2
    / (e^2 + m e^-2)."""
    objective, e2 = make("becl", *reading(denominator, positive)), math.exp(2)
    for seed in range(5):
        batch = make_batch(seed=seed)
        objective.contrast.head = Fixed(
            torch.randn(SIZE, 2, generator=torch.Generator().manual_seed(seed))
        )
        same = (batch.skill @ batch.skill.T).sum(1, keepdim=True)  # with the row itself
        m = torch.full_like(same, SIZE - 2) if denominator == "all" else SIZE - same
        reward = objective.rewards(batch)[0]["diversity"]
        assert (reward >= 1 / e2 / (1 / e2 + m * e2) - 1e-6).all()
        assert (reward <= e2 / (e2 + m / e2) + 1e-6).all()


def test_with_all_in_the_denominator_rows_of_one_skill_share_one():
    """However good the skills, the c - 1 positives of an anchor have together at most 1."""
    objective, batch = make("becl", *reading("all", "first")), make_batch()
    objective.contrast.head = Fixed(batch.skill)
    count = (batch.skill @ batch.skill.T).sum(1, keepdim=True)
    assert (objective.rewards(batch)[0]["diversity"] < 1 / (count - 1)).all()


def test_the_reward_reads_the_next_state_and_the_skill():
    assert depends_on(make("becl", FOUR), "diversity") == {"next_obs", "skill"}


def test_three_batches_each_teach_the_contrast():
    objective, batch = make("becl", FOUR), make_batch()
    assert objective.batches_per_update == 3
    assert moved(objective, lambda: objective.update(batch, final=False)) == {"contrast"}
    assert moved(objective, lambda: objective.rewards(batch)) == set()


@pytest.mark.parametrize("key", ["denominator", "positive"])
def test_an_unknown_reading_is_an_error_that_names_its_key(key):
    with pytest.raises(UserError, match=f"agent.objective.{key}='nonsense' is not valid"):
        make("becl", f"{PARTS}{key}=nonsense")


@pytest.mark.parametrize("denominator, positive", READINGS)
def test_rewards_are_finite_columns_without_gradient(denominator, positive):
    assert_rewards_are_sound(make("becl", *reading(denominator, positive)))


@pytest.mark.parametrize("denominator, positive", READINGS)
def test_repeated_updates_lower_the_loss(denominator, positive):
    assert_updates_lower(make("becl", *reading(denominator, positive)), "diversity/loss")


def test_a_loaded_objective_continues_as_if_it_had_never_stopped():
    assert_state_round_trip("becl", FOUR)


@pytest.mark.parametrize("denominator, positive", [READINGS[0], READINGS[3]])
def test_learning_stays_on_its_device(denominator, positive):
    assert_learns_on_meta("becl", *reading(denominator, positive))


def test_the_config_is_that_of_the_public_code():
    config = composed("pretrain", "agent=becl", "preset=smoke")
    assert (
        config["skill_dim"],
        config["skill_interval"],
        config["agent"]["objective"]["temperature"],
    ) == (16, 50, 0.5)
    assert config["agent"]["native_skills"] == {"name": "fixed", "index": -1}


def test_the_public_reading_adds_a_millionth_to_the_sum_and_to_the_ratio():
    """The public code shifts each row by its largest term, so that the sum is between 1 and B."""
    objective = make("becl", FOUR, "reading=public").double()
    batch = make_batch()._replace(next_obs=make_batch().next_obs.double())
    f = array(objective.contrast.head(objective.contrast.embed(batch.next_obs)))
    f /= np.linalg.norm(f, axis=1, keepdims=True)
    index, expected = batch.skill.argmax(1).numpy(), []
    for i in range(len(f)):
        others = [j for j in range(len(f)) if j != i]
        terms = {j: f[i] @ f[j] / 0.5 for j in others}
        largest = max(terms.values())
        terms = {j: math.exp(term - largest) for j, term in terms.items()}
        first = next(j for j in others if index[j] == index[i])
        expected.append(terms[first] / (sum(terms.values()) + 1e-6) + 1e-6)
    reward = objective.rewards(batch)[0]["diversity"]
    close(reward.squeeze(1), expected, rtol=1e-12, atol=0)
    assert make("becl", FOUR, "reading=public").batches_per_update == 3

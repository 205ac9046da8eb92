"""DIAYN: a discriminator of skills, and its log-posterior as the reward."""

import math

import pytest
import torch

from tests.kit.configs import composed
from tests.kit.objectives import (
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

FOUR = f"skill_dim={SKILLS}"


def posterior(objective, batch, row):
    """q(z | s') of one row, for each z."""
    logits = array(objective.discriminator.net(batch.next_obs))[row]
    weights = [math.exp(x) for x in logits]
    return [w / sum(weights) for w in weights]


def test_the_loss_is_the_cross_entropy_of_the_own_skill():
    objective, batch = make("diayn", FOUR), make_batch()
    index = batch.skill.argmax(1).tolist()
    q = [posterior(objective, batch, row) for row in range(len(index))]
    metrics = objective.update(batch)
    close(
        metrics["discriminator/loss"],
        -sum(math.log(q[i][z]) for i, z in enumerate(index)) / len(index),
    )
    close(
        metrics["discriminator/accuracy"],
        sum(q[i][z] == max(q[i]) for i, z in enumerate(index)) / len(index),
    )


def test_the_reward_is_the_log_posterior_minus_the_log_prior():
    objective, batch = make("diayn", FOUR), make_batch()
    for seed in range(3):
        objective.update(make_batch(seed=seed))
    index = batch.skill.argmax(1).tolist()
    expected = [
        [math.log(posterior(objective, batch, i)[z]) - math.log(1 / SKILLS)]
        for i, z in enumerate(index)
    ]
    close(objective.rewards(batch)[0]["diversity"], expected)


def test_the_reward_by_hand():
    objective, batch = make("diayn", FOUR), make_batch(size=2)
    logits = torch.tensor([math.log(5), 0, 0, 0])  # q = 5/8, 1/8, 1/8, 1/8
    objective.discriminator.net = Fixed(logits.expand(2, SKILLS))
    batch = batch._replace(skill=torch.eye(SKILLS)[:2])
    # 4 * 5/8 and 4 * 1/8
    close(objective.rewards(batch)[0]["diversity"], [[math.log(2.5)], [math.log(0.5)]])


@pytest.mark.parametrize("sharpness, reward", [(100.0, math.log(SKILLS)), (0.0, 0.0)])
def test_a_perfect_discriminator_pays_log_n_and_a_blind_one_nothing(sharpness, reward):
    objective, batch = make("diayn", FOUR), make_batch()
    objective.discriminator.net = Fixed(sharpness * batch.skill)
    close(objective.rewards(batch)[0]["diversity"], [[reward]] * len(batch.obs))


def test_states_that_show_their_skill_end_at_log_n():
    objective, batch = make("diayn", FOUR), make_batch()
    batch = batch._replace(next_obs=3 * batch.skill)  # 4-d states, 4 skills
    for _ in range(150):
        metrics = objective.update(batch)
    assert metrics["discriminator/accuracy"] == 1
    reward = objective.rewards(batch)[0]["diversity"]
    assert (reward > math.log(SKILLS) - 0.05).all() and (reward <= math.log(SKILLS)).all()


def test_the_reward_reads_the_next_state_and_the_skill():
    assert depends_on(make("diayn", FOUR), "diversity") == {"next_obs", "skill"}


def test_updates_move_the_discriminator_and_rewards_nothing():
    objective, batch = make("diayn", FOUR), make_batch()
    assert moved(objective, lambda: objective.update(batch)) == {"discriminator"}
    assert moved(objective, lambda: objective.rewards(batch)) == set()


def test_rewards_are_finite_columns_without_gradient():
    assert_rewards_are_sound(make("diayn", FOUR))


def test_repeated_updates_lower_the_loss():
    assert_updates_lower(make("diayn", FOUR), "discriminator/loss")


def test_a_loaded_objective_continues_as_if_it_had_never_stopped():
    assert_state_round_trip("diayn", FOUR)


def test_learning_stays_on_its_device():
    assert_learns_on_meta("diayn")


def test_the_config_is_that_of_urlb():
    config = composed("pretrain", "agent=diayn", "preset=smoke")
    assert (config["skill_dim"], config["skill_interval"]) == (16, 50)
    assert config["agent"]["native_skills"] == {
        "name": "switching",
        "interval": 50,
        "eval": "per_call",
    }

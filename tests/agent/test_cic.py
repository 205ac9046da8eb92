"""CIC: the contrastive loss between transitions and continuous skills, and the entropy reward it
shapes."""

import math

import numpy as np
import pytest
import torch

from tests.kit.configs import composed
from tests.kit.objectives import (
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
from tests.kit.oracles import exp_cosines, release_entropy
from utils import UserError

PARTS = "agent.objective."
SMALL = "skill_dim=6"
CUBE = {"skills": 6, "kind": "cube"}
TELLING = PARTS + "discriminative=true"


@pytest.mark.parametrize("form", ["paper", "release"])
def test_the_loss_contrasts_each_transition_with_those_of_other_skills(form):
    objective, batch = make("cic", SMALL, f"{PARTS}cpc={form}"), make_batch(**CUBE)
    e = exp_cosines(objective, batch)
    losses = []
    for i in range(len(e)):
        # minus e^(1/T)
        below = e[i].mean() if form == "paper" else max(e[i].sum() - math.exp(2), 1e-6) + 1e-6
        losses.append(-math.log(e[i, i] / below))
    close(objective.update(batch)["cpc/loss"], np.mean(losses), atol=1e-5)


def test_accuracy_is_how_often_a_transition_finds_its_own_skill_in_the_batch():
    objective, batch = make("cic", SMALL), make_batch(**CUBE)
    found = exp_cosines(objective, batch).argmax(0) == np.arange(len(batch.obs))
    close(objective.update(batch)["cpc/accuracy"], found.mean())


def test_the_reward_is_the_particle_entropy_of_the_embedded_next_state():
    objective, history = make("cic", SMALL), []
    for seed in range(3):  # the running variance goes on from batch to batch
        batch = make_batch(seed=seed, **CUBE)
        objective.update(batch)
        expected = release_entropy(array(objective.encoder.state(batch.next_obs)), history)
        streams, metrics = objective.rewards(batch)
        close(streams["exploration"], expected)
        close(metrics["exploration/entropy"], expected.mean())


def test_the_reward_by_hand():
    objective = make("cic", SMALL, PARTS + "k=2", PARTS + "knn_scale=none", PARTS + "knn_clip=0")
    objective.encoder.state = Fixed([[0.0], [3.0], [4.0]])
    # nearest two with itself: (0, 3), (0, 1), (0, 1); 1 + their means: 2.5, 1.5, 1.5
    close(
        objective.rewards(make_batch(size=3, **CUBE))[0]["exploration"],
        np.log([[2.5], [1.5], [1.5]]),
    )


def test_identical_states_earn_nothing():
    objective, batch = make("cic", SMALL), make_batch(**CUBE)
    batch = batch._replace(next_obs=batch.next_obs[:1].expand_as(batch.next_obs))
    assert torch.equal(objective.rewards(batch)[0]["exploration"], torch.zeros(len(batch.obs), 1))


# -------------------------------------------------------------------------- the discriminative term


def test_the_discriminative_reward_adds_the_log_likelihood_of_the_transition():
    objective, batch = make("cic", SMALL, TELLING), make_batch(**CUBE)
    for seed in range(3):
        objective.update(make_batch(seed=seed, **CUBE))
    e = exp_cosines(objective, batch)
    likelihood = np.array([[math.log(e[i, i] / e[i].mean())] for i in range(len(e))])
    entropy = release_entropy(array(objective.encoder.state(batch.next_obs)), [])
    streams, metrics = objective.rewards(batch)
    close(streams["exploration"], entropy + likelihood, atol=1e-5)
    close(metrics["diversity/log_likelihood"], likelihood.mean(), atol=1e-5)
    # What the encoder minimises.
    close(objective.update(batch)["cpc/loss"], -likelihood.mean(), atol=1e-5)


def test_the_log_likelihood_by_hand():
    objective, batch = make("cic", SMALL, TELLING), make_batch(size=2, **CUBE)
    # Cosines 1 and -1; T = 0.5.
    objective.encoder.skill = objective.encoder.predict = Fixed([[1.0], [-1.0]])
    # log of e^2 / ((e^2 + e^-2) / 2) = 2 - log cosh 2
    close(objective._log_likelihood(batch), [[2 - math.log(math.cosh(2))]] * 2)


def test_the_log_likelihood_is_at_most_the_log_of_the_batch_size():
    objective = make("cic", SMALL, TELLING, PARTS + "cpc_temperature=0.01")
    # Perfect, at hardly any temperature.
    objective.encoder.skill = objective.encoder.predict = Fixed(torch.eye(24))
    close(objective._log_likelihood(make_batch(**CUBE)), [[math.log(24)]] * 24)


@pytest.mark.parametrize(
    "overrides, fields", [((), {"next_obs"}), ((TELLING,), {"obs", "next_obs", "skill"})]
)
def test_skills_enter_the_reward_with_the_discriminative_term_only(overrides, fields):
    assert depends_on(make("cic", SMALL, *overrides), "exploration", **CUBE) == fields


# ------------------------------------------------------------------------------------------ updates


def test_transitions_that_follow_their_skill_are_told_apart():
    objective, batch = make("cic", "skill_dim=4"), make_batch(skills=4, kind="cube")
    batch = batch._replace(next_obs=10 * batch.skill - 5, obs=torch.zeros_like(batch.obs))
    for _ in range(300):
        metrics = objective.update(batch)
    assert metrics["cpc/accuracy"] > 0.5  # chance: 1/24


def test_updates_move_the_encoder_and_rewards_the_running_variance():
    objective, batch = make("cic", SMALL), make_batch(**CUBE)
    assert moved(objective, lambda: objective.update(batch)) == {"encoder"}
    assert moved(objective, lambda: objective.rewards(batch)) == {"entropy"}


@pytest.mark.parametrize("key", ["cpc", "entropy_form", "knn_scale"])
def test_an_unknown_reading_is_an_error_that_names_its_key(key):
    with pytest.raises(UserError, match=f"agent.objective.{key}='nonsense' is not valid"):
        make("cic", f"{PARTS}{key}=nonsense")


@pytest.mark.parametrize("overrides", [(), (TELLING,), (PARTS + "cpc=release",)])
def test_rewards_are_finite_columns_without_gradient(overrides):
    assert_rewards_are_sound(make("cic", SMALL, *overrides), **CUBE)


@pytest.mark.parametrize("form", ["paper", "release"])
def test_repeated_updates_lower_the_loss(form):
    assert_updates_lower(make("cic", SMALL, f"{PARTS}cpc={form}"), "cpc/loss", **CUBE)


def test_a_loaded_objective_continues_as_if_it_had_never_stopped():
    assert_state_round_trip("cic", SMALL, **CUBE)


@pytest.mark.parametrize("overrides", [(), (TELLING, PARTS + "cpc=release")])
def test_learning_stays_on_its_device(overrides):
    assert_learns_on_meta("cic", *overrides)


def test_the_config_is_that_of_the_public_code():
    config = composed("pretrain", "agent=cic", "preset=smoke")
    assert (config["skill_dim"], config["skill_interval"], config["agent"]["skill_space"]) == (
        64,
        50,
        "cube",
    )
    assert config["agent"]["native_skills"] == {"name": "constant", "value": 0.5}
    settings = config["agent"]["objective"]
    assert [settings[k] for k in ("k", "knn_clip", "knn_scale", "cpc_temperature")] == [
        16,
        5e-4,
        "var",
        0.5,
    ]

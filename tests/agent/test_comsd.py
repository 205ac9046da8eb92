"""ComSD: CIC's entropy plus a weighted similarity of transition and skill; the port, which has the
entropy alone."""

import math

import numpy as np
import pytest

from agent.comsd import ComSD
from tests.kit.configs import composed
from tests.kit.objectives import (
    SKILLS,
    Fixed,
    advance,
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
FOUR = f"skill_dim={SKILLS}"
PORT = PARTS + "variant=amped_port"


def test_the_loss_is_that_of_cic_for_one_hot_skills():
    objective, batch = make("comsd", FOUR), make_batch()
    e = exp_cosines(objective, batch)
    close(
        objective.update(batch)["cpc/loss"], -np.mean(np.log(e.diagonal() / e.mean(1))), atol=1e-5
    )


def test_the_reward_is_entropy_plus_weighted_similarity():
    objective, history = make("comsd", FOUR, "alpha=0.3"), []
    weight = {0: 0.5, 1: 2 / 3, 2: 5 / 6, 3: 1.0}  # a + (b - a) i / (n - 1)
    for seed in range(3):
        batch = make_batch(seed=seed)
        objective.update(batch)
        entropy = release_entropy(array(objective.encoder.state(batch.next_obs)), history)
        e, index = exp_cosines(objective, batch), batch.skill.argmax(1).tolist()
        similarity = [[0.3 * weight[z] * e[i, i]] for i, z in enumerate(index)]
        streams, metrics = objective.rewards(batch)
        close(streams["intrinsic"], entropy + similarity, atol=1e-5)
        close(metrics["exploration/entropy"], entropy.mean())
        close(metrics["diversity/similarity"], e.diagonal().mean())


@pytest.mark.parametrize(
    "variant, expected",
    [
        (
            "intended",
            [[0.5 + 2 * 0.5 * math.exp(2)], [0.5 + 2 * 1.0 * math.exp(2)]],
        ),  # w = 0.5 and 1, cosine 1, T = 0.5
        ("amped_port", [[0.5], [0.5]]),
    ],
)
def test_the_reward_by_hand(variant, expected):
    objective, batch = (
        make("comsd", "skill_dim=2", "alpha=2", PARTS + "variant=" + variant),
        make_batch(2, 2),
    )
    batch = batch._replace(skill=objective.encoder.all_skills)  # both skills
    objective.entropy = Fixed([[0.5], [0.5]])
    objective.encoder.skill = objective.encoder.predict = Fixed([[1.0, 2.0], [3.0, 4.0]])
    close(objective.rewards(batch)[0]["intrinsic"], expected)


def test_the_port_is_cic_with_one_hot_skills():
    port = make("comsd", FOUR, PORT, "alpha=1000")  # alpha does nothing
    cic = make("cic", FOUR, "agent.skill_space=one_hot")
    close(advance(port, range(4)), array(advance(cic, range(4))), rtol=1e-3)


def test_without_alpha_the_intended_form_is_the_port():
    assert advance(make("comsd", FOUR, "alpha=0"), range(3)).equal(
        advance(make("comsd", FOUR, PORT), range(3))
    )


def test_later_skills_are_pulled_harder_towards_being_different():
    objective = make("comsd")
    close(objective.weight, [0.5 + 0.5 * i / 15 for i in range(16)])


@pytest.mark.parametrize(
    "overrides, fields", [((), {"obs", "next_obs", "skill"}), ((PORT,), {"next_obs"})]
)
def test_the_port_rewards_no_skill(overrides, fields):
    assert depends_on(make("comsd", FOUR, *overrides), "intrinsic") == fields


def test_updates_move_the_encoder_and_rewards_the_running_variance():
    objective, batch = make("comsd", FOUR), make_batch()
    assert moved(objective, lambda: objective.update(batch)) == {"encoder"}
    assert moved(objective, lambda: objective.rewards(batch)) == {"entropy"}


@pytest.mark.parametrize("domain, alpha", [("walker", 0.25), ("quadruped", 0.001), ("jaco", 0.01)])
def test_each_domain_has_its_alpha_and_the_command_line_wins(domain, alpha):
    words = ("agent=comsd", "preset=smoke", f"domain={domain}")
    assert composed("pretrain", *words)["agent"]["objective"]["alpha"] == alpha
    assert composed("pretrain", *words, "alpha=7")["agent"]["objective"]["alpha"] == 7


def test_an_unknown_domain_needs_an_alpha_on_the_command_line():
    words = ("agent=comsd", "preset=smoke", "domain.name=moon")
    with pytest.raises(
        UserError, match=r"agent comsd has no alpha for domain moon; .* \(alpha=...\)"
    ):
        composed("pretrain", *words)
    assert composed("pretrain", *words, "alpha=0.1")["alpha"] == 0.1


def test_an_unknown_variant_is_an_error_that_names_its_key():
    with pytest.raises(UserError, match=r"variant='mine' is not valid"):
        make("comsd", PARTS + "variant=mine")


@pytest.mark.parametrize("overrides", [(), (PORT,), (PARTS + "cpc=release",)])
def test_rewards_are_finite_columns_without_gradient(overrides):
    assert_rewards_are_sound(make("comsd", FOUR, *overrides))


@pytest.mark.parametrize("form", ["paper", "release"])
def test_repeated_updates_lower_the_loss(form):
    assert_updates_lower(make("comsd", FOUR, f"{PARTS}cpc={form}"), "cpc/loss")


def test_a_loaded_objective_continues_as_if_it_had_never_stopped():
    assert_state_round_trip("comsd", FOUR)


@pytest.mark.parametrize("overrides", [(), (PORT,)])
def test_learning_stays_on_its_device(overrides):
    assert_learns_on_meta("comsd", *overrides)


def test_the_config_is_that_of_the_port():
    config = composed("pretrain", "agent=comsd", "preset=smoke")
    assert isinstance(make("comsd"), ComSD) and (config["skill_dim"], config["skill_interval"]) == (
        16,
        50,
    )
    assert config["agent"]["native_skills"] == {"name": "fixed", "index": -1}

"""SMM: density by a VAE, a discriminator of skills, and the sign that the public code turns."""

import math

import numpy as np
import pytest
import torch

from agent.parts.draws import Draws
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
from utils import UserError

CODE = 8
SMALL = ("agent.objective.vae_hidden_dim=16", f"agent.objective.vae_code_dim={CODE}")
SIGN = "agent.objective.sign="


def noise_to_come(objective, size):
    """What the objective is about to draw: (size, code)."""
    generator = torch.Generator()
    generator.set_state(objective.generator.get_state())
    return array(torch.randn(size, CODE, generator=generator))


def autoencoded(objective, batch):
    """Errors and divergences of (s, z) in a loop over rows, under the noise to come."""
    x = torch.cat([batch.obs, batch.skill], 1)
    vae, noise = objective.density, noise_to_come(objective, len(x))
    mean, log_var = array(vae.mean(vae.features(x))), array(vae.log_var(vae.features(x)))
    errors, divergences = [], []
    for i in range(len(x)):
        code = torch.tensor(mean[i] + noise[i] * np.sqrt(np.exp(log_var[i]))).float()
        errors.append((array(x[i]) - array(vae.decode(code))) ** 2)
        divergences.append(
            -0.5 * sum(1 + v - m**2 - math.exp(v) for m, v in zip(mean[i], log_var[i]))
        )
    return np.array(errors), np.array(divergences)


def log_q(objective, batch):
    logits = array(objective.discriminator.net(batch.obs))
    index = batch.skill.argmax(1).tolist()
    return np.array([[row[z] - math.log(np.exp(row).sum())] for row, z in zip(logits, index)])


def test_the_losses_are_those_of_a_beta_vae_and_a_classifier():
    objective, batch = make("smm", *SMALL), make_batch()
    errors, divergences = autoencoded(objective, batch)
    cross_entropy = -log_q(objective, batch).mean()
    metrics = objective.update(batch)
    close(metrics["density/loss"], errors.mean() + 0.5 * divergences.mean())
    close(metrics["discriminator/loss"], cross_entropy)


@pytest.mark.parametrize("sign, factor", [("paper", 1), ("release", -1)])
def test_the_reward_is_surprise_plus_what_the_state_tells_of_the_skill(sign, factor):
    objective, batch = (
        make("smm", *SMALL, SIGN + sign, "agent.objective.density_weight=0.5"),
        make_batch(),
    )
    for seed in range(3):
        objective.update(make_batch(seed=seed))
    surprise = autoencoded(objective, batch)[0].sum(1, keepdims=True)
    expected = 0.5 * surprise + math.log(SKILLS) + factor * log_q(objective, batch)
    streams, metrics = objective.rewards(batch)
    close(streams["intrinsic"], expected)
    close(metrics["exploration/surprise"], surprise.mean())
    close(metrics["diversity/log_posterior"], log_q(objective, batch).mean())


def by_hand(sign):
    objective, batch = make("smm", *SMALL, SIGN + sign), make_batch(size=1)
    objective.density.decode = Fixed(torch.zeros(1, 8))
    objective.discriminator.net = Fixed([[math.log(5), 0.0, 0.0, 0.0]])  # q = 5/8 for skill 0
    batch = batch._replace(obs=torch.tensor([[1.0, 2.0, 0.0, 0.0]]), skill=torch.eye(SKILLS)[:1])
    return objective.rewards(batch)[0]["intrinsic"]


def test_the_reward_by_hand():
    # (s, z) = (1, 2, 0, 0, 1, 0, 0, 0) against zeros: 1 + 4 + 1 = 6
    close(by_hand("paper"), [[6 + math.log(2.5)]])  # + log 4 + log 5/8
    close(by_hand("release"), [[6 + math.log(6.4)]])  # + log 4 - log 5/8


def test_the_divergence_by_hand():
    vae = make("smm", *SMALL).density
    vae.mean, vae.log_var = Fixed([[1.0, 0.0]]), Fixed([[0.0, math.log(4)]])
    vae.decode = Fixed(torch.zeros(1, 8))
    # (1 + 1 - 0 - 1) / 2 + (0 + 4 - log 4 - 1) / 2
    close(vae(torch.zeros(1, 8), Draws(None))[1], [0.5 + 1.5 - math.log(2)])


def reward_for_telling(sign):
    """Reward of rows that show their skill, minus that of the same states under another skill's
    name."""
    objective, batch = (
        make("smm", *SMALL, SIGN + sign, "agent.objective.density_weight=0"),
        make_batch(),
    )
    batch = batch._replace(obs=3 * batch.skill)
    for _ in range(100):
        objective.update(batch)
    true, false = (
        objective.rewards(batch._replace(skill=z))[0]["intrinsic"]
        for z in (batch.skill, batch.skill.roll(1, 1))
    )
    return true - false


def test_the_paper_rewards_states_that_show_their_skill_and_the_public_code_states_that_hide_it():
    assert (reward_for_telling("paper") > 1).all()
    assert (reward_for_telling("release") < -1).all()


def test_rare_states_surprise():
    objective, common = make("smm", *SMALL), make_batch(size=64)
    common = common._replace(obs=0.1 * common.obs)
    for _ in range(100):
        objective.update(common)
    near, far = (
        objective.rewards(common._replace(obs=common.obs + shift))[0]["intrinsic"]
        for shift in (0, 3)
    )
    assert (far > near + 1).all()


def test_the_reward_reads_the_state_and_the_skill():
    assert depends_on(make("smm", *SMALL), "intrinsic") == {"obs", "skill"}


def test_updates_move_both_models_and_rewards_nothing():
    objective, batch = make("smm", *SMALL), make_batch()
    assert moved(objective, lambda: objective.update(batch)) == {"discriminator", "density"}
    assert moved(objective, lambda: objective.rewards(batch)) == set()


def test_each_model_has_its_own_learning_rate():
    optimizers = make("smm").optimizers
    assert {name: o.param_groups[0]["lr"] for name, o in optimizers.items()} == {
        "discriminator": 1e-3,
        "density": 1e-2,
    }


def test_an_unknown_sign_is_an_error_that_names_its_key():
    with pytest.raises(UserError, match=r"sign='plus' is not valid"):
        make("smm", SIGN + "plus")


@pytest.mark.parametrize("sign", ["paper", "release"])
def test_rewards_are_finite_columns_without_gradient(sign):
    assert_rewards_are_sound(make("smm", SIGN + sign))


def test_repeated_updates_lower_the_losses():
    assert_updates_lower(make("smm", *SMALL), "density/loss", "discriminator/loss")


def test_a_loaded_objective_continues_as_if_it_had_never_stopped():
    assert_state_round_trip("smm", *SMALL)


def test_learning_stays_on_its_device():
    assert_learns_on_meta("smm")


def test_the_config_is_that_of_urlb():
    config = composed("pretrain", "agent=smm", "preset=smoke")
    assert (config["skill_dim"], config["skill_interval"]) == (4, 0)
    assert config["agent"]["native_skills"] == {
        "name": "switching",
        "interval": 0,
        "eval": "per_episode",
    }
    settings = config["agent"]["objective"]
    assert [settings[k] for k in ("vae_hidden_dim", "vae_code_dim", "vae_beta")] == [150, 128, 0.5]

"""APS: its reward and loss, a critic whose Q is task . successor features, and the regressed task
of fine-tuning."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist

from agent.aps import RegressedSkill
from agent.base import TaskReward
from agent.skills.sources import SkillSpace
from replay_buffer import ReplayBuffer
from run.build import make_learner
from tests.kit.cli import rows
from tests.kit.configs import composed
from tests.kit.objectives import (
    ENV,
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
from utils import Streams, UserError

OWN = ("skill_dim=3", "agent.objective.k=5")
SPHERE = dict(skills=3, kind="sphere")


def make3(*overrides, **kwargs):
    return make("aps", *OWN, *overrides, **kwargs)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


# ------------------------------------------------------------------------------------ the objective


def test_the_reward_is_the_particle_entropy_of_phi_plus_its_cosine_with_the_task():
    objective, seen = make3(), [(0.0, 1e-4)]
    for seed in range(3):
        batch = make_batch(seed=seed, **SPHERE)
        objective.update(batch)
        phi = array(objective.phi(batch.next_obs))
        nearest = np.sort(cdist(phi, phi), axis=1)[:, :5]  # itself among the k = 5
        seen.append((nearest.mean(), nearest.size))
        mean = np.average([m for m, _ in seen], weights=[n for _, n in seen])
        entropy = np.log(1 + np.maximum(nearest / mean - 1e-4, 0).mean(1))
        match = np.array([sum(z * f) for z, f in zip(array(batch.skill), unit(phi))])
        rewards, metrics = objective.rewards(batch)
        close(rewards["exploration"], (entropy + match)[:, None])
        close(metrics["aps/entropy"], entropy.mean())
        close(metrics["aps/match"], match.mean())


def test_the_loss_is_minus_the_mean_cosine_of_features_and_task():
    objective, batch = make3(), make_batch(**SPHERE)
    cosines = unit(array(objective.phi(batch.next_obs))) @ array(batch.skill).T
    metrics = objective.update(batch)
    close(metrics["aps/loss"], -np.mean(np.diag(cosines)))
    close(metrics["aps/accuracy"], np.mean(cosines.argmax(1) == np.arange(24)))


def test_the_reward_by_hand():
    """phi = (0, 3) and (4, 0), k = 2: distances (0, 5) each, running mean 2.5, so (0, 2 - 1e-4) of
    mean 0.99995.

    log 1.99995 = 0.693122; the task (0.6, 0.8) agrees with (0, 1) to 0.8 and with (1, 0) to 0.6.
    """
    objective = make("aps", "skill_dim=2", "agent.objective.k=2")
    objective.phi = torch.nn.Identity()
    batch = make_batch(size=2, skills=2, kind="sphere", obs_dim=2)
    batch = batch._replace(
        next_obs=torch.tensor([[0.0, 3.0], [4.0, 0.0]]), skill=torch.tensor([[0.6, 0.8]] * 2)
    )
    close(objective.rewards(batch)[0]["exploration"], [[1.493122], [1.293122]], rtol=1e-5)


def test_states_that_coincide_earn_agreement_alone():
    objective, batch = make3(), make_batch(**SPHERE)
    batch = batch._replace(next_obs=batch.next_obs[:1].expand(24, -1))
    match = array(F.normalize(objective.phi(batch.next_obs), dim=1) * batch.skill).sum(
        1, keepdims=True
    )
    close(objective.rewards(batch)[0]["exploration"], match, atol=1e-4)


def test_it_reads_the_state_after_n_steps_and_the_task():
    assert depends_on(make3(), "exploration", **SPHERE) == {"next_obs", "skill"}


def test_updates_move_phi_and_rewards_the_running_mean():
    objective, batch = make3(), make_batch(**SPHERE)
    assert moved(objective, lambda: objective.update(batch)) == {"phi"}
    assert moved(objective, lambda: objective.rewards(batch)) == {"entropy"}


def test_what_every_method_owes():
    assert_rewards_are_sound(make3(), **SPHERE)
    assert_state_round_trip("aps", *OWN, **SPHERE)
    assert_updates_lower(make3(), "aps/loss", **SPHERE)
    assert_learns_on_meta("aps")
    assert_learns_on_meta("aps", "task=walker_run", phase="finetune")


# -------------------------------------------------------------------------------------- the learner


def learner3(seed=0):
    config = composed("pretrain", "agent=aps", "preset=smoke", *OWN)
    torch.manual_seed(seed)
    return make_learner(config, ENV, 3, ("exploration",), Streams(seed))


def successor_features(critic, batch, action):
    x = torch.cat([batch.obs, batch.skill, action], 1)
    return critic.q1(critic.trunk(x)), critic.q2(critic.trunk(x))


def test_q_is_the_task_times_the_successor_features():
    learner, batch = learner3(), make_batch(**SPHERE)
    psi = successor_features(learner.critic, batch, batch.action)
    assert [tuple(p.shape) for p in psi] == [(24, 3)] * 2
    for q, p in zip(learner.values(learner.critic, batch.obs, batch.skill, batch.action), psi):
        assert q.shape == (24, 1)
        close(q, [[sum(z * f)] for z, f in zip(array(batch.skill), array(p))])


def test_critic_and_actor_learn_through_that_product():
    learner, batch = learner3(), make_batch(**SPHERE)
    y = torch.randn(24, 1, generator=torch.Generator().manual_seed(1))
    loss = learner.critic_losses(batch, {"exploration": y}, {})["exploration"]
    psi = successor_features(learner.critic, batch, batch.action)
    z, target = array(batch.skill), array(y)[:, 0]
    close(loss, sum(np.mean(((array(p) * z).sum(1) - target) ** 2) for p in psi))
    loss.backward()  # dL / dpsi is along the task: the gradient of the last bias is a sum of tasks
    residual = [2 * ((array(p) * z).sum(1) - target) / 24 for p in psi]
    for head, r in zip((learner.critic.q1, learner.critic.q2), residual):
        close(head[-1].bias.grad, r @ z, atol=1e-5)
    q = torch.minimum(*learner.values(learner.critic, batch.obs, batch.skill, batch.action))
    close(learner.actor_losses(q, batch.skill)["q"], -array(q).mean())


def test_the_learner_learns_the_task_reward_and_starts_warm_from_a_pretrained_one():
    class Memory:
        def sample(self, size):
            return make_batch(size, **SPHERE)

    pretrained, learner = learner3(), learner3(seed=1)
    first = learner.learn(Memory(), TaskReward(), 0)
    for step in range(2, 100, 2):
        last = learner.learn(Memory(), TaskReward(), step)
    assert last["critic_loss/task"] < first["critic_loss/task"]
    learner.warm_start(copy.deepcopy(pretrained.state_dict()))
    assert torch.equal(learner.critic.trunk[0].weight, pretrained.critic.trunk[0].weight)
    assert not torch.equal(learner.critic.q1[0].weight, pretrained.critic.q1[0].weight)


# -------------------------------------------------------------------------- the task of fine-tuning


class Linear(torch.nn.Module):
    """Features that are a fixed linear map of the observation."""

    def __init__(self, seed=0):
        super().__init__()
        self.register_buffer(
            "map", torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
        )

    def forward(self, obs):
        return obs @ self.map


def source(regression="least_squares", **changes):
    settings = dict(features=Linear(), interval=5, warmup=10, samples=256, regression=regression)
    return RegressedSkill(
        SkillSpace("sphere", 3), np.random.default_rng(0), **{**settings, **changes}
    )


class Rewarded:
    """A memory whose reward is a function of a batch."""

    def __init__(self, reward):
        self.reward, self.asked = reward, []

    def __len__(self):
        return 100

    def sample(self, size):
        self.asked.append(size)
        batch = make_batch(size, seed=len(self.asked), **SPHERE)
        return batch._replace(reward=self.reward(batch))


TASK = np.array([2.0, -1.0, 0.5])


def linear_reward(batch):
    return F.normalize(Linear()(batch.next_obs), dim=1) @ torch.tensor(TASK).float().unsqueeze(1)


def test_regression_recovers_the_task_of_a_linear_reward():
    skills = source()
    metrics = skills.update(Rewarded(linear_reward), 15)
    np.testing.assert_allclose(
        skills.select(None, 16, first=False), TASK / np.linalg.norm(TASK), atol=1e-5
    )
    close(metrics["skills/fit"], 1.0)
    assert np.linalg.norm(skills.skill) == pytest.approx(1) and skills.skill.dtype == np.float32


def test_regression_with_noise_is_the_least_squares_solution():
    memory = Rewarded(lambda batch: linear_reward(batch) + batch.reward)
    skills = source()
    skills.update(memory, 15)
    batch = make_batch(256, seed=1, **SPHERE)
    phi, r = unit(array(batch.next_obs) @ array(Linear().map)), array(memory.reward(batch))[:, 0]
    expected = np.linalg.inv(phi.T @ phi) @ phi.T @ r  # normal equations
    np.testing.assert_allclose(skills.skill, unit(expected), atol=1e-5)


def test_the_public_codes_regression_is_the_sum_of_rewarded_features():
    memory, skills = Rewarded(linear_reward), source("release")
    skills.update(memory, 15)
    batch = make_batch(256, seed=1, **SPHERE)
    phi, r = unit(array(batch.obs) @ array(Linear().map)), array(memory.reward(batch))
    swapped = np.linalg.lstsq(r, phi, rcond=None)[0][0]  # features explained by the reward
    np.testing.assert_allclose(skills.skill, unit(swapped), atol=1e-5)
    np.testing.assert_allclose(
        skills.skill, unit(sum(r[i] * phi[i] for i in range(256))), atol=1e-5
    )


def test_regression_by_hand():
    """phi = (1,0,0), (1,0,0), (0,1,0) with rewards 1, 3, 2: w = (2, 2, 0), sum r phi = (4, 2,
    0)."""
    obs, reward = (
        torch.tensor([[1.0, 0, 0], [5.0, 0, 0], [0, 2.0, 0]]),
        torch.tensor([[1.0], [3.0], [2.0]]),
    )
    for regression, expected in (("least_squares", [2, 2, 0]), ("release", [4, 2, 0])):
        task, fit = source(regression, features=torch.nn.Identity()).regress(obs, reward)
        np.testing.assert_allclose(task, expected, atol=1e-12)
        assert fit == pytest.approx(1 - 2 / 14)  # residuals -1, 1, 0; squares 1 + 9 + 4


def test_tasks_are_random_until_the_warmup_is_over_and_refit_every_interval_after_it():
    skills, memory, tasks = (
        source(),
        Rewarded(lambda batch: linear_reward(batch) + batch.reward),
        [],
    )
    for step in range(31):
        tasks.append(skills.select(None, step, first=step == 0))
        skills.update(memory, step)
    changed = [step for step in range(1, 31) if not np.array_equal(tasks[step], tasks[step - 1])]
    # Random at 5, 10, 15; regressed at the end of steps 15, 20, 25, 30.
    assert changed == [5, 10, 15, 16, 21, 26]
    assert memory.asked == [256] * 4


def test_a_new_episode_redraws_a_random_task_but_keeps_a_solved_one():
    skills = source()
    before = skills.select(None, 1, first=True)
    assert not np.array_equal(skills.select(None, 2, first=True), before)
    skills.update(Rewarded(linear_reward), 15)
    solved = skills.skill
    assert np.array_equal(skills.select(None, 20, first=True), solved)


def test_a_memory_without_reward_leaves_the_task_as_it_is():
    skills = source()
    task = skills.select(None, 0, first=True)
    assert skills.update(Rewarded(lambda batch: torch.zeros(256, 1)), 15)["skills/fit"] == 0
    assert np.array_equal(skills.skill, task) and not skills.solved


def test_an_evaluation_uses_the_solved_task_and_before_that_one_random_task():
    skills = source()
    own = skills.select(None, 0, first=True)
    drawn = skills.evaluation(np.random.default_rng(1))
    task = drawn.select(None, 0, first=True)
    assert np.linalg.norm(task) == pytest.approx(1) and np.array_equal(
        drawn.select(None, 5, first=True), task
    )
    assert not np.array_equal(task, own) and np.array_equal(skills.skill, own)
    skills.update(Rewarded(linear_reward), 15)
    evaluated = skills.evaluation(np.random.default_rng(1))
    assert np.array_equal(evaluated.select(None, 0, first=True), skills.skill)
    assert skills.rule == "regressed"


def test_a_saved_source_goes_on_as_it_was():
    for steps in (3, 17):
        original, other = source(), source()
        for step in range(steps):
            original.select(None, step, first=step == 0)
            original.update(Rewarded(linear_reward), step)
        other.load_state_dict(original.state_dict())
        # Travels with the run's streams.
        other.rng.bit_generator.state = original.rng.bit_generator.state
        assert other.solved == original.solved == (steps == 17)
        for step in range(steps, steps + 12):
            assert np.array_equal(
                original.select(None, step, first=False), other.select(None, step, first=False)
            )


def test_it_regresses_on_a_real_memory_with_the_pretrained_features():
    memory = ReplayBuffer(
        obs_dim=4,
        action_dim=2,
        skill_dim=3,
        capacity=100,
        nstep=3,
        gamma=0.99,
        skill_index="acting",
        rng=np.random.default_rng(0),
        one_hot=False,
    )
    rng, skills = np.random.default_rng(1), source(features=make3().phi)
    assert skills.update(memory, 15) == {}  # nothing there yet
    memory.begin(rng.normal(size=4))
    for _ in range(30):
        memory.add(np.zeros(2), np.ones(3), rng.random(), 1.0, rng.normal(size=4))
    assert 0 < skills.update(memory, 20)["skills/fit"] <= 1 and skills.solved


def test_unknown_regressions_are_refused():
    with pytest.raises(
        UserError, match="regression='ridge' is not valid; choose from least_squares, release"
    ):
        composed("pretrain", "agent=aps", "agent.native_skills.regression=ridge")
    native = composed("pretrain", "agent=aps", "preset=smoke")["agent"]["native_skills"]
    numbers = {key: native[key] for key in ("interval", "warmup", "samples", "regression")}
    # URLB's yaml
    assert numbers == {
        "interval": 5,
        "warmup": 4096,
        "samples": 4096,
        "regression": "least_squares",
    }


def test_the_native_rule_refits_the_task_in_a_real_finetuning_from_a_snapshot_of_another_size(cli):
    assert cli("pretrain", "agent=aps", "learner.hidden_dim=24", "variant=small").code == 0
    args = ("agent=aps", "task=walker_walk", "skills=native", "pretrain_variant=small")
    out = cli("finetune", *args, "agent.native_skills.warmup=30", "agent.native_skills.samples=16")
    assert out.code == 0, out.err
    (table,) = cli.root.glob("finetune/walker_walk/aps/*/native/seed_1/train.csv")
    assert any(row["skills/fit"] for row in rows(table))

"""What a learner takes from a snapshot and who learns when: each key does what it says, and nothing
else."""

import copy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from agent.base import TaskReward
from agent.learners.adaptation import Adaptation
from agent.learners.ddpg import DDPG
from tests.kit.learners import ACT, OBS, SKILLS, make_batch, make_ddpg
from utils import UserError, weights

URLB = dict(
    warmup="uniform",
    actor=True,
    moments=False,
    critic_first=0,
    actor_lr=1.0,
    pull=0.0,
    pull_updates=10,
)


def adapted(*, init=0, seed=0, presquash=0.0, **changes) -> DDPG:
    return make_ddpg(
        init=init, seed=seed, presquash=presquash, adapt=Adaptation(**{**URLB, **changes})
    )


def learn(learner, updates, first=0):
    for i in range(first, first + updates):
        metrics = learner.update(
            TaskReward(), [make_batch(i)], critic_alone=learner._critic_alone()
        )
    return metrics


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_urlbs_rules_are_the_learner_without_adaptation_bit_for_bit():
    plain, urlb = make_ddpg(), adapted()
    source = weights(make_ddpg(init=7))
    for learner in (plain, urlb):
        learner.warm_start(source)
        learn(learner, 3)
    assert same(plain, urlb)


def test_the_policy_may_act_during_warm_up():
    obs, skill = np.ones(OBS, np.float32), np.eye(SKILLS, dtype=np.float32)[0]
    uniform, policy = adapted(), adapted(warmup="policy")
    drawn = np.stack([uniform.act(obs, skill, 0, explore=True) for _ in range(300)])
    near = np.stack([policy.act(obs, skill, 0, explore=True) for _ in range(300)])
    mean = policy.act(obs, skill, 0, explore=False)
    assert drawn.shape == near.shape == (300, ACT)
    assert drawn.std(0).min() > 0.5  # uniform in (-1, 1): 0.577
    assert np.abs(near - mean).mean() < 0.25 and near.std(0).max() < 0.25  # noise of 0.2


def test_the_actor_may_start_afresh_while_the_critics_trunk_is_taken():
    source = make_ddpg(init=7)
    learner, fresh = adapted(actor=False), adapted()
    before = copy.deepcopy(learner.actor)
    learner.warm_start(weights(source))
    fresh.warm_start(weights(source))
    assert same(learner.actor, before) and same(learner.critic.trunk, source.critic.trunk)
    assert same(fresh.actor, source.actor)


def test_the_critic_learns_alone_first():
    learner = adapted(critic_first=3)
    actor, critic = copy.deepcopy(learner.actor), copy.deepcopy(learner.critic)
    learn(learner, 3)
    assert same(learner.actor, actor) and not same(learner.critic, critic)
    learn(learner, 1, first=3)
    assert not same(learner.actor, actor)


def test_the_actors_learning_rate_is_a_multiple_of_the_learners():
    """Adam's first step has the length of its learning rate, whatever the gradient."""
    moved = {}
    for factor in (1.0, 0.25):
        learner = adapted(actor_lr=factor)
        before = [p.clone() for p in learner.actor.parameters()]
        learn(learner, 1)
        steps = [(p - b).abs().max() for p, b in zip(learner.actor.parameters(), before)]
        moved[factor] = torch.stack(steps).max().item()
    assert moved[0.25] == pytest.approx(0.25 * moved[1.0], rel=1e-3)


def test_the_optimisers_go_on_with_the_moments_of_the_snapshot():
    source = make_ddpg(init=7)
    learn(source, 5)
    learner = adapted(moments=True, actor_lr=0.5)
    learner.warm_start(weights(source), copy.deepcopy(source.get_extra_state()))
    for name in ("actor", "critic"):
        ours, theirs = learner.optimizers[name].prepare(), source.optimizers[name].prepare()
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert learner.actor_opt.param_groups[0]["lr"] == 0.5e-3  # its own
    with pytest.raises(UserError, match="needs a snapshot that holds the optimisers"):
        adapted(moments=True).warm_start(weights(source), {})


def test_the_pull_is_the_distance_to_the_snapshots_actor_and_fades():
    """The extra loss against its formula: pull * (1 - t / T)+ * mean |Q| * mean (mu - mu_0)^2."""
    learner = adapted(pull=2.0, pull_updates=4)
    learner.warm_start(weights(make_ddpg(init=7)))
    learner.actor.load_state_dict(make_ddpg(init=8).actor.state_dict())  # has moved since
    batch = make_batch(0)
    x = torch.cat([batch.obs, batch.skill], 1)
    before = learner.actor.before_tanh(x)
    q = torch.tensor([[-3.0], [1.0]])
    prior = make_ddpg(init=7).actor(x)
    distance = (
        sum(
            (a - b).item() ** 2
            for a, b in zip(before.tanh().flatten(), prior.flatten(), strict=True)
        )
        / prior.numel()
    )
    for updates, fade in ((0, 1.0), (1, 0.75), (4, 0.0), (9, 0.0)):
        learner.updates.fill_(updates)
        extra = learner._actor_extra(x, before, before.tanh(), q)
        assert_close(extra.item(), 2.0 * fade * 2.0 * distance)


def test_a_strong_pull_keeps_the_actor_where_it_was():
    far = {}
    for pull in (0.0, 100.0):
        learner = adapted(pull=pull, pull_updates=10**6)
        learner.warm_start(weights(make_ddpg(init=7)))
        start = copy.deepcopy(learner.actor)
        learn(learner, 40)
        x = torch.cat([make_batch(99).obs, make_batch(99).skill], 1)
        far[pull] = (learner.actor(x) - start(x)).abs().mean().item()
    assert far[100.0] < 0.5 * far[0.0]


def test_the_penalty_is_the_mean_square_before_tanh_and_makes_it_small():
    learner = adapted(presquash=0.3)
    before = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
    extra = learner._actor_extra(before, before, before.tanh(), before)
    assert extra.item() == pytest.approx(0.3 * 14 / 4)
    sizes = {}
    for weight in (0.0, 10.0):
        learner = make_ddpg(presquash=weight)
        learn(learner, 60)
        x = torch.cat([make_batch(99).obs, make_batch(99).skill], 1)
        sizes[weight] = learner.actor.before_tanh(x).abs().mean().item()
    assert sizes[10.0] < 0.7 * sizes[0.0]


def test_saturation_is_measured():
    learner = make_ddpg()
    with torch.no_grad():
        learner.actor.head[-1].weight.mul_(1e4)
    assert learn(learner, 1)["actor/saturated"] > 0.95
    with torch.no_grad():
        learner.actor.head[-1].weight.zero_()
    learner.actor.head[-1].bias.data.zero_()
    assert learn(learner, 1)["actor/saturated"] == 0

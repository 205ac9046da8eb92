"""Gradients reach the encoder as if losses had been written on pictures, and only where they should."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agent.base import Objective, TaskReward, descend
from agent.learners.sight import OBSERVATIONS, Seen
from agent.parts.draws import Draws
from agent.parts.optim import Reach
from agent.parts.pixels import Encoder, Images, PixelSettings
from tests.kit import learners as kit
from tests.kit.learners import ACT, SKILLS, B

IMAGES = Images((3, 18, 18), 4)
FEATURES = IMAGES.features


def make_ddpg(*, critic=True, objective=True, shift=0, **changes):
    pixels = PixelSettings(
        channels=IMAGES.channels,
        feature_dim=6,
        shift=shift,
        critic_encoder=critic,
        update_encoder=objective,
    )
    settings = {"action_input": "head", "layers": 2, **changes}
    return kit.make_ddpg(obs_dim=FEATURES, pixels=pixels, images=IMAGES, **settings)


def make_batch(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return kit.make_batch(seed)._replace(
        **{
            name: torch.randint(256, (B, *IMAGES.shape), dtype=torch.uint8, generator=draw)
            for name in OBSERVATIONS
        }
    )


class Guess(Objective):
    """Guesses the skill from s' and from s, in two losses of their own, and rewards a right guess."""

    streams = ("task",)

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = nn.Linear(FEATURES, SKILLS), nn.Linear(FEATURES, SKILLS)
        self.one = self.adam("one", self.first.parameters(), 1e-3)
        self.two = self.adam("two", self.second.parameters(), 1e-3)

    def losses(self, batch):
        label = batch.skill.argmax(1)
        return (
            F.cross_entropy(self.first(batch.next_obs), label),
            F.cross_entropy(self.second(batch.obs), label),
        )

    def update(self, batch, *, final=True):
        for loss, opt in zip(self.losses(batch), (self.one, self.two), strict=True):
            descend(loss, opt)
        return {}

    def rewards(self, batch):
        with torch.no_grad():
            return {"task": self.first(batch.next_obs).max(1, keepdim=True).values}, {}


def encoder_step(learner, action) -> list[torch.Tensor]:
    """The gradient that the encoder's optimiser was given; empty if it was not called."""
    given, step = [], learner.encoder_opt.step_along
    learner.encoder_opt.step_along = lambda grads: given.append(list(grads)) or step(grads)
    action()
    assert len(given) <= 1, "one step of the encoder per update"
    return given[0] if given else []


def by_hand(learner, objective, batch, *, critic, of_objective):
    """The same gradient by autograd through the whole network, from pictures to losses."""
    learner, objective = copy.deepcopy(learner), copy.deepcopy(objective)
    encoder = learner.encoder
    plain = batch._replace(
        obs=encoder(batch.obs),
        next_obs=encoder(batch.next_obs),
        next_obs_1=encoder(batch.next_obs_1),
    )
    parameters = list(encoder.parameters())
    total = [torch.zeros_like(p) for p in parameters]

    def add(loss):
        for each, grad in zip(
            total, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True
        ):
            each += grad

    if of_objective:  # before its own step, which moves its weights
        add(sum(objective.losses(plain)))
    if critic:
        apart = plain._replace(next_obs=plain.next_obs.detach())
        objective.update(Detached(apart))
        rewards = objective.rewards(apart)[0]
        targets = learner.targets(apart, rewards)
        add(sum(learner.critic_losses(apart, targets, {}).values()))
    return total


class Detached:
    """A batch whose observations have no history."""

    def __init__(self, batch):
        self.skill = batch.skill
        self.obs, self.next_obs = batch.obs.detach(), batch.next_obs.detach()


@pytest.mark.parametrize(("critic", "of_objective"), [(1, 0), (0, 1), (1, 1)])
def test_the_encoder_learns_from_the_losses_that_may_teach_it(critic, of_objective):
    learner = make_ddpg(critic=bool(critic), objective=bool(of_objective))
    objective, batch = Guess(), make_batch()
    expected = by_hand(learner, objective, batch, critic=critic, of_objective=of_objective)
    found = encoder_step(learner, lambda: learner.update(objective, [batch]))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert max(g.abs().max() for g in found) > 1e-4


def test_an_encoder_that_nothing_teaches_stays_as_it_is():
    learner = make_ddpg(critic=False, objective=False)
    before = copy.deepcopy(learner.encoder.state_dict())
    assert encoder_step(learner, lambda: learner.update(Guess(), [make_batch()])) == []
    kit.same_numbers(before, learner.encoder.state_dict())


def test_in_fine_tuning_the_critic_teaches_it_and_the_actor_does_not():
    learner, batch = make_ddpg(), make_batch()
    with_actor = encoder_step(learner, lambda: learner.update(TaskReward(), [batch]))
    again = make_ddpg()
    alone = encoder_step(again, lambda: again.update(TaskReward(), [batch], critic_alone=True))
    kit.same_numbers(with_actor, alone)
    assert with_actor


def test_with_several_streams_it_gets_the_gradient_of_their_sum():
    """Surgery is about the critic's own weights."""
    objective, batch = kit.task_and_negative(), make_batch()
    learner = make_ddpg(streams=kit.TWO)
    plain = batch._replace(obs=learner.encoder(batch.obs), next_obs=learner.encoder(batch.next_obs))
    apart = plain._replace(next_obs=plain.next_obs.detach())
    other = copy.deepcopy(learner)
    targets = other.targets(apart, objective.rewards(apart)[0])
    losses = learner.critic_losses(apart, targets, {}).values()
    expected = torch.autograd.grad(sum(losses), list(learner.encoder.parameters()))
    found = encoder_step(learner, lambda: learner.update(objective, [batch]))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_batches_before_the_last_teach_it_too():
    learner, given = make_ddpg(critic=False), []
    step = learner.encoder_opt.step_along
    learner.encoder_opt.step_along = lambda grads: given.append(1) or step(grads)
    learner.update(Guess(), [make_batch(0), make_batch(1), make_batch(2)])
    assert len(given) == 3


def test_what_nobody_asks_for_is_neither_shifted_nor_encoded():
    encoder, draws = Encoder(IMAGES), Draws(torch.Generator().manual_seed(0))
    seen = Seen(make_batch(), encoder, shift=2, draws=draws)
    calls = []
    encoder.register_forward_hook(lambda *_: calls.append(1))
    assert seen.obs is seen.obs and seen.obs.shape == (B, FEATURES)
    assert len(calls) == 1 and set(seen._pictures) == {"obs"}
    assert not seen.obs.requires_grad
    assert seen.next_obs_1 is not None and len(calls) == 2


def test_outside_an_update_no_gradient_is_collected():
    learner = make_ddpg()
    learner.update(Guess(), [make_batch()])
    assert Reach.now is None


def test_acting_sees_pictures_without_a_shift():
    learner, batch = make_ddpg(shift=3), make_batch()
    skill = batch.skill.numpy()
    many = learner.act(batch.obs.numpy(), skill, 100, explore=False)
    one = learner.act(batch.obs[2].numpy(), skill[2], 100, explore=False)
    x = torch.cat([learner.encoder(batch.obs), batch.skill], 1)
    torch.testing.assert_close(torch.from_numpy(many), learner.actor(x).detach())
    torch.testing.assert_close(torch.from_numpy(one), torch.from_numpy(many)[2])
    assert one.shape == (ACT,)


def test_a_warm_start_takes_the_encoder_along():
    ours, theirs = make_ddpg(init=0), make_ddpg(init=1)
    ours.warm_start(theirs.state_dict())
    kit.same_numbers(ours.encoder.state_dict(), theirs.encoder.state_dict())

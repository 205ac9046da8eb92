"""Weights of the streams: their schedules, the information that they hold, and where they act."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import digamma

from agent.learners.stream_weights import HeldShare, LinearShare, StreamWeights, information
from run.build import make_stream_weights
from run.compiling import updates_of
from tests.kit.configs import composed
from tests.kit.learners import TWO, Given, Tape, make_ddpg, make_ppo, task_and_negative
from utils import UserError

HOLD = dict(target=0.5, rate=10, lowest=0.1, highest=0.9, rows=100, neighbours=3)


def constant(share, streams=TWO, of="diversity"):
    return StreamWeights(of=of, share=share, streams=streams, updates=10)


def linear(**changes):
    settings = dict(share=0.2, last_share=0.6, begin=0.25, finish=0.75) | changes
    return LinearShare(of="diversity", streams=TWO, updates=8, **settings)


def held(**changes):
    return HeldShare(of="diversity", share=None, streams=TWO, updates=100, **(HOLD | changes))


# ---------------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    "share, streams, weights",
    [
        (None, TWO, [1, 1]),
        (0.5, TWO, [1, 1]),
        (0.25, TWO, [0.5, 1.5]),
        (0.4, ("diversity", "b", "c"), [1.2, 0.9, 0.9]),
        (None, ("b", "diversity", "c"), [1, 1, 1]),
    ],
)
def test_a_share_is_of_the_named_stream_and_the_others_have_the_rest_alike(share, streams, weights):
    torch.testing.assert_close(constant(share, streams).weights, torch.tensor(weights).float())


def test_a_linear_share_moves_between_begin_and_finish():
    schedule = linear()
    shares = [schedule.advance(None, None)["balance/share"].item() for _ in range(8)]
    # Updates at 0, 1/8, ... of the run; from 2/8 to 6/8 it moves by 0.4.
    np.testing.assert_allclose(shares, [0.2, 0.2, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6], atol=1e-6)
    torch.testing.assert_close(schedule.weights, torch.tensor([1.2, 0.8]))


def test_a_schedule_continues_where_its_state_says():
    whole, first, second = linear(), linear(), linear()
    for schedule, steps in ((whole, 5), (first, 3)):
        for _ in range(steps):
            schedule.advance(None, None)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        second.advance(None, None)
    assert torch.equal(whole.weights, second.weights) and second.count == 5


def skills_apart(distance, seed=0, rows=90, skills=3):
    """States around centres `distance` apart, one per skill; and the skills as one-hot rows."""
    g = torch.Generator().manual_seed(seed)
    index = torch.arange(rows) % skills
    states = torch.randn(rows, 2, generator=g)
    states[:, 0] += distance * index
    return states, torch.eye(skills)[index]


@pytest.mark.parametrize("distance, rises", [(0.0, True), (30.0, False)])
def test_the_share_rises_while_information_is_missing_and_falls_beyond_the_target(distance, rises):
    schedule = held()
    shares = [schedule.advance(*skills_apart(distance))["balance/share"] for _ in range(60)]
    assert (shares[0] > 0.5) == rises
    assert abs(shares[-1] - (0.9 if rises else 0.1)) < 1e-5  # and stays within its bounds
    assert abs(shares[0].logit()) == pytest.approx(10 / 100 * 0.5, rel=0.2)


def test_the_share_rests_at_its_target():
    schedule = held(target=1.0)
    assert schedule.advance(*skills_apart(100.0))["balance/share"] == pytest.approx(0.5, abs=1e-3)


# -------------------------------------------------------------------------------------- information


def ross_loop(states, skill, k):
    """Ross 2014, Eq. (2), point by point."""
    distance, total = cdist(states, states), []
    for i, row in enumerate(distance):
        own = np.sort(np.delete(row, i)[np.delete(skill, i) == skill[i]])
        near = min(k, len(own))
        inside = (np.delete(row, i) <= own[near - 1]).sum()
        total.append(digamma(near) - digamma((skill == skill[i]).sum()) - digamma(inside))
    return digamma(len(states)) + np.mean(total)


@pytest.mark.parametrize("distance", [0.5, 1.5, 4.0])
def test_information_is_rosss_estimate(distance):
    states, skill = skills_apart(distance, rows=80, skills=4)
    skill = skill.argmax(1)
    skill[5:70] = skill[5:70] % 2  # of different frequency; two skills have only a few rows
    expected = ross_loop(states.double().numpy(), skill.numpy(), 3)
    assert information(states, skill, 3).item() == pytest.approx(max(expected, 0), abs=1e-4)


def test_information_is_log_n_for_skills_apart_and_nothing_for_skills_alike():
    for distance, expected in ((100.0, math.log(3)), (0.0, 0.0)):
        states, skill = skills_apart(distance, rows=600)
        assert information(states, skill.argmax(1), 3).item() == pytest.approx(expected, abs=0.06)


def test_a_skill_with_a_single_state_is_left_out():
    states, skill = skills_apart(100.0)
    skill = skill.argmax(1)
    alone = torch.cat([states, torch.full((1, 2), 7.0)]), torch.cat([skill, torch.tensor([3])])
    torch.testing.assert_close(information(*alone, 3), information(states, skill, 3))


# --------------------------------------------------------------------------------- where they act


@pytest.mark.parametrize("heads", ["shared", "per_stream"])
def test_ddpg_steps_along_the_weighted_sum_of_the_streams(heads):
    """With `sum` the step is that of streams whose losses are multiplied by the weights."""
    plain, balanced = (
        make_ddpg(streams=TWO, critic_heads=heads, stream_weights=weights)
        for weights in (None, constant(0.2))
    )
    critic_losses, actor_losses = plain.critic_losses, plain.actor_losses

    def times(losses):
        return {name: loss * w for (name, loss), w in zip(losses.items(), (0.4, 1.6))}

    plain.critic_losses = lambda *given: times(critic_losses(*given))
    if heads == "per_stream":
        plain.actor_losses = lambda *given: times(actor_losses(*given))
    for learner in (plain, balanced):
        learner.learn(Tape(0), task_and_negative(), 0)
    for name in ("critic", "actor"):
        for a, b in zip(getattr(plain, name).parameters(), getattr(balanced, name).parameters()):
            torch.testing.assert_close(a, b)


def test_a_neutral_share_is_the_learner_without_weights():
    for weights in (constant(0.5), linear(share=0.5, last_share=0.5)):
        plain, balanced = make_ddpg(streams=TWO), make_ddpg(streams=TWO, stream_weights=weights)
        for learner in (plain, balanced):
            learner.learn(Tape(0), task_and_negative(), 0)
        for a, b in zip(plain.parameters(), balanced.parameters()):
            assert torch.equal(a, b)


def test_ppo_steps_along_the_weighted_sum_of_the_streams():
    learner = make_ppo("balance.share=0.25", "balance.of=a")
    grads = {"a": torch.randn(5), "b": torch.randn(5)}
    torch.testing.assert_close(learner.combine(grads), 0.5 * grads["a"] + 1.5 * grads["b"])


@pytest.mark.parametrize("words", [(), ("balance=constant",), ("agent=diayn", "balance=linear")])
def test_plain_streams_and_a_single_one_need_no_weights(words):
    config = composed("pretrain", "preset=smoke", *words)
    assert make_stream_weights(config, ("diversity",) if words[1:] else TWO) is None


def test_what_a_schedule_cannot_be_is_told_in_one_line():
    with pytest.raises(UserError, match=r"balance\.of=speed is no reward stream; choose from"):
        constant(0.3, of="speed")
    with pytest.raises(UserError, match=r"balance\.begin=0\.8 is not before"):
        linear(begin=0.8)
    with pytest.raises(UserError, match=r"the share starts at 0\.5, between them"):
        held(lowest=0.6)
    config = composed("pretrain", "preset=smoke", "balance=hold", "agent=metra_continuous")
    with pytest.raises(UserError, match="needs one-hot ones"):
        make_stream_weights(config, TWO)


def test_a_run_knows_how_many_updates_it_makes():
    assert updates_of(composed("pretrain", "preset=smoke")) == 50  # (120 - 20) / 2
    maze = composed("pretrain", "preset=smoke", "domain=tree_maze")
    assert updates_of(maze) == 480 // (2 * 8 * 5)
    reuse = composed("finetune", "preset=smoke", "task=walker_run", "adapt=reuse")
    online = reuse["num_train_frames"] // reuse["learner"]["update_every_steps"]
    assert updates_of(reuse) == reuse["preset"]["ddpg"]["offline_updates"] + online


# ---------------------------------------------------------------------------- streams on one scale


def test_streams_on_one_scale_are_centred_and_have_unit_deviation():
    learner = make_ddpg(streams=TWO, critic_heads="per_stream", reward_scale="per_stream")
    seen = []
    learner.targets = lambda batch, rewards: (
        seen.append(rewards),
        type(learner).targets(learner, batch, rewards),
    )[1]
    objective = Given(
        diversity=lambda batch: 1e-3 * batch.reward + 5, exploration=lambda batch: 40 * batch.reward
    )
    metrics = learner.learn(Tape(0), objective, 0)
    for reward in seen[0].values():
        assert abs(reward.mean()) < 1e-3 and abs(reward.std() - 1) < 1e-3
    torch.testing.assert_close(*seen[0].values(), rtol=1e-3, atol=1e-3)  # one signal, two scales
    assert metrics["reward/diversity"] > 4  # what is logged is what the objective gave
    # The moments average the updates so far.
    learner.learn(Tape(1), objective, 0)
    expected = torch.stack([Tape(s).batches[0].reward.mean() for s in (0, 1)]).mean()
    torch.testing.assert_close(learner.reward_moments.mean[1], 40 * expected)


def test_a_single_stream_keeps_its_scale():
    learner = make_ddpg(reward_scale="per_stream")
    assert learner.reward_moments is None

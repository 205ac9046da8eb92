"""Backward passes written out give autograd's gradients: of MLPs, of the twin critic and of the
actor."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agent.base import FlatVector
from agent.learners.ddpg import clipped_noise
from agent.learners.surgery import flat_grad
from agent.parts.curiosity import RND
from agent.parts.networks import mlp
from tests.kit.learners import TWO, Tape, make_batch, make_ddpg, task_and_negative


def plain(net, x):
    for i, layer in enumerate(net.linears):
        x = F.linear(x.relu() if i else x, layer.weight, layer.bias)
    return x


@pytest.mark.parametrize("sizes", [(3, 2), (3, 5, 2), (3, 5, 4, 2)])
@pytest.mark.parametrize("wants_input", [True, False])
def test_an_mlp_has_autograds_outputs_and_gradients_to_the_bit(sizes, wants_input):
    net, x = mlp(*sizes), torch.randn(7, 3, requires_grad=wants_input)
    wanted = [*net.parameters(), *([x] if wants_input else [])]
    y, expected = net(x), plain(net, x)
    weight = torch.randn_like(y)
    assert torch.equal(y, expected)
    for a, b in zip(
        torch.autograd.grad(y, wanted, weight), torch.autograd.grad(expected, wanted, weight)
    ):
        assert torch.equal(a, b)


def test_a_frozen_mlp_passes_gradients_on_and_takes_none():
    net, x = mlp(3, 5, 2).requires_grad_(False), torch.randn(7, 3, requires_grad=True)
    net(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(plain(net, x).sum(), x)[0])
    assert all(p.grad is None for p in net.parameters()) and not net(x.detach()).requires_grad


def test_an_mlp_of_any_rank_says_the_same_with_and_without_gradients():
    net = mlp(3, 5, 2)
    for shape in ((3,), (7, 3), (4, 7, 3)):
        x = torch.randn(shape)
        with torch.no_grad():
            silent = net(x)
        torch.testing.assert_close(net(x), silent)
        assert net(x).requires_grad and not silent.requires_grad


LEARNERS = [
    dict(streams=streams, layers=layers, action_input=action_input, critic_heads=heads)
    for streams in (("task",), TWO, ("a", "b", "c"))
    for layers in (1, 2)
    for action_input in ("trunk", "head")
    for heads in ("shared", "per_stream")
]


@pytest.mark.parametrize("settings", LEARNERS, ids=lambda s: " ".join(str(v) for v in s.values()))
def test_critic_and_actor_have_autograds_losses_and_gradients(settings):
    torch.set_default_dtype(torch.float64)
    try:
        learner, batch = make_ddpg(**settings), make_batch(3)
        batch = batch._replace(**{name: value.double() for name, value in batch._asdict().items()})
        targets = {
            name: batch.reward + i * batch.obs[:, i : i + 1]
            for i, name in enumerate(learner.streams)
        }
        losses, grads = learner.critic_grads(batch, targets)
        expected = learner.critic_losses(batch, targets, {})
        compare(losses, grads, expected, list(learner.critic.parameters()))

        state = learner.learn_rng.get_state()
        losses, grads = learner.actor_grads(batch)
        learner.learn_rng.set_state(state)
        action = clipped_noise(learner.actor(learner._inputs(batch)), 0.2, 0.3, learner.learn_rng)
        q = torch.minimum(*learner.values(learner.critic, batch.obs, batch.skill, action))
        compare(
            losses, grads, learner.actor_losses(q, batch.skill), list(learner.actor.parameters())
        )
    finally:
        torch.set_default_dtype(torch.float32)


def compare(losses, grads, expected, parameters):
    assert losses.keys() == grads.keys() == expected.keys()
    for name, loss in expected.items():
        torch.testing.assert_close(losses[name], loss.detach())
        torch.testing.assert_close(grads[name], flat_grad(loss, parameters, retain_graph=True))
        assert grads[name].norm() > 1e-3


def test_heads_that_agree_share_the_actors_gradient():
    learner, batch = make_ddpg(), make_batch()
    learner.critic.q2.load_state_dict(learner.critic.q1.state_dict())
    state = learner.learn_rng.get_state()
    _, grads = learner.actor_grads(batch)
    learner.learn_rng.set_state(state)
    action = clipped_noise(learner.actor(learner._inputs(batch)), 0.2, 0.3, learner.learn_rng)
    q1, _ = learner.values(learner.critic, batch.obs, batch.skill, action)
    expected = flat_grad(-q1.mean(), list(learner.actor.parameters()), retain_graph=False)
    torch.testing.assert_close(grads["q"], expected, rtol=1e-4, atol=1e-6)


def test_by_hand_and_by_autograd_a_learner_learns_the_same():
    left, right = make_ddpg(streams=TWO), make_ddpg(streams=TWO)
    right.by_hand = False
    for step in range(3):
        a, b = (learner.learn(Tape(step), task_and_negative(), step) for learner in (left, right))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(left.parameters(), right.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


# ---- parameters as one vector


def test_parameters_are_parts_of_one_vector_and_stay_so_after_a_copy_of_weights():
    net = nn.Linear(3, 2)
    flat = FlatVector(net.parameters())
    net.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    assert flat.join().tolist() == [1.0] * 6 + [0.0] * 2
    net.weight.data = torch.full((2, 3), 5.0)  # what a move to another device does
    assert (
        flat.join().tolist() == [5.0] * 6 + [0.0] * 2
        and net.weight.data_ptr() == flat.vector.data_ptr()
    )
    vector, parts = flat.blank("a")
    parts[1].fill_(7.0)
    assert (
        vector[6:].tolist() == [7.0, 7.0]
        and flat.blank("a")[0] is vector
        and flat.blank("b")[0] is not vector
    )


def test_the_frozen_network_of_rnd_is_asked_once_for_a_batch():
    rnd, calls = RND(3, hidden_dim=8, out_dim=4), []
    rnd.target.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(6, 3)
    first = rnd(x)
    assert torch.equal(rnd(x), first) and len(calls) == 1
    assert not torch.equal(rnd(x + torch.rand(6, 3)), first) and len(calls) == 2
    x += torch.rand(6, 3)  # in place: another batch in the same tensor
    rnd(x)
    assert len(calls) == 3

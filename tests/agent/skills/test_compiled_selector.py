"""A selector's update as a function of tensors: the same numbers as the plain one, compiled or recorded."""

import copy
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from agent.learners.recorded import Rehearsed
from agent.skills.selector_networks import entropy
from tests.kit.learners import Traced
from tests.kit.learners import same_numbers as same
from tests.kit.small_selectors import batch, release, source

RULES = ("selector", "selector_release")


def tape():
    """A memory that hands out fixed batches in turn."""
    batches = iter([batch(seed) for seed in range(6)])
    return types.SimpleNamespace(sample=lambda size: next(batches))


def made(rule="selector"):
    torch.manual_seed(0)  # initialisation alone draws from torch's own stream
    return source(rule)


def pair(rule, capture):
    plain, captured = made(rule), made(rule)
    captured.capture = capture
    return (plain, tape()), (captured, tape())


@pytest.mark.parametrize("rule", RULES)
def test_a_recorded_update_of_a_selector_is_the_plain_one(rule, capsys):
    (plain, first), (recorded, second) = pair(rule, Rehearsed(required=True))
    for step in range(4):
        same(plain.improve(first, step), recorded.improve(second, step))
    same(plain.network.state_dict(), recorded.network.state_dict())
    same(plain.network.generator.get_state(), recorded.network.generator.get_state())
    assert recorded.capture.choice == "recorded" and not capsys.readouterr().err


@pytest.mark.parametrize("rule", RULES)
def test_an_update_of_a_selector_is_a_single_graph_for_the_compiler(rule):
    torch._dynamo.reset()
    (plain, first), (traced, second) = pair(rule, Traced())
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(5):
            expected, found = plain.improve(first, step), traced.improve(second, step)
            # Adam makes a step of the rounding of a gradient that is 0, so later updates differ more.
            same(expected, found, rtol=2e-3, atol=1e-4)
    assert traced.capture.choice == "compiled"


def test_a_compiled_selector_that_is_continued_equals_one_that_was_not():
    torch._dynamo.reset()
    whole, first, second = (made() for _ in range(3))
    for each in (whole, first, second):
        each.capture = Traced()
    one, two = tape(), tape()
    for step in range(4):
        whole.improve(one, step)
    for step in range(2):
        first.improve(two, step)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for step in (2, 3):
        second.improve(two, step)
    same(whole.network.state_dict(), second.network.state_dict())


def test_a_clipped_step_of_the_release_selector_is_torchs():
    """The public code clips the actor's gradients by their common norm."""
    ours, theirs = release(grad_clip=0.01), release(grad_clip=0.01)
    lr = ours.actor_opt.param_groups[0]["lr"]
    data, optimizer = batch(), torch.optim.Adam(theirs.actor.parameters(), lr=lr)
    for network in (ours, theirs):
        network.generator.generator.manual_seed(3)
    q = ours.q(ours.critics, data.obs).detach()
    ours.descend_actor(ours.actor_loss(ours.log_p(data.obs), q))
    log_p = F.log_softmax(theirs.actor(data.obs), 1)
    drawn = theirs.generator.category(log_p.detach()).unsqueeze(1)
    loss = -(log_p.gather(1, drawn) * q.gather(1, drawn)).mean()
    (loss - theirs.temperature * entropy(log_p).mean()).backward()
    assert nn.utils.clip_grad_norm_(theirs.actor.parameters(), 0.01) > 0.01
    optimizer.step()
    same(ours.actor.state_dict(), theirs.actor.state_dict(), rtol=1e-5, atol=1e-8)

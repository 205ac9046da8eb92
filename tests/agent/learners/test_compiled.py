"""An update as a function of tensors: the same numbers as the plain one, however it is run."""

import copy

import pytest
import torch

from agent.learners.compiled import Capture, Compiled
from agent.learners.recorded import Graphed
from benchmarks.cost import AGENTS, updater
from tests.kit.learners import Traced
from tests.kit.learners import same_numbers as same


class Direct(Capture):
    """The function as it is, not compiled and not recorded."""

    def make(self, job, batches):
        return self.as_function(job, len(batches))


def everything(update):
    """All that an update moves, and the states of the generators."""
    owners = update.learner, update.objective
    sources = (
        update.learner.learn_rng,
        update.learner.surgery.generator,
        update.objective.generator,
    )
    return copy.deepcopy([owner.state_dict() for owner in owners]), [
        source.get_state() for source in sources if source is not None
    ]


def pair(agent, capture, *overrides):
    plain, captured = (updater(agent, "preset=smoke", *overrides) for _ in range(2))
    plain.learner.capture, captured.learner.capture = None, capture
    return plain, captured


@pytest.mark.parametrize("agent", AGENTS)
def test_random_numbers_drawn_beforehand_are_those_an_update_draws_itself(agent):
    plain, captured = pair(agent, Direct())
    for _ in range(3):
        same(plain(), captured())
    same(everything(plain), everything(captured))


@pytest.mark.parametrize("agent", ["amped", "becl", "cesd", "ddpg", "metra_discrete"])
def test_updates_on_pixels_draw_their_shifts_beforehand_too(agent):
    plain, captured = pair(agent, Direct(), "obs_type=pixels")
    for _ in range(2):
        same(plain(), captured())
    same(everything(plain), everything(captured))


@pytest.mark.parametrize("agent", ["amped", "ddpg"])
def test_updates_on_pixels_are_one_graph(agent):
    plain, traced = pair(agent, Traced(), "obs_type=pixels")
    torch._dynamo.reset()
    for _ in range(2):
        same(plain(), traced(), rtol=1e-4, atol=1e-5)


def test_dads_draws_its_indices_beforehand_too():
    plain, captured = pair("dads", Direct(), "agent.skill_space=one_hot")
    same(plain(), captured())
    kinds = [[draw.kind for draw in noted] for _, noted in captured.learner.capture.wanted]
    assert kinds == [["normal", "normal"], [], ["integers"]]


def test_looking_at_an_update_leaves_no_trace():
    update = updater("amped", "preset=smoke")
    batch = [update.memory.sample(update.learner.batch_size)]
    before = everything(update)
    wanted = Capture.note(update.learner.job(update.objective), batch)
    for state in before[0]:  # a count of steps and zero moments where there was nothing yet
        for name in [key for key in state if key.endswith("_extra_state")]:
            del state[name]
    after = everything(update)
    for state in after[0]:
        for name in [key for key in state if key.endswith("_extra_state")]:
            assert all(
                float(entry["step"]) == 0
                and not entry["exp_avg"].any()
                and not entry["exp_avg_sq"].any()
                for optimizer in state.pop(name).values()
                for entry in optimizer["state"].values()
            )
    same(before, after)
    # AMPED: noise of the target's and of the actor's actions; the coin; a partner in each contrast
    kinds = [[draw.kind for draw in noted] for _, noted in wanted]
    assert kinds == [["normal", "normal"], ["uniform"], ["uniform", "uniform"]]


@pytest.mark.parametrize(
    "agent", ["amped", "becl", "cesd", "aps"]
)  # surgery; three batches; autograd, with hints
def test_an_update_is_a_single_graph_for_the_compiler(agent):
    torch._dynamo.reset()
    plain, traced = pair(agent, Traced())
    # Metrics, not weights: where a gradient is 0, Adam makes a step of its rounding.
    for _ in range(4):
        same(plain(), traced(), rtol=2e-3, atol=1e-5)


def test_two_compiled_learners_do_not_take_each_others_code():
    torch._dynamo.reset()
    pairs = [pair("diayn", Traced(), f"skill_dim={n}", f"learner.batch_size={n}") for n in (4, 5)]
    for _ in range(3):  # by turns
        for plain, traced in pairs:
            same(plain(), traced(), rtol=1e-4, atol=1e-5)


class Checked(Traced):
    """With torch's checks before each call."""

    unchecked = {}


OFTEN = ("amped", "cesd", "metra_discrete")  # the others take a minute together: pytest -m slow


@pytest.mark.parametrize(
    "agent", [a if a in OFTEN else pytest.param(a, marks=pytest.mark.slow) for a in AGENTS]
)
def test_the_checks_that_a_compiled_update_leaves_out_would_never_fail(agent):
    torch._dynamo.reset()
    update = updater(agent, "preset=smoke")
    update.learner.capture = Checked()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(5):
            update()
    assert update.learner.capture.choice == "compiled"


def test_a_compiled_update_gives_the_same_numbers_within_rounding():
    torch._dynamo.reset()
    plain, compiled = pair("ddpg", Compiled())
    for _ in range(5):
        same(plain(), compiled(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # some 20 s each; make gpu-check compiles all agents
@pytest.mark.parametrize("agent", ["cesd", "proto"])
def test_the_compiler_takes_the_steps_of_prototypes(agent):
    torch._dynamo.reset()
    plain, compiled = pair(agent, Compiled())
    for _ in range(2):
        same(plain(), compiled(), rtol=2e-3, atol=1e-5)


def test_a_compiled_run_that_is_continued_equals_one_that_was_not():
    torch._dynamo.reset()
    whole, first, second = (updater("diayn", "preset=smoke") for _ in range(3))
    for update in (whole, first, second):
        update.learner.capture = Traced()
    for _ in range(4):
        whole()
    for _ in range(2):
        first()
    for name in ("learner", "objective", "memory"):
        getattr(second, name).load_state_dict(copy.deepcopy(getattr(first, name).state_dict()))
    second.memory.rng.bit_generator.state = first.memory.rng.bit_generator.state
    second.learner.learn_rng.set_state(first.learner.learn_rng.get_state())
    for _ in range(2):
        second()
    same(everything(whole), everything(second))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("agent", AGENTS)
def test_a_cuda_graph_gives_the_numbers_of_the_plain_update(agent):
    plain, graphed = pair(agent, Graphed(required=True))
    for _ in range(3):
        same(plain(), graphed(), rtol=1e-5, atol=1e-6)
    same(everything(plain), everything(graphed), rtol=1e-5, atol=1e-6)

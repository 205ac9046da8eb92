"""A recording of an update is believed only after it did what the plain update does."""

import copy
import itertools

import numpy as np
import pytest
import torch
import yaml

from agent.learners.recorded import Recorded, Rehearsed
from benchmarks.cost import AGENTS, updater
from replay_buffer import DeviceReplayBuffer, ReplayBuffer
from run import build, memory
from tests.kit.learners import same_numbers as same
from utils import UserError, read_json


class Wrong(Rehearsed):
    """A recorder with one fault."""

    def __init__(self, fault, *, required=False):
        super().__init__(required=required)
        self.fault = fault

    def make(self, job, batches):
        self.owners = tuple(job.owners.values())
        return super().make(job, batches)

    def record(self, update, inputs):
        replay, first = super().record(update, inputs), copy.deepcopy(inputs)
        count = itertools.count()

        def faulty(tensors):
            return self.fault(self, replay, tensors, first, next(count))

        return faulty

    def optimizer(self):
        return next(iter(self.owners[0].optimizers.values()))


def one_weight(wrong, replay, tensors, first, number):
    metrics = replay(tensors)
    with torch.no_grad():
        wrong.optimizer().parameters[0].view(-1)[3] += 1e-3
    return metrics


def one_moment(kind):
    def fault(wrong, replay, tensors, first, number):
        metrics = replay(tensors)
        optimizer = wrong.optimizer()
        optimizer.state[optimizer.parameters[0]][kind].view(-1)[0] += 1e-3
        return metrics

    return fault


def one_statistic(wrong, replay, tensors, first, number):
    metrics = replay(tensors)
    buffer = next(b for b in wrong.owners[1].buffers() if b.is_floating_point() and b.numel())
    buffer.view(-1)[0] += 0.01
    return metrics


def step_count(wrong, replay, tensors, first, number):
    metrics = replay(tensors)
    optimizer = wrong.optimizer()
    optimizer.state[optimizer.parameters[0]]["step"] += 1
    return metrics


def one_metric(wrong, replay, tensors, first, number):
    metrics = replay(tensors)
    return metrics | {"actor/loss": metrics["actor/loss"] * 1.01}


def no_metric(wrong, replay, tensors, first, number):
    return dict(list(replay(tensors).items())[1:])


def nan_metric(wrong, replay, tensors, first, number):
    return replay(tensors) | {"actor/loss": torch.tensor(float("nan"))}


FAULTS = {
    "one weight": one_weight,
    "a first moment": one_moment("exp_avg"),
    "a second moment": one_moment("exp_avg_sq"),
    "a count of steps": step_count,
    "a statistic": one_statistic,
    "stale inputs": lambda wrong, replay, tensors, first, number: replay(first),
    "stale inputs from the second on": lambda wrong, replay, tensors, first, number: replay(
        tensors if number == 0 else first
    ),
    "one stale input": lambda wrong, replay, tensors, first, number: replay(
        [first[0], *tensors[1:]]
    ),
    "stale random numbers": lambda wrong, replay, tensors, first, number: replay(
        [*tensors[:-1], first[-1]]
    ),
    "nothing is done": lambda wrong, replay, tensors, first, number: (
        replay(tensors) if number == 99 else {}
    ),
    "done twice": lambda wrong, replay, tensors, first, number: (replay(tensors), replay(tensors))[
        1
    ],
    "one metric": one_metric,
    "a metric is missing": no_metric,
    "a metric is NaN": nan_metric,
}


SEEING = [(agent, "obs_type=pixels") for agent in ("amped", "becl", "ddpg")]


@pytest.mark.parametrize(
    ("agent", "words"), [*((agent, "preset=smoke") for agent in AGENTS), *SEEING]
)
def test_a_right_recording_is_taken_and_gives_the_plain_numbers(agent, words, capsys):
    plain, recorded = (updater(agent, *{"preset=smoke": 0, words: 0}) for _ in range(2))
    plain.learner.capture, recorded.learner.capture = None, Rehearsed(required=True)
    for _ in range(2):
        same(plain(), recorded())
    same(plain.learner.state_dict(), recorded.learner.state_dict())
    same(plain.objective.state_dict(), recorded.objective.state_dict())
    assert recorded.learner.capture.choice == "recorded" and not capsys.readouterr().err


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_recording_is_named_and_the_run_goes_on_plainly(fault, capsys):
    plain, recorded = updater("amped", "preset=smoke"), updater("amped", "preset=smoke")
    plain.learner.capture, recorded.learner.capture = None, Wrong(FAULTS[fault])
    for _ in range(3):
        same(plain(), recorded())
    same(plain.learner.state_dict(), recorded.learner.state_dict())
    said = capsys.readouterr().err
    assert said.startswith("warning: no CUDA graph (it is not the plain update: ")
    assert said.count("\n") == 1 and recorded.learner.capture.choice.startswith("plain (")


def test_a_recording_that_was_asked_for_and_is_wrong_is_an_error():
    recorded = updater("amped", "preset=smoke")
    recorded.learner.capture = Wrong(one_weight, required=True)
    with pytest.raises(UserError, match=r"cuda_graph=true does not work here .*differs in \d+ of"):
        recorded()


def test_what_cannot_be_recorded_runs_as_it_stands(capsys):
    class Failing(Recorded):
        def record(self, update, inputs):
            update(inputs)
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    plain, recorded = updater("diayn", "preset=smoke"), updater("diayn", "preset=smoke")
    plain.learner.capture, recorded.learner.capture = None, Failing(required=False)
    same(plain(), recorded())
    assert "no CUDA graph (operation not permitted" in capsys.readouterr().err


# ---------------------------------------------------------------------------------------- the replay


class Bad(DeviceReplayBuffer):
    """A copy on the device that goes wrong in one place after some batches."""

    spoil = 0

    def _send(self):
        super()._send()
        if self.gathered >= self.spoil:
            self.table[:, 0] += 1e-3


def filled(kind, rows=70, **more):
    memory = kind(
        obs_dim=3, action_dim=2, skill_dim=2, capacity=50, nstep=3, gamma=0.9,
        skill_index="acting", one_hot=True, rng=np.random.default_rng(0), device="cpu", **more,
    )  # fmt: skip
    draw = np.random.default_rng(1)
    memory.begin(draw.normal(size=3))
    for _ in range(rows):
        memory.add(draw.normal(size=2), np.eye(2)[0], draw.normal(), 1.0, draw.normal(size=3))
    return memory


def test_batches_of_the_device_are_compared_with_the_hosts(capsys):
    here, there = filled(ReplayBuffer), filled(DeviceReplayBuffer)
    for _ in range(20):
        same(here.sample(8)._asdict(), there.sample(8)._asdict(), rtol=1e-5, atol=1e-6)
    assert there.choice == "on the device" and not capsys.readouterr().err


@pytest.mark.parametrize("spoil", [0, 1, 3, 7])
def test_a_copy_that_goes_wrong_is_named_and_the_host_takes_over(spoil, capsys):
    here, there = filled(ReplayBuffer), filled(Bad)
    there.spoil = spoil
    found = [(here.sample(8), there.sample(8)) for _ in range(20)]
    for ours, theirs in found[8:]:
        same(ours._asdict(), theirs._asdict())
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("warning: replay.on_device: on the host (obs")


# ------------------------------------------------------------------------------------ what is written


@pytest.mark.parametrize("fault", [None, one_weight])
def test_the_choice_is_in_config_yaml_and_result_json_and_a_resume_takes_the_run(
    fault, cli, monkeypatch
):
    def recorder(config, device):
        return Rehearsed(required=False) if fault is None else Wrong(fault)

    monkeypatch.setattr(build, "make_capture", recorder)
    monkeypatch.setattr(memory, "ReplayBuffer", DeviceReplayBuffer)
    words = ("pretrain", "num_train_frames=40", "snapshots=[]", "variant=v")
    assert cli(*words).code == 0
    run = cli.root / "pretrain/walker/amped/v/seed_1"
    config = yaml.safe_load((run / "config.yaml").read_text())
    choices = read_json(run / "result.json")["choices"]
    assert config["cuda_graph"] is (fault is None) and config["replay"]["on_device"] is True
    assert choices["replay.on_device"] == "on the device"
    assert choices["cuda_graph"].startswith("recorded" if fault is None else "plain (it is not")
    assert "nothing to do" in cli(*words).out

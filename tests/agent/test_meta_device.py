"""`learn` never leaves its device: it runs on `meta`, where `.item()`, a branch on a value or a
host tensor cannot.

What passes here waits for no device inside an update, and would run on a GPU.
"""

import pytest
import torch

from agent.base import Objective, TaskReward
from tests.kit.configs import composed
from tests.kit.meta import HostTensor, build, learn, learn_twice

PARTS = "agent.objective."
DDPG = ("preset=smoke", "agent=ddpg", "task=walker_run")


@pytest.mark.parametrize(
    "overrides",
    [
        ("agent=amped",),
        ("agent=amped", "surgery=sum"),
        ("agent=amped", "surgery=pcgrad_symmetric"),
        ("agent=amped", PARTS + "metric=none"),
        ("agent=amped", PARTS + "metric=cosine"),
        ("agent=amped", PARTS + "diversity=false"),
        ("agent=amped", "alpha=0", "beta=0"),
        ("agent=amped", PARTS + "pool=recent", PARTS + "knn_scale=std"),
        ("agent=amped", "learner.critic_heads=per_stream", "learner.surgery_scope=all"),
        (
            "agent=amped",
            "learner.critic_heads=per_stream",
            "learner.surgery_scope=actor",
            "surgery=pcgrad_symmetric",
        ),
        ("agent=ddpg", "task=walker_run"),
        ("agent=amped", "task=walker_run"),
        ("agent=amped", "obs_type=pixels"),
        ("agent=amped", "obs_type=pixels", "learner.critic_heads=per_stream"),
        ("agent=ddpg", "task=walker_run", "obs_type=pixels"),
    ],
    ids=" ".join,
)
def test_learning_stays_on_its_device(overrides):
    phase = "finetune" if "task=walker_run" in overrides else "pretrain"
    objective, learner, memory = build(composed(phase, "preset=smoke", *overrides))
    first, second = learn_twice(objective, learner, memory)
    assert ("surgery/sample_conflict" in first) == (len(objective.streams) == 2)
    assert "surgery/sample_conflict" not in second


# ---- the guard itself


class Faulty(Objective):
    """The task's reward, got in a way that needs the host."""

    streams = ("task",)

    def __init__(self, fault):
        super().__init__()
        self.fault = fault

    def rewards(self, batch):
        return {"task": self.fault(batch.reward)}, {}


def branch(reward):
    return reward if reward.mean() > 0 else -reward


FAULTS = {
    "item": lambda reward: reward * reward.mean().item(),
    "float": lambda reward: reward / float(reward.std()),
    "branch": branch,
    "mask": lambda reward: reward - reward[reward > 0].mean(),
    "to_host": lambda reward: reward.cpu().to("meta"),
    "host_tensor": lambda reward: reward + torch.zeros(len(reward), 1).to("meta"),
    "host_scalar": lambda reward: reward * torch.tensor(0.5),
    "host_coin": lambda reward: reward.where(torch.rand(()) < 0.5, -reward),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_guard_refuses_an_objective_that_needs_the_host(fault):
    _, learner, memory = build(composed("finetune", *DDPG))
    learn(TaskReward(), learner, memory)
    learn(Faulty(lambda reward: 2 * reward), learner, memory)
    with pytest.raises((HostTensor, RuntimeError, NotImplementedError)) as error:
        learn(Faulty(FAULTS[fault]), learner, memory)
    # Torch alone lets these pass.
    assert "host" not in fault or fault == "to_host" or error.type is HostTensor


def test_host_scalars_pass_without_the_guard():
    _, learner, memory = build(composed("finetune", *DDPG))
    learner.learn(memory, Faulty(FAULTS["host_scalar"]), 0)

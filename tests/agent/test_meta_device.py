"""`learn` never leaves its device: it runs on `meta`, where `.item()`, a branch on a value or a
host tensor cannot.

What passes here waits for no device inside an update, and would run on a GPU.
"""

from types import SimpleNamespace

import hydra
import pytest
import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from agent.base import Objective, TaskReward
from agent.skills.sources import SkillSpace
from replay_buffer import Batch
from run.build import make_learner, make_objective
from run.cli.schema import resolve
from utils import CONFIGS, Streams

WALKER = SimpleNamespace(obs_dim=24, action_dim=6)


class HostTensor(AssertionError):
    pass


class OnlyMeta(TorchDispatchMode):
    """Refuses every operation that takes or gives a tensor outside `meta`.

    0-d tensors inside an optimiser's step are exempt: Adam keeps its own count of steps on the
    host.
    """

    def __init__(self):
        super().__init__()
        self.in_step, self.operations = False, 0

    def __enter__(self):
        def mark(inside):
            def hook(*_):
                self.in_step = inside

            return hook

        self.hooks = [
            register_optimizer_step_pre_hook(mark(True)),
            register_optimizer_step_post_hook(mark(False)),
        ]
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        for leaf in tree_leaves((args, kwargs, result)):
            if (
                isinstance(leaf, torch.Tensor)
                and leaf.device.type != "meta"
                and not self.exempt(leaf)
            ):
                raise HostTensor(
                    f"{function}: a tensor of shape {tuple(leaf.shape)} on {leaf.device}"
                )
        return result

    def exempt(self, tensor):
        return tensor.ndim == 0 and self.in_step


class MetaMemory:
    """A memory whose batches have shapes and no values."""

    def __init__(self, skill_dim):
        self.skill_dim = skill_dim

    def __len__(self):
        return 1

    def sample(self, batch_size):
        dims = {
            "obs": WALKER.obs_dim,
            "action": WALKER.action_dim,
            "reward": 1,
            "discount": 1,
            "next_obs": WALKER.obs_dim,
            "skill": self.skill_dim,
            "next_obs_1": WALKER.obs_dim,
        }
        return Batch(
            **{name: torch.empty(batch_size, dim, device="meta") for name, dim in dims.items()}
        )


def composed(*overrides):
    name = "finetune" if any(o.startswith("task=") for o in overrides) else "pretrain"
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return resolve(hydra.compose(name, ["preset=smoke", *overrides]))


def build(config):
    rng = Streams(config["seed"], "meta")
    space = SkillSpace(config["agent"]["skill_space"], config["skill_dim"])
    with torch.device("meta"):
        objective = make_objective(config, WALKER, space.dim, rng)
        learner = make_learner(config, WALKER, space.dim, objective.streams, rng)
    return objective, learner, MetaMemory(space.dim)


def learn(objective, learner, memory, step=0):
    """Outside of any `torch.device`: what `learn` makes, it must put on the device itself."""
    with OnlyMeta() as guard:
        metrics = learner.learn(memory, objective, step)
    assert guard.operations > 100
    return metrics


PARTS = "agent.objective."


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
    ],
    ids=" ".join,
)
def test_learning_stays_on_its_device(overrides):
    config = composed(*overrides)
    objective, learner, memory = build(config)
    for step in (0, 2):  # the second finds optimisers that have a state
        metrics = learn(objective, learner, memory, step)
        assert all(
            m.device.type == "meta" and m.ndim == 0 and not m.requires_grad
            for m in metrics.values()
        )
        measured = "surgery/sample_conflict" in metrics
        assert measured == (step == 0 and len(objective.streams) == 2)
    assert {
        t.device.type for m in (objective, learner) for t in (*m.parameters(), *m.buffers())
    } == {"meta"}


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
    _, learner, memory = build(composed("agent=ddpg", "task=walker_run"))
    learn(TaskReward(), learner, memory)
    learn(Faulty(lambda reward: 2 * reward), learner, memory)
    with pytest.raises((HostTensor, RuntimeError, NotImplementedError)) as error:
        learn(Faulty(FAULTS[fault]), learner, memory)
    assert (
        "host" not in fault or fault == "to_host" or error.type is HostTensor
    )  # torch alone lets these pass


def test_host_scalars_pass_without_the_guard():
    _, learner, memory = build(composed("agent=ddpg", "task=walker_run"))
    learner.learn(memory, Faulty(FAULTS["host_scalar"]), 0)

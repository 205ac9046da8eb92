"""Agents pickled whole under the class and attribute names of URLB-family code: python
tests/kit/release_zoo.py OUT

A process of its own, so that none of these classes exists where the files are read. Beside each
NAME.pt lies NAME_said.pt with inputs and what the original networks answer.
"""

import copy
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from omegaconf import OmegaConf
from torch import nn

HIDDEN, OBS, ACTIONS = 16, 24, 6  # walker


def placed(module: str):
    """Put a class where pickle will look for it."""

    def place(cls):
        for depth in range(1, module.count(".") + 2):
            name = ".".join(module.split(".")[:depth])
            sys.modules.setdefault(name, ModuleType(name))
        cls.__module__ = module
        setattr(sys.modules[module], cls.__name__, cls)
        return cls

    return place


def trunk(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.Tanh())


def head(inputs, outputs, linear=nn.Linear):
    return nn.Sequential(linear(inputs, HIDDEN), nn.ReLU(inplace=True), linear(HIDDEN, outputs))


@placed("agent.ddpg")
class Actor(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.trunk, self.policy = trunk(inputs, HIDDEN), head(HIDDEN, ACTIONS)

    def forward(self, x):
        return torch.tanh(self.policy(self.trunk(x)))


@placed("agent.ddpg")
class Critic(nn.Module):
    def __init__(self, inputs, values=1):
        super().__init__()
        self.trunk = trunk(inputs + ACTIONS, HIDDEN)
        self.Q1, self.Q2 = head(HIDDEN, values), head(HIDDEN, values)

    def forward(self, x, action):
        h = self.trunk(torch.cat([x, action], 1))
        return self.Q1(h), self.Q2(h)


def deep(inputs, outputs):
    return nn.Sequential(
        *(nn.Linear(inputs, HIDDEN), nn.ReLU()),
        *(nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
        nn.Linear(HIDDEN, outputs),
    )


@placed("agent.ensemble_ddpg")
class VectorizedLinear(nn.Module):
    def __init__(self, inputs, outputs, count=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(count, inputs, outputs))
        self.bias = nn.Parameter(torch.randn(count, 1, outputs))


@placed("agent.ensemble_ddpg")
class EnsembleCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = trunk(OBS + ACTIONS, HIDDEN // 2)
        self.Q1, self.Q2 = (head(HIDDEN // 2, 1, VectorizedLinear) for _ in range(2))


@placed("utils")
class RMS:
    def __init__(self):
        self.M, self.n = torch.zeros(1), 1e-4


@placed("agent.ddpg")
class DDPGAgent:
    def __init__(self, skills=0, obs_type="states"):
        self.obs_type, self.device, self.lr, self.solved_meta = (
            obs_type,
            torch.device("cpu"),
            1e-4,
            None,
        )
        self.encoder, self.aug = nn.Identity(), nn.Identity()
        self.actor, self.critic = Actor(OBS + skills), Critic(OBS + skills)
        self.finish()

    def finish(self):
        """The target, and optimisers that have made a step: their state is keyed by parameters."""
        self.critic_target = copy.deepcopy(self.critic)
        self.encoder_opt = None
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=0.01)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=0.01)
        for net, optimizer in ((self.actor, self.actor_opt), (self.critic, self.critic_opt)):
            sum(p.square().sum() for p in net.parameters()).backward()
            optimizer.step()


@placed("agent.cic")
class CICAgent(DDPGAgent):
    def __init__(self, skills=8):
        super().__init__(skills)
        self.skill_dim, self.cic = skills, nn.Sequential(nn.Linear(OBS, HIDDEN), nn.ReLU())
        self.cic_optimizer = torch.optim.Adam(self.cic.parameters())


@placed("agent.amped")
class AmpedAgent(DDPGAgent):
    """Holds a numpy scalar and array, a piece of a config (with the whole config behind it), and a
    running mean."""

    def __init__(self, skills=4):
        super().__init__(skills)
        config = OmegaConf.create(
            {"agent": {"obs_shape": [OBS], "name": "amped"}, "wandb_key": "canary-in-the-file"}
        )
        self.skill, self.ft_returns, self.obs_shape = (
            np.random.choice(skills),
            np.zeros(3),
            config.agent.obs_shape,
        )
        self.Lambda, self.intrinsic_reward_rms = nn.Parameter(torch.eye(skills)), RMS()


@placed("agent.rnd")
class RNDAgent(DDPGAgent):
    pass


@placed("agent.cesd")
class CeSDAgent(DDPGAgent):
    def __init__(self):
        super().__init__(4)
        self.critic = EnsembleCritic()
        self.finish()


@placed("agent.aps")
class APSAgent(DDPGAgent):
    def __init__(self):
        super().__init__(5)
        self.critic = Critic(OBS + 5, 5)
        self.finish()


@placed("agent.mine")
class MyAgent(DDPGAgent):
    pass


@placed("agent.cic")
class LeakyAgent(CICAgent):
    def __init__(self):
        super().__init__()
        self.actor.policy[1] = nn.LeakyReLU()


@placed("agent.ddpg")
class Encoder(nn.Module):
    def __init__(self, strides=(2, 1, 1, 1)):
        super().__init__()
        widths, layers = (9, 4, 4, 4, 4), []
        for i, stride in enumerate(strides):
            layers += [nn.Conv2d(widths[i], widths[i + 1], 3, stride=stride), nn.ReLU()]
        self.convnet = nn.Sequential(*layers)

    def forward(self, x):
        return self.convnet(x / 255.0 - 0.5).flatten(1)


@placed("agent.diayn")
class PixelAgent(DDPGAgent):
    """Trunks of 5 features, the action behind the critic's, two hidden layers."""

    def __init__(self, skills=8):
        super().__init__(skills)
        seen = 4 * 35 * 35 + skills
        self.obs_type, self.encoder = "pixels", Encoder()
        self.actor.trunk = trunk(seen, 5)
        self.actor.policy = deep(5, ACTIONS)
        self.critic.trunk = trunk(seen, 5)
        self.critic.Q1, self.critic.Q2 = deep(5 + ACTIONS, 1), deep(5 + ACTIONS, 1)
        self.finish()


@placed("agent.diayn")
class SlowAgent(PixelAgent):
    """An encoder of another shape."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder((1, 2, 1, 1))


def meta(agent, payload):
    agent.actor.trunk[0].weight = nn.Parameter(torch.empty(HIDDEN, OBS + 8, device="meta"))


def sparse(agent, payload):
    agent.actor.trunk[0]._parameters["weight"] = torch.eye(HIDDEN).to_sparse()


def tensor_as_eps(agent, payload):
    agent.actor.trunk[1].eps = torch.full((3,), 1e-5)


def numbers_as_keys(agent, payload):
    agent.actor.trunk[0]._parameters = {0: torch.zeros(HIDDEN, OBS + 8)}


def numbers_as_layers(agent, payload):
    agent.actor.policy._modules = dict(enumerate(agent.actor.policy))


def thousands_of_digits(agent, payload):
    payload["_global_step"] = 10**5000


def truth_as_step(agent, payload):
    payload["_global_step"] = True


def escapes(agent, payload):
    agent.__dict__["\x1b[31m\nerror: fake"] = torch.zeros(1)
    agent.__dict__[7] = torch.zeros(1)


ATTACKS = (
    *(meta, sparse, tensor_as_eps, numbers_as_keys, numbers_as_layers, thousands_of_digits),
    *(truth_as_step, escapes),
)


def main(out: Path) -> None:
    torch.manual_seed(0)
    for kind in (
        CICAgent,
        AmpedAgent,
        RNDAgent,
        CeSDAgent,
        APSAgent,
        MyAgent,
        LeakyAgent,
        PixelAgent,
        SlowAgent,
        DDPGAgent,
    ):
        agent, name = kind(), kind.__name__.removesuffix("Agent").lower()
        payload = {"agent": agent, "_global_step": 2_000_010, "_global_episode": 2000}
        torch.save(payload, out / f"{name}.pt")
        x, action = torch.randn(7, agent.actor.trunk[0].in_features), torch.rand(7, ACTIONS)
        said = {"x": x, "mean": agent.actor(x).detach(), "action": action}
        if agent.obs_type == "pixels":
            said["pictures"] = torch.randint(256, (7, 9, 84, 84), dtype=torch.uint8)
            if name == "pixel":
                x = torch.cat([agent.encoder(said["pictures"]), x[:, -8:]], 1).detach()
                said |= {"x": x, "mean": agent.actor(x).detach()}
        elif isinstance(agent.critic, Critic):
            for network in ("critic", "critic_target"):
                said[network] = torch.cat(getattr(agent, network)(x, action), 1).detach()
        torch.save(said, out / f"{name}_said.pt")
    for attack in ATTACKS:
        payload = {"agent": CICAgent(), "_global_step": 1}
        attack(payload["agent"], payload)
        torch.save(payload, out / f"{attack.__name__}.pt")
    torch.save(
        {"agent": CICAgent(), "_global_step": 1},
        out / "legacy.pt",
        _use_new_zipfile_serialization=False,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

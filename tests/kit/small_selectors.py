"""Small selectors and batches for them."""

from __future__ import annotations

import numpy as np
import torch

from agent.parts.draws import Draws
from agent.skills.selector import Selector, make_selector
from agent.skills.selector_networks import ReleaseSelector
from agent.skills.sources import SkillSpace
from replay_buffer import Batch
from tests.kit.configs import composed
from utils import Streams

OBS, N, B = 3, 4, 16
NETWORK = {
    "obs_dim": OBS,
    "skill_dim": N,
    "hidden_dim": 8,
    "layers": 2,
    "lr": 1e-3,
    "target_tau": 0.1,
    "temperature": 0.3,
    "extra_discount": 1.0,
}


def release(**settings) -> ReleaseSelector:
    torch.manual_seed(0)
    generator = Draws(torch.Generator().manual_seed(7))
    return ReleaseSelector(**{**NETWORK, "grad_clip": 10.0, "generator": generator, **settings})


def batch(seed: int = 1) -> Batch:
    rng = np.random.default_rng(seed)
    normal = (torch.from_numpy(rng.normal(size=(B, n))).float() for n in (OBS, 2, 1, OBS, OBS))
    obs, action, reward, next_obs, one = normal
    skill = torch.eye(N)[torch.from_numpy(rng.integers(N, size=B))]
    discount = torch.full((B, 1), 0.99**3)
    discount[0] = 0.0  # a terminal
    return Batch(obs, action, reward, discount, next_obs, skill, one)


def source(regime: str = "selector", *overrides: str, skills: int = N, seed: int = 1) -> Selector:
    config = composed("finetune", "preset=smoke", "task=walker_run", f"skills={regime}", *overrides)
    return make_selector(config, SkillSpace("one_hot", skills), OBS, Streams(seed))

"""Awkward environments for tests, named on the command line as `tests.kit.env_zoo:<function>`."""

import dm_env
import numpy as np
from dm_env import specs


class Forgetful(dm_env.Environment):
    """Hides its random source; with `poison`, observations turn NaN after that many steps, with
    `bribe` rewards do."""

    def __init__(self, seed: int, poison: int | None = None, bribe: int | None = None):
        self._hidden, self._poison, self._bribe, self._count = (
            np.random.default_rng(seed),
            poison,
            bribe,
            0,
        )

    def observation_spec(self):
        return specs.Array((4,), np.float64, "observation")

    def action_spec(self):
        return specs.BoundedArray((2,), np.float64, -1.0, 1.0, "action")

    def _observation(self):
        observation = self._hidden.normal(size=4)
        return (
            observation * np.nan
            if self._poison is not None and self._count > self._poison
            else observation
        )

    def reset(self):
        return dm_env.restart(self._observation())

    def step(self, action):
        self._count += 1
        reward = (
            np.nan if self._bribe is not None and self._count > self._bribe else float(action[0])
        )
        return dm_env.transition(reward, self._observation())


def forgetful(seed: int) -> dm_env.Environment:
    return Forgetful(seed)


def poisonous(seed: int) -> dm_env.Environment:
    return Forgetful(seed, poison=70)


def bribed(seed: int) -> dm_env.Environment:
    return Forgetful(seed, bribe=70)

"""A tiny environment for tests, which counts its steps and asserts that it is driven in order."""

import numpy as np

from envs.base import Env, Outcome, pack_random, unpack_random


class Dummy(Env):
    """obs = [step in the episode, episode (from 0), random number in [0, 1), last action...];
    reward = step.

    After `length` steps an episode ends by a time limit, or in a true terminal if `terminal`. Its
    picture has the step in its first colour, the episode in the second and half of its rows bright
    in the third, so that a frame tells where it is from.
    """

    render_mode = "rgb_array"
    SIDE = 24  # of the picture

    def __init__(
        self,
        *,
        seed: int = 0,
        length: int = 5,
        terminal: bool = False,
        action_dim: int = 2,
        action_repeat: int = 1,
    ):
        self._length, self._terminal = length, terminal
        self._random = np.random.RandomState()
        one = np.ones(action_dim)
        super().__init__(
            seed=seed, obs_dim=3 + action_dim, low=-one, high=one, action_repeat=action_repeat
        )

    def _seed(self, seed: int) -> None:
        self._random.seed(seed)
        self._episode, self._count, self._over = -1, 0, True

    def _observe(self, action) -> np.ndarray:
        return np.array([self._count, self._episode, self._random.random_sample(), *action])

    def _reset(self) -> np.ndarray:
        self._episode, self._count, self._over = self._episode + 1, 0, False
        return self._observe(np.zeros(self.action_dim))

    def _step(self, action: np.ndarray) -> Outcome:
        assert not self._over, f"step() while no episode runs (the last one was {self._episode})"
        self._count += 1
        self._over = self._count == self._length
        discount = 0.0 if self._over and self._terminal else 1.0
        return Outcome(self._observe(action), float(self._count), discount, self._over)

    def render(self) -> np.ndarray:
        picture = np.zeros((self.SIDE, self.SIDE, 3), np.uint8)
        picture[..., 0], picture[..., 1] = self._count % 256, self._episode % 256
        picture[: self.SIDE // 2, :, 2] = 255
        return picture

    def _get_source(self) -> dict:
        return {"episode": self._episode, "random": pack_random(self._random)}

    def _set_source(self, source: dict) -> None:
        self._episode = source["episode"]
        unpack_random(self._random, source["random"])

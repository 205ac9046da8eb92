"""gymnasium environments as `Env`."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from envs.base import Adapter, Outcome


def load(env_id: str) -> gymnasium.Env:
    try:
        env = gymnasium.make(env_id)
        modes = (env.metadata or {}).get("render_modes", ())
        if "rgb_array" in modes:  # it can be filmed, and draws only when asked
            env.close()
            env = gymnasium.make(env_id, render_mode="rgb_array")
        return env
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        first_line = str(error).strip().split("\n")[0]
        raise ValueError(f"gymnasium cannot make {env_id!r}: {first_line}") from error


class GymEnv(Adapter):
    """Any gymnasium environment with a box of observations and a bounded box of actions.

    It shows no random state, so each reset seeds it from the seed and the number of the episode:
    these two are all that a checkpoint needs.
    """

    def _describe(self) -> dict:
        obs, action = self._native.observation_space, self._native.action_space
        if not (isinstance(obs, Box) and isinstance(action, Box) and action.is_bounded("both")):
            raise ValueError(
                "a gymnasium environment needs a Box observation and a bounded Box action, as "
                f"Pendulum-v1 has; this one has observation {obs} and action {action}"
            )
        low, high = action.low.ravel(), action.high.ravel()
        return {"obs_dim": int(np.prod(obs.shape)), "low": low, "high": high}

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._episode = 0

    def _reset(self):
        (word,) = np.random.SeedSequence((self._seed_value, self._episode)).generate_state(1)
        self._episode += 1
        observation, _ = self._native.reset(seed=int(word))
        return observation

    def _step(self, action: np.ndarray) -> Outcome:
        space = self._native.action_space
        action = action.reshape(space.shape).astype(space.dtype)
        observation, reward, terminated, truncated, _ = self._native.step(action)
        return Outcome(
            observation, reward, 0.0 if terminated else 1.0, bool(terminated or truncated)
        )

    def _get_source(self) -> dict:
        return {"episode": self._episode}

    def _set_source(self, source: dict) -> None:
        self._episode = source["episode"]

"""What a camera sees as the observation: the newest frames of an environment, one above the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import dm_env
import numpy as np
from annotated_types import Interval
from dm_env import specs

from envs.base import Env, Outcome
from envs.render import Renderer

COLOURS = 3  # channels of one frame


@dataclass(frozen=True, kw_only=True)
class RenderSettings:
    """size: pixels of a frame's side. stack: frames in an observation, the newest last. shadows: and
    reflections, as in URLB; without them drawing takes a fraction of the time, and the pictures
    differ."""

    size: Annotated[int, Interval(ge=17, le=1024)]  # 17: below, nothing is left behind the encoder
    stack: Annotated[int, Interval(ge=1, le=100)]
    shadows: bool

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an observation: channels, rows, columns."""
        return COLOURS * self.stack, self.size, self.size


class PixelEnv(Env):
    """An environment seen through its camera: (3 * stack, size, size) uint8, channels first, as in
    URLB. The first frame of an episode fills the whole stack. An action is repeated before the one
    frame of a step is drawn; frames in between are never drawn.
    """

    def __init__(self, inner: Env, *, seed: int, settings: RenderSettings, action_repeat: int = 1):
        self._inner, self._settings = inner, settings
        self._renderer = Renderer(settings.size, settings.size, shadows=settings.shadows)
        self._frames: deque[np.ndarray] = deque(maxlen=settings.stack)
        self._unseen = 0  # frames that need not be drawn, because no later stack holds them
        one = np.ones(inner.action_dim)
        size = int(np.prod(settings.shape))
        super().__init__(seed=seed, obs_dim=size, low=-one, high=one, action_repeat=action_repeat)
        self._obs_shape = settings.shape  # type: ignore[assignment]
        self._observation_spec = specs.BoundedArray(settings.shape, np.uint8, 0, 255, "observation")

    @property
    def obs_dim(self) -> int:
        return int(np.prod(self._obs_shape))

    @property
    def unwrapped(self) -> Any:
        """The native environment, for films and clocks."""
        return getattr(self._inner, "unwrapped", self._inner)

    def measured(self) -> np.ndarray:
        return self._inner.measured()

    def close(self) -> None:
        self._renderer.close()
        self._inner.close()

    # ---- what `Env` asks for

    def _seed(self, seed: int) -> None:
        self._inner.seed(seed)

    def _reset(self) -> None:
        self._inner.reset()
        self._frames.clear()

    def _step(self, action: np.ndarray) -> Outcome:
        step = self._inner.step(action)
        return Outcome(None, step.reward, step.discount, step.last())

    def _to_native(self, action: np.ndarray) -> np.ndarray:
        return action  # the inner environment rescales it, once

    def _flatten(self, observation: None) -> np.ndarray:
        """Called once per step, when the state is the one to be seen."""
        if self._unseen > 0:
            self._unseen -= 1
            return np.zeros(self._obs_shape, np.uint8)
        frame = self._renderer.frame(self._inner).transpose(2, 0, 1)  # (3, size, size)
        self._frames.extend([frame] * (1 if self._frames else self._settings.stack))
        return np.concatenate(self._frames)

    def _get_source(self) -> dict | None:
        return self._inner._get_source()

    def _set_source(self, source: dict) -> None:
        self._inner._set_source(source)

    def set_state(self, state: Mapping) -> dm_env.TimeStep | None:
        """Of the replayed episode only the frames of the last stack are drawn; `Env` compares it
        with the stored one."""
        steps = len(state["actions"])
        # A start frame fills the stack, so it is needed where the episode is shorter than that.
        self._unseen = max(steps + 1 - self._settings.stack, 0)
        try:
            return super().set_state(state)
        finally:
            self._unseen = 0

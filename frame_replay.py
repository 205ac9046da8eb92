"""A replay of pictures: every frame is stored once, and stacks are put together when a batch is drawn."""

from __future__ import annotations

import numpy as np

from replay_buffer import ReplayBuffer


class FrameReplay(ReplayBuffer):
    """A row holds the newest frame of its time step, 21 kB at 84 x 84, not the whole stack.

    The stack of a row is read from the rows before it, but not from before its episode's start: there
    the first frame stands in for what came earlier, as in the environment. Where the ring has
    overwritten a frame of a row's stack, no transition starts any more.
    """

    def __init__(self, *, obs_shape: tuple[int, int, int], stack: int, **settings):
        self.stack = stack  # the base class asks for it
        super().__init__(obs_dim=0, **settings)
        channels, *sides = obs_shape
        self.channels = channels // stack  # of one frame
        self.fields["obs"] = np.zeros((self.capacity, self.channels, *sides), np.uint8)
        self._back = np.arange(stack - 1, -1, -1)  # how far back each frame lies, the oldest first

    def _place(self, obs: np.ndarray, episode_step: int, physics: np.ndarray | None) -> None:
        super()._place(obs[-self.channels :], episode_step, physics)
        for ahead in range(1, self.stack):  # the oldest rows, whose stacks began here
            row = (self.head + ahead) % self.capacity
            if self.fields["episode_step"][row] >= ahead:
                self._mark(row, False)

    def _seen(self, rows: np.ndarray) -> np.ndarray:
        back = np.minimum(self._back, self.fields["episode_step"][rows][:, None])  # (B, stack)
        frames = self.fields["obs"].take((rows[:, None] - back) % self.capacity, 0)
        return frames.reshape(len(rows), self.stack * self.channels, *frames.shape[3:])

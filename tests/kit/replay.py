"""A replay buffer beside a diary of all that was ever put into it."""

import numpy as np
import pytest

from replay_buffer import ReplayBuffer
from utils import UserError

SKILLS = 4
# Powers of a half and small whole numbers add up without rounding, so rows are compared exactly.
HALF = 0.5


def make(
    *,
    capacity=23,
    nstep=3,
    gamma=HALF,
    skill_index="acting",
    obs_dim=2,
    action_dim=2,
    skill_dim=SKILLS,
    seed=0,
    **more,
) -> ReplayBuffer:
    return ReplayBuffer(
        obs_dim=obs_dim,
        action_dim=action_dim,
        skill_dim=skill_dim,
        capacity=capacity,
        nstep=nstep,
        gamma=gamma,
        skill_index=skill_index,
        rng=np.random.default_rng(seed),
        **more,
    )


def what_happens(episode, step):
    """Action, skill and reward of a step, all different, so that a wrong row is seen."""
    action = np.array([episode, 1000 + step], np.float32)
    skill = np.eye(SKILLS, dtype=np.float32)[(3 * episode + step // 2) % SKILLS]
    return action, skill, float(1 + (7 * episode + 5 * step) % 11)


class Diary:
    """A buffer and, beside it, all that was ever put in: the ring is the last `capacity` time steps
    of the diary.

    obs = [episode, step]. After `length` steps an episode ends, in a true terminal where `terminal`
    says so.
    """

    def __init__(self, **settings):
        self.memory = make(**settings)
        self.times: list[tuple[int, int]] = []  # (episode, step) of each time step
        self.lengths: list[int] = []
        self.terminal: list[bool] = []

    def play(self, length, *, terminal=False):
        """One episode, a step at a time."""
        episode = len(self.lengths)
        self.lengths.append(length)
        self.terminal.append(terminal)
        self.memory.begin(np.array([episode, 0], np.float32))
        self.times.append((episode, 0))
        yield
        for step in range(length):
            action, skill, reward = what_happens(episode, step)
            over = terminal and step + 1 == length
            following = np.array([episode, step + 1], np.float32)
            self.memory.add(action, skill, reward, 0.0 if over else 1.0, following)
            self.times.append((episode, step + 1))
            yield

    def starts(self):
        """Brute force: time steps of the window from which n more of the same episode are there; of
        episodes after which another has begun, where the memory holds the running one back."""
        window, n = self.times[-self.memory.capacity :], self.memory.nstep
        last = len(self.lengths) - (0 if self.memory.running_episode else 1)
        found = [window[i] for i in range(len(window) - n) if window[i + n][0] == window[i][0]]
        return [(episode, step) for episode, step in found if episode < last]

    def expected(self, episode, step):
        n, gamma, skill_step = self.memory.nstep, self.memory.gamma, step
        if self.memory.legacy_skill and step > 0:
            skill_step = step - 1
        reward, discount = 0.0, 1.0
        for i in range(n):
            reward += discount * what_happens(episode, step + i)[2]
            over = self.terminal[episode] and step + i + 1 == self.lengths[episode]
            discount *= 0.0 if over else gamma
        return {
            "obs": [episode, step],
            "action": what_happens(episode, step)[0],
            "reward": [reward],
            "discount": [discount],
            "next_obs": [episode, step + n],
            "skill": what_happens(episode, skill_step)[1],
            "next_obs_1": [episode, step + 1],
        }

    def check(self, draws_per_start=30):
        """Length, every field of every row drawn, and that every start is drawn."""
        starts = self.starts()
        assert len(self.memory) == len(starts)
        if not starts:
            with pytest.raises(UserError):
                self.memory.sample(1)
            return
        batch = self.memory.sample(draws_per_start * len(starts))
        drawn = {}
        for i, obs in enumerate(batch.obs.tolist()):
            drawn.setdefault(tuple(int(v) for v in obs), []).append(i)
        assert sorted(drawn) == sorted(starts)
        for (episode, step), rows in drawn.items():
            for name, value in self.expected(episode, step).items():
                field = getattr(batch, name)[rows].numpy()
                np.testing.assert_array_equal(
                    field, np.broadcast_to(np.float32(value), field.shape), err_msg=name
                )

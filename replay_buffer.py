"""One preallocated ring of time steps; n-step batches are gathered from it, never across an
episode's end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from utils import Share, UserError


class Batch(NamedTuple):
    """B transitions. `skill` is the one under which `action` was chosen."""

    obs: Tensor  # (B, obs_dim), of pixels (B, channels, rows, columns) uint8
    action: Tensor  # (B, action_dim)
    reward: Tensor  # (B, 1) discounted sum of n rewards
    discount: Tensor  # (B, 1) gamma^n times the environment's discounts: 0 past a true terminal
    next_obs: Tensor  # (B, obs_dim) n steps on
    skill: Tensor  # (B, skill_dim)
    next_obs_1: Tensor  # (B, obs_dim) one step on


class ReplayBuffer:
    """A row is a time step: its observation, and the action, reward, discount and skill of the step
    out of it.

    An episode of L steps takes L + 1 rows; the last one holds only the final observation.
    Observations are stored once, so a million walker rows take 0.15 GB.
    """

    stack = 1  # rows that an observation is read from (frame_replay.py)

    def __init__(
        self,
        *,
        obs_dim: int,
        action_dim: int,
        skill_dim: int,
        capacity: Annotated[int, Interval(ge=1, le=10**9)],
        nstep: Annotated[int, Interval(ge=1, le=1000)],
        gamma: Share,
        skill_index: Literal["acting", "legacy"],
        running_episode: bool = True,
        rng: np.random.Generator,
        device: torch.device | str = "cpu",
        one_hot: bool = True,
        tasks: int = 0,
        physics: int = 0,
    ):
        if capacity <= (most := nstep + self.stack):
            raise UserError(
                f"replay.capacity={capacity} is too small for nstep={nstep}; it needs {most + 1} or more"
            )
        self.legacy_skill, self.running_episode = skill_index == "legacy", running_episode
        self.capacity = capacity
        self.nstep = nstep
        self.gamma = gamma
        self.rng = rng
        self.device = device
        self.fields = {
            "obs": np.zeros((capacity, obs_dim), np.float32),
            "action": np.zeros((capacity, action_dim), np.float32),
            "reward": np.zeros((capacity, 1), np.float32),
            "discount": np.zeros((capacity, 1), np.float32),
            "skill": np.zeros((capacity, skill_dim), np.uint8 if one_hot else np.float32),
            "episode_step": np.zeros(capacity, np.int32),
            "valid": np.zeros(capacity, bool),  # an n-step transition starts here
        }
        # What data needs to be relabelled with another reward later (run/data.py).
        if tasks:  # what each task of the domain would have paid
            self.fields["task_rewards"] = np.zeros((capacity, tasks), np.float32)
        if physics:
            self.fields["physics"] = np.zeros((capacity, physics), np.float64)
        self.head = 0  # the row of the current time step
        self.size = 0  # rows ever filled, at most capacity
        self.num_valid = 0

    def __len__(self) -> int:
        return self.num_valid

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.fields.values())

    def begin(self, obs: np.ndarray, *, physics: np.ndarray | None = None) -> None:
        """An episode starts: its first observation takes the row after the previous episode's last
        one."""
        if self.size:
            if not self.running_episode:
                self._release()
            self.head = (self.head + 1) % self.capacity
        self._place(obs, 0, physics)

    def add(
        self,
        action: np.ndarray,
        skill: np.ndarray,
        reward: float,
        discount: float,
        next_obs: np.ndarray,
        *,
        task_rewards: Sequence[float] | None = None,
        physics: np.ndarray | None = None,
    ) -> None:
        """One step out of the current row; skill and action enter together. `physics` belongs to
        the next observation."""
        f, row = self.fields, self.head
        f["action"][row] = action
        f["skill"][row] = skill
        f["reward"][row, 0] = reward
        f["discount"][row, 0] = discount
        if task_rewards is not None:
            f["task_rewards"][row] = task_rewards
        self.head = (row + 1) % self.capacity
        step = int(f["episode_step"][row]) + 1
        self._place(next_obs, step, physics)
        if step >= self.nstep and self.running_episode:
            self._mark((self.head - self.nstep) % self.capacity, True)

    def _release(self) -> None:
        """The episode that ended at the head may be drawn from now on: every start of it that the
        ring still has. The public codes store whole episodes."""
        length = int(self.fields["episode_step"][self.head])
        oldest = length if length < self.capacity else self.capacity - self.stack
        for back in range(self.nstep, oldest + 1):
            self._mark((self.head - back) % self.capacity, True)

    def _place(self, obs: np.ndarray, episode_step: int, physics: np.ndarray | None) -> None:
        # A transition that starts at a row reads the rows after it. What it would read from the row
        # that is overwritten here, it lost before: rows are overwritten oldest first.
        self._mark(self.head, False)
        self.fields["obs"][self.head] = obs
        if physics is not None:
            self.fields["physics"][self.head] = physics
        self.fields["episode_step"][self.head] = episode_step
        self.size = max(self.size, self.head + 1)

    def _mark(self, row: int, valid: bool) -> None:
        self.num_valid += int(valid) - int(self.fields["valid"][row])
        self.fields["valid"][row] = valid

    def sample_rows(self, batch_size: int) -> np.ndarray:
        """Uniform over the rows where an n-step transition starts; nearly all are, so the rest is
        redrawn."""
        if self.num_valid == 0:
            raise UserError(
                f"no {'' if self.running_episode else 'finished '}episode has {self.nstep} steps yet; "
                "raise num_seed_frames or lower replay.nstep"
            )
        rows = self.rng.integers(self.size, size=batch_size)
        while (bad := ~self.fields["valid"][rows]).any():
            rows[bad] = self.rng.integers(self.size, size=int(bad.sum()))
        return rows

    def sample(self, batch_size: int) -> Batch:
        return self.gather(self.sample_rows(batch_size))

    def _acted(self, rows: np.ndarray) -> np.ndarray:
        """Where the skill of each row is."""
        if not self.legacy_skill:
            return rows
        # The public code pairs the action with the skill of the step before.
        return np.where(self.fields["episode_step"][rows] > 0, (rows - 1) % self.capacity, rows)

    def _seen(self, rows: np.ndarray) -> np.ndarray:
        """The observations of these rows."""
        return self.fields["obs"].take(rows, 0)

    def gather(self, rows: np.ndarray) -> Batch:
        f, n = self.fields, self.nstep
        steps = [rows, *((rows + i) % self.capacity for i in range(1, n + 1))]  # n + 1 of (B,)
        reward = np.zeros((len(rows), 1), np.float32)
        discount = np.ones((len(rows), 1), np.float32)
        for at in steps[:n]:
            reward += discount * f["reward"].take(at, 0)
            discount *= np.float32(self.gamma) * f["discount"].take(at, 0)
        arrays = (
            self._seen(rows),
            f["action"].take(rows, 0),
            reward,
            discount,
            self._seen(steps[n]),
            f["skill"].take(self._acted(rows), 0).astype(np.float32),
            self._seen(steps[1]),
        )
        return Batch(*(torch.from_numpy(a).to(self.device, non_blocking=True) for a in arrays))

    def in_order(self) -> np.ndarray:
        """All rows that are filled, the oldest first."""
        return (self.head - self.size + 1 + np.arange(self.size)) % self.capacity

    def recent_skills(self, count: int) -> list[np.ndarray]:
        """Indices of the one-hot skills of the last `count` episodes, oldest first; the last may be
        unfinished."""
        f = self.fields
        rows = self.in_order()
        starts = np.flatnonzero(f["episode_step"][rows] == 0)
        # the last row of an episode holds the state that it ended in, and no action
        episodes = [part[:-1] for part in np.split(rows, starts)[1:]]
        return [f["skill"][part].argmax(1) for part in episodes[-count:] if len(part)]

    def state_dict(self) -> dict[str, Any]:
        """Views of the live arrays: to be saved at once."""
        arrays = {name: torch.from_numpy(a[: self.size]) for name, a in self.fields.items()}
        return {"fields": arrays, "head": self.head, "size": self.size, "num_valid": self.num_valid}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.head, self.size, self.num_valid = state["head"], state["size"], state["num_valid"]
        for name, array in state["fields"].items():
            self.fields[name][: self.size] = array.numpy()
        self.fields["valid"][self.size :] = False


class MixedReplay:
    """A replay that grows, beside older data that stays as it is: batches hold some of both.

    share: how much of a batch is old data; None: as if both lay in one buffer. A batch never has
    more new rows than there are new transitions, so the first one is all old. `skills` gives the
    skills of old rows, (n, skill_dim); None: those under which they were made.
    """

    def __init__(
        self,
        fresh: ReplayBuffer,
        old: ReplayBuffer,
        *,
        share: float | None,
        skills: Callable[[int], np.ndarray] | None,
    ):
        self.fresh, self.old, self.share, self.skills = fresh, old, share, skills
        self.begin, self.add = fresh.begin, fresh.add
        self.recent_skills = fresh.recent_skills

    def __len__(self) -> int:
        return len(self.fresh) + len(self.old)

    @property
    def nbytes(self) -> int:
        return self.fresh.nbytes + self.old.nbytes

    def old_rows(self, batch_size: int) -> int:
        """How many rows of a batch are old ones."""
        share = len(self.old) / len(self) if self.share is None else self.share
        return max(round(share * batch_size), batch_size - len(self.fresh))

    def sample(self, batch_size: int) -> Batch:
        count = self.old_rows(batch_size)
        parts = []
        if count:
            part = self.old.sample(count)
            if self.skills is not None:
                drawn = torch.from_numpy(self.skills(count)).to(part.skill.device)
                part = part._replace(skill=drawn)
            parts.append(part)
        if count < batch_size:
            parts.append(self.fresh.sample(batch_size - count))
        return parts[0] if len(parts) == 1 else Batch(*map(torch.cat, zip(*parts, strict=True)))

    def state_dict(self) -> dict[str, Any]:
        """The old data is not part of it: it is in a file of its own."""
        return self.fresh.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.fresh.load_state_dict(state)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


class DeviceReplayBuffer(ReplayBuffer):
    """Batches are gathered on the device, from a copy of the ring there. Rows are drawn here, by
    the same numbers; what came since the last batch is sent before it, in one piece."""

    COLUMNS = ("obs", "action", "reward", "discount", "skill")

    def __init__(self, *, capacity: int, device: torch.device | str, **settings):
        super().__init__(capacity=capacity, device=device, **settings)
        self.widths = [self.fields[name].shape[1] for name in self.COLUMNS]
        self.table = torch.zeros(capacity, sum(self.widths), device=device)
        self.behind = 0  # rows that are not there yet, the newest ones
        self.gathered = 0  # batches
        self.choice = "on the device"  # in words: for config.yaml and result.json

    @staticmethod
    def table_bytes(capacity: int, *, obs_dim: int, action_dim: int, skill_dim: int) -> int:
        return 4 * capacity * (obs_dim + action_dim + 2 + skill_dim)

    def _place(self, obs: np.ndarray, episode_step: int, physics: np.ndarray | None) -> None:
        super()._place(obs, episode_step, physics)
        self.behind = min(self.behind + 1, self.capacity)

    def gather(self, rows: np.ndarray) -> Batch:
        """From the copy on the device. The 1st, 2nd, 4th, 8th ... batch is compared with what the
        ring here holds, so that also a ring that has wrapped is looked at; if they ever differ, all
        batches come from here from then on."""
        if self.choice != "on the device":
            return super().gather(rows)
        batch = self._gather_there(rows)
        self.gathered += 1
        if self.gathered & (self.gathered - 1):
            return batch
        here = super().gather(rows)
        wrong = [
            name for name in Batch._fields if not _close(getattr(batch, name), getattr(here, name))
        ]
        if not wrong:
            return batch
        self.choice = f"on the host ({', '.join(wrong)} of a batch differed on the device)"
        print(f"warning: replay.on_device: {self.choice}", file=sys.stderr, flush=True)
        return here

    def _gather_there(self, rows: np.ndarray) -> Batch:
        self._send()
        at = torch.from_numpy(np.stack([rows, self._acted(rows)])).to(
            self.device, non_blocking=True
        )
        # (B, width) each
        steps = [self.table[(at[0] + i) % self.capacity] for i in range(self.nstep + 1)]
        parts = [step.split(self.widths, 1) for step in steps]
        reward, discount = torch.zeros_like(parts[0][2]), torch.ones_like(parts[0][3])
        for _, _, r, d, _ in parts[: self.nstep]:
            reward += discount * r
            discount *= self.gamma * d
        obs, action, _, _, _ = parts[0]
        skill = self.table[at[1]].split(self.widths, 1)[4]
        return Batch(obs, action, reward, discount, parts[-1][0], skill, parts[1][0])

    def _send(self) -> None:
        # The row before the oldest new one got its action after it was sent.
        rows = (self.head - np.arange(min(self.behind + 1, self.capacity))) % self.capacity
        if self.behind:
            block = np.concatenate(
                [self.fields[name][rows].astype(np.float32) for name in self.COLUMNS], 1
            )
            at = torch.from_numpy(rows).to(self.device, non_blocking=True)
            self.table[at] = torch.from_numpy(block).to(self.device, non_blocking=True)
        self.behind = 0

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.behind = self.capacity

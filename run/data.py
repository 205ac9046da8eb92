"""The data of a pre-training as a file, and its way back into a fine-tuning with a task's reward.

`save_replay=true` writes replay.pt beside the snapshots of a pre-training: its transitions, oldest
first, with what every task of the domain would have paid for each. `data=relabelled` in fine-tuning
reads the transitions up to the snapshot's frame, with the rewards of the task at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

import envs
from records import Replay, wrong
from replay_buffer import ReplayBuffer
from run import settings
from utils import Natural, Share, Unreadable, UserError, load_torch, save_torch

FILE = "replay.pt"
COLUMNS = ("obs", "action", "reward", "discount", "skill", "episode_step")  # of every file
MORE = ("task_rewards", "physics")  # of some


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """How a fine-tuning uses the data of its pre-training.

    file: a replay.pt; null: that of the pre-training that the snapshot is from. share: of every
    batch, from the old data; null: as if old and new lay in one buffer. offline_updates: before the
    first frame of the task. skill: old rows carry the skill that made them, or one that the run acts
    under now.
    """

    file: settings.Path | None

    share: Share | None
    offline_updates: Natural
    skill: Literal["stored", "acting"]


@dataclass(frozen=True)
class Data:
    """Transitions in the order in which they were made."""

    columns: dict[str, np.ndarray]  # as in ReplayBuffer.fields
    tasks: tuple[str, ...]  # environments whose rewards are the columns of task_rewards
    env: str  # the environment that paid `reward`
    one_hot: bool
    frame: int  # of the last row
    action_repeat: int

    def __len__(self) -> int:
        return len(self.columns["obs"])

    def rewards(self, env: str) -> np.ndarray:
        """What an environment would have paid for each step, (T, 1)."""
        if env in self.tasks:
            return self.columns["task_rewards"][:, [self.tasks.index(env)]]
        if env == self.env:
            return self.columns["reward"]
        if "physics" in self.columns:
            print(f"relabelling {len(self):,} states with the reward of {env}", flush=True)
            return by_physics(self.columns["physics"], env)
        raise UserError(
            f"the stored data has no reward of {env}, only of {', '.join(self.tasks or (self.env,))}; "
            "use data=none, a task of these, or data that was kept with save_replay=physics"
        )

    def paid(self, env: str) -> tuple[np.ndarray, np.ndarray]:
        """Of every step: the skill that it was made under, (T, dim), and what an environment would
        have paid for it, (T,)."""
        steps = self.has_step()
        skills = self.columns["skill"][steps].astype(np.float32)
        return skills, self.rewards(env)[steps, 0].astype(np.float64)

    def until(self, frame: int) -> Data:
        """What had been seen when a snapshot was taken at this frame."""
        late = (self.frame - frame) // self.action_repeat  # steps after it
        if late <= 0:
            return self
        # An episode of L steps takes L + 1 rows, of which the last one has no step.
        steps = self.has_step()
        keep = np.flatnonzero(steps)[: max(int(steps.sum()) - late, 0)]
        count = int(keep[-1]) + 2 if len(keep) else 0  # the row that the last step leads to
        if not count:
            raise UserError(
                f"the replay was overwritten since frame {frame}: it holds the newest {len(self)} rows "
                "up to the last frame; take a later snapshot, or a larger replay.capacity"
            )
        return Data(
            {name: array[:count] for name, array in self.columns.items()},
            self.tasks,
            self.env,
            self.one_hot,
            frame,
            self.action_repeat,
        )

    def has_step(self) -> np.ndarray:
        """Rows out of which a step was taken: those that the next row goes on from."""
        step = self.columns["episode_step"]
        return np.append(step[1:] == step[:-1] + 1, False)


def by_physics(physics: np.ndarray, env: str) -> np.ndarray:
    """What a dm_control environment pays for the step out of each row, (T, 1): the reward of the
    state that it leads to, which is the next row's. The simulator computes it anew from positions
    and velocities, so it equals that of the step up to rounding."""
    native: Any = getattr(envs.make(env, seed=0), "unwrapped", None)
    if not (hasattr(native, "physics") and hasattr(native, "task")):
        raise UserError(f"{env} is no dm_control environment: stored physics tells nothing of it")
    size = len(native.physics.get_state())
    if physics.shape[1] != size:
        raise UserError(
            f"the stored physics has {physics.shape[1]} numbers, that of {env} has {size}: "
            "it is of another body; use data=none"
        )
    paid = np.zeros((len(physics), 1), np.float32)
    for row, state in enumerate(physics[1:]):
        with native.physics.reset_context():
            native.physics.set_state(state)
        paid[row] = native.task.get_reward(native.physics)
    return paid


def save(path: Path, memory: ReplayBuffer, **facts: Any) -> None:
    rows = memory.in_order()
    names = (name for name in (*COLUMNS, *MORE) if name in memory.fields)
    columns = {name: torch.from_numpy(memory.fields[name][rows]) for name in names}
    save_torch(path, {"kind": "replay", "format": 1, "columns": columns, **facts})


def load(path: Path) -> Data:
    found = load_torch(path, "replay")
    problem = wrong(Replay, found)
    columns = {} if problem else as_arrays(found["columns"])
    if problem := problem or wrong_columns(columns, len(found["tasks"])):
        raise Unreadable(f"{path} is no replay of this code: {problem}")
    facts = (found[name] for name in ("env", "one_hot", "frame", "action_repeat"))
    return Data(columns, tuple(found["tasks"]), *facts)


def as_arrays(columns: dict[str, Any]) -> dict[str, np.ndarray]:
    """The known columns that are plain tensors in memory: a sparse one, or one without content, has
    no array."""
    return {
        name: tensor.numpy()
        for name in (*COLUMNS, *MORE)
        if isinstance(tensor := columns.get(name), torch.Tensor)
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and not (tensor.is_quantized or tensor.requires_grad or tensor.is_complex())
        and tensor.dtype != torch.bfloat16  # which numpy does not know
    }


def wrong_columns(columns: dict[str, np.ndarray], tasks: int) -> str:
    """What is wrong with the columns of a replay, in a few words; empty if nothing is."""
    if missing := [name for name in COLUMNS if name not in columns]:
        return f"it has no {', '.join(missing)}"
    if len({array.shape[:1] for array in columns.values()}) != 1 or len(columns["obs"]) < 2:
        return "its columns differ in length, or have one row"
    widths = {"reward": 1, "discount": 1, **({"task_rewards": tasks} if tasks else {})}
    for name, array in columns.items():
        ranks = {"episode_step": (1,), "obs": range(2, 5)}.get(name, (2,))  # pixels have four
        if array.dtype.kind not in "fiub" or array.ndim not in ranks:
            return f"{name} holds {array.dtype} in {array.ndim} dimensions"
        if name in widths and array.shape[1] != widths[name]:
            return f"{name} has {array.shape[1]} numbers per row in place of {widths[name]}"
        if not np.isfinite(array).all():
            return f"{name} holds nan or infinity"
    if tasks and "task_rewards" not in columns:
        return "it has no task_rewards"
    if columns["episode_step"].dtype.kind not in "iu" or columns["episode_step"].min() < 0:
        return "episode_step does not count"
    return ""


def find(snapshot: Path) -> Path:
    """The data of the pre-training that wrote a snapshot."""
    path = snapshot.parent.parent / FILE
    if not path.is_file():
        raise UserError(
            f"no data at {path}: that pre-training ran without save_replay=true; use data=none, or "
            "pre-train again with save_replay=true and variant=NAME"
        )
    return path


def as_memory(data: Data, env: str, *, nstep: int, gamma: float, rng, device) -> ReplayBuffer:
    """A replay that holds the data, with the rewards of one environment."""
    widths = {name: data.columns[name].shape[1] for name in ("obs", "action", "skill")}
    memory = ReplayBuffer(
        obs_dim=widths["obs"],
        action_dim=widths["action"],
        skill_dim=widths["skill"],
        capacity=max(len(data), nstep + 2),
        nstep=nstep,
        gamma=gamma,
        skill_index="acting",
        rng=rng,
        device=device,
        one_hot=data.one_hot,
    )
    size = len(data)
    for name in COLUMNS:
        memory.fields[name][:size] = data.columns[name]
    memory.fields["reward"][:size] = data.rewards(env)
    step = data.columns["episode_step"]
    starts = np.flatnonzero(step[nstep:] == step[:-nstep] + nstep)  # n steps on, the same episode
    memory.fields["valid"][starts] = True
    memory.head, memory.size, memory.num_valid = size - 1, size, len(starts)
    if not len(starts):
        raise UserError(f"the stored data has no episode of {nstep} steps; use data=none")
    return memory

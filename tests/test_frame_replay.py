"""Stacks and n-step successors from single frames, compared with the whole stacks that were seen."""

import io

import numpy as np
import pytest
import torch

from frame_replay import FrameReplay
from utils import UserError

SIDE, SKILLS = 4, 3


def frame(episode: int, step: int) -> np.ndarray:
    """(3, SIDE, SIDE), different for every moment and colour."""
    colours = np.array([step % 256, episode % 256, (7 * step + episode) % 256], np.uint8)
    return np.broadcast_to(colours[:, None, None], (3, SIDE, SIDE))


class Diary:
    """A replay, and all stacks that an environment would have shown."""

    def __init__(self, *, stack=3, nstep=3, capacity=29, running_episode=True, seed=0):
        self.stack, self.nstep, self.capacity = stack, nstep, capacity
        self.running_episode = running_episode
        self.memory = FrameReplay(
            obs_shape=(3 * stack, SIDE, SIDE),
            stack=stack,
            action_dim=2,
            skill_dim=SKILLS,
            capacity=capacity,
            nstep=nstep,
            gamma=0.5,
            skill_index="acting",
            running_episode=running_episode,
            rng=np.random.default_rng(seed),
        )
        self.times: list[tuple[int, int]] = []  # of every row ever placed
        self.lengths: list[int] = []  # steps of each episode so far

    def stacked(self, episode: int, step: int) -> np.ndarray:
        moments = [max(step - back, 0) for back in range(self.stack - 1, -1, -1)]
        return np.concatenate([frame(episode, moment) for moment in moments])

    def play(self, length: int):
        episode = len(self.lengths)
        self.lengths.append(0)
        self.memory.begin(self.stacked(episode, 0))
        self.times.append((episode, 0))
        yield
        for step in range(length):
            action = np.array([episode, step], np.float32)
            skill = np.eye(SKILLS, dtype=np.float32)[(episode + step) % SKILLS]
            self.memory.add(action, skill, 1.0, 1.0, self.stacked(episode, step + 1))
            self.times.append((episode, step + 1))
            self.lengths[-1] = step + 1
            yield

    def starts(self) -> set[tuple[int, int]]:
        """Where a transition may start: all that it reads is still among the last rows, and in its
        own episode."""
        kept = set(self.times[-self.capacity :])
        return {
            (episode, step)
            for episode, step in kept
            if step + self.nstep <= self.lengths[episode]
            and all((episode, step + i) in kept for i in range(self.nstep + 1))
            and all((episode, max(step - back, 0)) in kept for back in range(self.stack))
            and (self.running_episode or episode < len(self.lengths) - 1)
        }

    def check(self) -> None:
        valid = np.flatnonzero(self.memory.fields["valid"])
        batch = self.memory.gather(valid)
        found = {(int(episode), int(step)) for episode, step in batch.action.numpy()}
        assert found == self.starts() and len(self.memory) == len(valid) == len(found)
        assert batch.obs.dtype == torch.uint8
        for i, (episode, step) in enumerate(batch.action.numpy().astype(int)):
            for obs, ahead in ((batch.obs, 0), (batch.next_obs_1, 1), (batch.next_obs, self.nstep)):
                np.testing.assert_array_equal(obs[i].numpy(), self.stacked(episode, step + ahead))


@pytest.mark.parametrize("running_episode", [True, False])
@pytest.mark.parametrize(
    ("stack", "nstep", "capacity"), [(1, 1, 9), (3, 1, 7), (3, 3, 29), (4, 2, 31), (2, 5, 23)]
)
def test_every_stack_is_the_one_that_was_seen_and_never_of_two_episodes(
    stack, nstep, capacity, running_episode
):
    diary = Diary(stack=stack, nstep=nstep, capacity=capacity, running_episode=running_episode)
    lengths = np.random.default_rng(3).integers(1, 10, 30)
    assert lengths.sum() > 4 * capacity and lengths.min() < stack + nstep
    for i, length in enumerate(lengths):
        for moment, _ in enumerate(diary.play(length)):
            if (i + moment) % 3 == 0:
                diary.check()


@pytest.mark.parametrize("running_episode", [True, False])
def test_an_episode_longer_than_the_ring_keeps_only_whole_stacks(running_episode):
    diary = Diary(capacity=11, running_episode=running_episode)
    for length in (4, 40, 6, 30):
        for _ in diary.play(length):
            diary.check()
    for _ in diary.play(1):  # the last episode is finished
        diary.check()


def test_a_frame_is_stored_once():
    diary = Diary(capacity=100)
    assert diary.memory.fields["obs"].nbytes == 100 * 3 * SIDE * SIDE
    rest = diary.memory.nbytes - diary.memory.fields["obs"].nbytes
    assert rest < 100 * 40  # action, reward, discount, skill, step


def test_a_saved_memory_goes_on_alike():
    ours, theirs = Diary(seed=1), Diary(seed=1)
    for _ in ours.play(20):
        pass
    file = io.BytesIO()
    torch.save(ours.memory.state_dict(), file)
    file.seek(0)
    theirs.memory.load_state_dict(torch.load(file, weights_only=True))
    theirs.times, theirs.lengths = list(ours.times), list(ours.lengths)
    for diary in (ours, theirs):
        for _ in diary.play(14):
            diary.check()
    for a, b in zip(ours.memory.sample(8), theirs.memory.sample(8), strict=True):
        assert torch.equal(a, b)


def test_a_ring_too_small_for_a_stack_is_refused():
    with pytest.raises(UserError, match="it needs 7 or more"):
        Diary(capacity=6)

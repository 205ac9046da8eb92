"""Episodes of an evaluation run side by side; none feels the others."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest

from agent.skills.sources import SkillSource, SkillSpace
from envs.dummy import Dummy
from run.evaluation import Evaluator


def returns(path):
    with (path / "eval.csv").open() as file:
        (row,) = csv.DictReader(file)
    return [float(word) for word in row["returns"].split()]


@pytest.mark.parametrize(
    "phase, words, place",
    [
        (
            "finetune",
            ("agent=ddpg", "task=walker_run", "num_eval_episodes=5"),
            "finetune/walker_run/ddpg/*/none/seed_1",
        ),
        ("pretrain", ("agent=diayn", "skill_dim=5"), "pretrain/walker/diayn/*/seed_1"),
    ],
)
def test_returns_do_not_depend_on_how_many_run_side_by_side(cli, phase, words, place):
    found = []
    for count in (1, 2, 5, 8):  # one by one; the last pair is half empty; all; more than there are
        done = cli(
            phase,
            *words,
            "num_train_frames=0",
            "snapshots=[]" if phase == "pretrain" else "seed=1",
            f"eval_envs={count}",
            f"run_root={cli.root / str(count)}",
            "eval_episode_steps=40",
        )
        assert done.code == 0, done.err
        (path,) = (cli.root / str(count)).glob(place)
        found.append(returns(path))
    assert len(found[0]) == 5 and np.ptp(found[0]) > 0
    for other in found[1:]:  # a product of several rows rounds otherwise than one of each
        assert other == pytest.approx(found[0], rel=1e-3)


def test_a_short_episode_ends_alone_and_each_has_its_own_skill_and_start():
    lengths, space = (3, 7, 5), SkillSpace("one_hot", 3)
    sources = [SkillSource(space, skill) for skill in np.eye(3, dtype=np.float32)]
    # tells the skill
    evaluator = Evaluator(
        {"eval_episode_steps": None, "save_video": False},
        None,
        SimpleNamespace(eval_envs=[Dummy(seed=9, length=length) for length in lengths], sight=None),
        pause=lambda: None,
        act=lambda obs, skills: skills[:, :2] / 2,
    )
    evaluator.play(0, sources, [5, 5, 6])
    episodes = evaluator.episodes
    assert [len(episode.states) for episode in episodes] == list(lengths)
    assert [episode.total for episode in episodes] == [
        sum(range(1, length + 1)) for length in lengths
    ]
    for episode, source in zip(episodes, sources, strict=True):
        assert (episode.skills == source.skill).all() and (
            episode.states[:, 3:] == source.skill[:2] / 2
        ).all()
    first, second, other = (episode.states[:3, 2] for episode in episodes)  # what is random in them
    assert (first == second).all() and (first != other).all()

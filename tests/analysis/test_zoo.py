"""The zoo and published folders: small, without a trace of the machine, and used by their names."""

import json
import re

import numpy as np
import pytest

from agent import zoo
from agent.policy import load_policy
from analysis import film, publish, safetensors
from analysis import zoo as zoo_command
from analysis.maze import __main__ as maze
from utils import UserError, load_snapshot

SHIPPED = zoo.names()
BODIES, MAZES = ("walker", "quadruped"), ("tree_maze", "square_maze")
PROMISED = {f"{body}/{name}" for body in BODIES for name in "amped apt cic diayn metra".split()} | {
    f"{maze}/{name}" for maze in MAZES for name in "amped becl cesd cic comsd diayn".split()
}


def test_the_zoo_is_small_and_every_policy_has_a_card_and_a_picture():
    assert set(SHIPPED) >= PROMISED and zoo_command.size(zoo.ZOO) < zoo_command.LIMIT
    assert (zoo.ZOO / "README.md").read_text() == zoo_command.index(zoo.ZOO)
    for name in SHIPPED:
        path = zoo.resolve(f"zoo:{name}")
        payload, card = load_snapshot(path), path.with_suffix(".md").read_text()
        assert f"{payload['domain']}/" in name and f'load_policy("zoo:{name}")' in card
        assert re.search(r"^python pretrain.py agent=\S+", card, re.M) and "| commit |" in card
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert not re.search(r"(/tmp|/root|/home|/work)\b", json.dumps(payload["config"]) + card)
        assert payload["objective"] == {} and not any("critic" in key for key in payload["learner"])


@pytest.mark.parametrize("name", SHIPPED)
def test_every_policy_of_the_zoo_acts(name):
    policy = load_policy(f"zoo:{name}")
    skill = policy.space.sample(np.random.default_rng(0)) if policy.skill_dim else None
    action = policy.act(np.zeros((3, policy.obs_dim)), skill)
    assert action.shape == (3, policy.action_dim) and np.abs(action).max() <= 1


def test_an_unknown_name_is_told_with_the_nearest():
    near = SHIPPED[0][:-1]
    with pytest.raises(UserError, match=rf"is not in the zoo; .*did you mean zoo:{SHIPPED[0]}\?"):
        load_policy(f"zoo:{near}")


def test_a_maze_of_the_zoo_is_fine_tuned_filmed_and_drawn_by_its_name(cli, run_main, tmp_path):
    name = next(name for name in SHIPPED if name.startswith("tree_maze/"))
    agent = name.partition("/")[2]
    words = (f"agent={agent}", "task=tree_maze_reach_left", f"snapshot=zoo:{name}")
    done = cli("finetune", *words)
    assert done.code == 0, done.err
    (result,) = cli.root.glob("finetune/**/result.json")
    assert json.loads(result.read_text())["pretrained"].endswith(f"zoo/{name}.pt")
    out = tmp_path / "film"
    filmed = run_main(film.main, "skills", f"zoo:{name}", "--out", out, "--stills", "--steps", "5")
    assert filmed.code == 0 and (out / "filmstrip.png").exists(), filmed.err
    drawn = run_main(maze.main, "draw", f"zoo:{name}", "--out", tmp_path / "paths.png")
    assert drawn.code == 0 and (tmp_path / "paths.png").exists()


@pytest.fixture
def walker(cli):
    words = ("num_train_frames=40", "snapshots=[]", "skill_dim=3", "variant=v")
    assert cli("pretrain", *words).code == 0
    return cli.root / "pretrain/walker/amped/v/seed_1"


def test_a_walker_of_the_zoo_is_fine_tuned_by_its_name(cli):
    words = ("agent=diayn", "task=walker_run", "preset=cpu", "num_train_frames=0")
    out = cli("finetune", *words, "num_eval_episodes=1", "snapshot=zoo:walker/diayn")
    assert out.code == 0, out.err


def test_finished_runs_become_entries_and_fine_tuning_starts_their_critic_afresh(
    cli, run_main, walker, tmp_path, monkeypatch
):
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    added = run_main(zoo_command.main, "add", walker)
    assert added.code == 0 and "zoo:walker/amped" in added.out, added.err
    assert zoo.names() == ["walker/amped"]
    assert str(tmp_path) not in json.dumps(load_snapshot(zoo.resolve("zoo:walker/amped"))["config"])
    ours, theirs = load_policy(walker), load_policy("zoo:walker/amped")
    obs = np.ones((2, 24), np.float32)
    np.testing.assert_array_equal(ours.act(obs, 2), theirs.act(obs, 2))
    words = ("task=walker_run", "snapshot=zoo:walker/amped", "skill_dim=3")
    done = cli("finetune", *words)
    assert done.code == 0 and "holds the actor alone; the critic starts afresh" in done.out, (
        done.err
    )
    assert "is finished" in cli("finetune", *words).out
    named = run_main(zoo_command.main, "add", f"first={walker}")
    assert named.code == 0 and zoo.names() == ["walker/amped", "walker/first"], named.err
    twice = run_main(zoo_command.main, "add", walker, walker)
    assert twice.code == 2 and "would both be zoo:walker/amped" in twice.err
    unfinished = run_main(zoo_command.main, "add", tmp_path)
    assert unfinished.code == 2 and "is no finished run" in unfinished.err


def test_a_published_folder_is_a_card_and_weights_that_act_the_same(run_main, walker, tmp_path):
    out = tmp_path / "hub"
    done = run_main(publish.main, walker, "--out", out)
    assert done.code == 0, done.err
    assert {path.name for path in out.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "skills.png",
    }
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlicense: mit\n") and str(tmp_path) not in card
    assert str(tmp_path) not in (out / "config.json").read_text()
    obs = np.ones((2, 24), np.float32)
    again = publish.load_published(out)
    np.testing.assert_array_equal(load_policy(walker).act(obs, 1), again.act(obs, 1))
    (out / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match="is no readable safetensors file"):
        publish.load_published(out)


def test_safetensors_are_read_by_the_library(tmp_path):
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    import torch

    tensors = {"a": torch.randn(2, 3), "b.c": torch.arange(4), "empty": torch.zeros(0)}
    safetensors.save(tmp_path / "x.safetensors", tensors, {"format": "pt"})
    found = library.load_file(tmp_path / "x.safetensors")
    assert found.keys() == tensors.keys() == safetensors.load(tmp_path / "x.safetensors").keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())

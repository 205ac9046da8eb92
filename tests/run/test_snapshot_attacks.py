"""A snapshot whose weights load and whose words are nonsense is refused in one line, by everyone."""

import copy

import pytest
import torch

from agent.policy import load_policy
from analysis import film
from analysis.maze import __main__ as maze
from run.cli.console import LEFT_OUT
from tests.kit.file_attacks import NONSENSE
from utils import UserError, load_snapshot, save_torch

SHARED = {}


def put(payload, place, value):
    """Set payload[a][b]... of "a.b", or leave it away."""
    *path, last = place.split(".")
    for name in path:
        payload = payload[name]
    if value is KeyError:
        payload.pop(last)
    else:
        payload[last] = value


NUMBERS = ("frame", "seed", "spec.obs_dim", "spec.skill_dim", "config.seed", "config.skill_dim")
SIZES = ("config.action_repeat", "config.learner.hidden_dim", "config.learner.layers")
WORDS = ("agent", "domain", "config.phase", "config.agent.skill_space", "config.learner.name")
HOLDERS = (
    "spec",
    "config",
    "config.agent",
    "config.learner",
    "config.domain",
    "versions",
    "learner",
)
ATTACKS = {
    **{
        f"{place} is {what}": (place, value)
        for place in (*NUMBERS, *SIZES)
        for what, value in NONSENSE.items()
    },
    **{f"{place} is zero": (place, 0) for place in SIZES},
    **{
        f"{place} is {what}": (place, NONSENSE[what])
        for place in WORDS
        for what in ("nothing", "a list", "a truth value", "infinite")
    },
    **{
        f"{place} is {what}": (place, NONSENSE[what])
        for place in HOLDERS
        for what in ("nothing", "a word", "a list", "infinite")
    },
    **{f"no {place}": (place, KeyError) for place in (*NUMBERS, *SIZES, *WORDS, *HOLDERS)},
    "format is a list": ("format", [1]),
    "versions are tensors": ("versions", {"torch": torch.zeros(3)}),
    "a tensor in the config": ("config.beta", torch.zeros(2)),
    "a config of numbers": ("config.1", {1: 2}),
    "frame is a tensor": ("frame", torch.tensor(3)),
    "a weight is a word": ("learner", {"actor.trunk.0.weight": "x"}),
    "a weight is meta": ("learner", {"actor.trunk.0.weight": torch.empty(2, 2, device="meta")}),
    "a weight is sparse": ("learner", {"actor.trunk.0.weight": torch.eye(2).to_sparse()}),
}


@pytest.fixture
def sound(whole):
    """The payload of a true snapshot."""
    (path,) = whole("num_train_frames=20", "snapshots=[]").glob("**/snapshot_*.pt")
    if path not in SHARED:
        SHARED[path] = load_snapshot(path)
    payload = SHARED[path]
    return payload | {"spec": dict(payload["spec"]), "config": copy.deepcopy(payload["config"])}


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_reader_refuses_it_and_says_where(attack, sound, tmp_path):
    path = tmp_path / "snapshot_20.pt"
    put(sound, *ATTACKS[attack])
    save_torch(path, sound)
    for read in (load_snapshot, load_policy):
        with pytest.raises(UserError, match=str(path)) as refused:
            read(path)
        assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


FIT = {
    "other sizes": ("spec", {"obs_dim": 5, "action_dim": 6, "skill_dim": 16}),
    "a size that fits no weight": ("config.learner.hidden_dim", 7),
    "no weights": ("learner", {}),
    "weights of another shape": ("learner", {"actor.trunk.0.weight": torch.zeros(1, 1)}),
    "no objective": ("objective", {}),
    "an objective of words": ("objective", "x"),
}


@pytest.mark.parametrize("attack", FIT)
def test_what_fits_nothing_is_one_line_in_every_command(attack, sound, tmp_path, cli, run_main):
    path = tmp_path / "snapshot_20.pt"
    put(sound, *FIT[attack])
    save_torch(path, sound)
    skills = "skills=native" if "objective" in attack else "skills=switching"
    given = ("agent=amped", "task=walker_run", f"snapshot={path}", skills, "num_train_frames=0")
    calls = [] if attack == "other sizes" else [cli("finetune", *given)]  # there the task decides
    if "objective" not in attack:  # which a film does not use
        calls.append(run_main(film.main, path, "--out", tmp_path / "film", "--stills"))
    for done in calls:
        if done.code == 0 and "objective" in attack:
            continue  # amped draws its skills without it
        assert done.code == 2 and done.err.startswith("error: ") and done.err.count("\n") == 1, done
        assert "Traceback" not in done.err


def test_finetune_refuses_a_frame_a_seed_or_versions_that_are_nonsense(sound, tmp_path, cli):
    for place, value in (("frame", -5), ("seed", "x"), ("versions", {"torch": 7})):
        path = tmp_path / f"{place}.pt"
        save_torch(path, sound | {place: value})
        done = cli("finetune", "agent=amped", "task=walker_run", f"snapshot={path}")
        assert done.code == 2 and f"{path} is not what pretrain.py writes: {place}" in done.err
        assert done.err.count("\n") == 1 and not (cli.root / "finetune").exists()


def test_maze_commands_go_on_without_the_file(whole, tmp_path, run_main):
    root = whole("domain=tree_maze", "num_train_frames=400", "snapshots=[]")
    (path,) = root.glob("**/snapshot_*.pt")
    spoilt = tmp_path / "snapshot_1.pt"
    spoilt.write_bytes(path.read_bytes()[:-100])
    done = run_main(maze.main, "missed", path, spoilt)
    assert done.code == LEFT_OUT and str(path) in done.out, done
    assert done.err.startswith(f"left out: {spoilt} ") and done.err.count("\n") == 1

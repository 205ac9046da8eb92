"""Episodes in ExORL's format: there and back without a change, and rewards from their physics."""

import numpy as np
import pytest

from analysis import exorl
from run import data
from run.cli.console import LEFT_OUT
from tests.kit.data_attacks import EPISODES, episode


@pytest.fixture
def kept(whole):
    root = whole("domain=walker", "save_replay=physics", "agent=apt", "num_train_frames=1100")
    return root / "pretrain/walker/apt/smoke,num_train_frames=1100/seed_1"


def test_an_episode_has_a_dummy_first_row_and_then_what_led_to_each_observation(
    kept, tmp_path, run_main
):
    assert run_main(exorl.main, "export", kept, tmp_path / "out", "--task", "walker_run").code == 0
    files = sorted((tmp_path / "out").iterdir())
    # The replay holds the newest 400 rows: the end of the first episode, and 101 rows of the second.
    assert [file.name for file in files] == ["episode_000000_298.npz", "episode_000001_100.npz"]
    found = data.load(kept / "replay.pt")
    rewards = found.rewards("walker_run")
    episode = np.load(files[-1])
    assert not episode["action"][0].any() and episode["reward"][0] == 0
    assert episode["discount"][0] == 1
    rows = exorl.episodes(found)[-1]
    np.testing.assert_array_equal(episode["observation"], found.columns["obs"][rows])
    np.testing.assert_array_equal(episode["action"][1:], found.columns["action"][rows][:-1])
    np.testing.assert_array_equal(episode["reward"][1:], rewards[rows][:-1])
    assert {len(episode[name]) for name in episode.files} == {rows.stop - rows.start}


def test_there_and_back_is_the_same_data(kept, tmp_path, run_main):
    assert run_main(exorl.main, "export", kept, tmp_path / "out").code == 0
    back = tmp_path / "back.pt"
    done = run_main(exorl.main, "import", tmp_path / "out", back, "--task", "walker_stand")
    assert done.code == 0, done.err
    ours, theirs = data.load(kept / "replay.pt"), data.load(back)
    steps = theirs.has_step()
    assert int(steps.sum()) == int(ours.has_step().sum())
    for name in ("obs", "action", "reward", "discount"):
        np.testing.assert_array_equal(
            ours.columns[name][ours.has_step()], theirs.columns[name][steps]
        )
    # Rewards of all tasks come from the physics; dm_control computes them there up to rounding.
    for task in ours.tasks:
        np.testing.assert_allclose(
            theirs.rewards(task)[steps], ours.rewards(task)[ours.has_step()], atol=1e-5
        )


def test_imported_episodes_can_be_learned_from(kept, tmp_path, run_main, cli):
    run_main(exorl.main, "export", kept, tmp_path / "out")
    run_main(exorl.main, "import", tmp_path / "out", tmp_path / "back.pt", "--task", "walker_stand")
    words = (
        "agent=ddpg",
        "task=walker_run",
        "data=relabelled",
        f"data.file={tmp_path / 'back.pt'}",
    )
    assert cli("finetune", *words).code == 0


def test_what_is_no_episode_is_one_line(tmp_path, run_main):
    empty = run_main(exorl.main, "import", tmp_path, tmp_path / "x.pt", "--task", "walker_run")
    assert empty.code == 2 and "no episode_<number>_<length>.npz" in empty.err
    (tmp_path / "episode_000000_10.npz").write_bytes(b"nonsense")
    bad = run_main(exorl.main, "import", tmp_path, tmp_path / "x.pt", "--task", "walker_run")
    assert bad.code == 2 and "it cannot be read as an episode (BadZipFile)" in bad.err
    assert "has no episode that can be read" in bad.err and not (tmp_path / "x.pt").exists()
    np.savez(tmp_path / "episode_000000_10.npz", observation=np.zeros((3, 24)))
    bad = run_main(exorl.main, "import", tmp_path, tmp_path / "x.pt", "--task", "walker_run")
    assert bad.code == 2 and "it has no action, reward, discount" in bad.err


@pytest.mark.parametrize("name", EPISODES)
def test_a_spoilt_episode_is_named_and_left_out(name, tmp_path, run_main):
    episode()(tmp_path / "episode_000000_3.npz")
    EPISODES[name](tmp_path / "episode_000001_3.npz")
    out = tmp_path / "x.pt"
    done = run_main(exorl.main, "import", tmp_path, out, "--task", "walker_run")
    assert done.code == LEFT_OUT and done.err.count("\n") == 1, done
    assert done.err.startswith(f"left out: {tmp_path / 'episode_000001_3.npz'}: ")
    assert done.out.startswith("1 episode, 3 steps: ") and len(data.load(out)) == 4

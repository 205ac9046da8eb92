"""Pictures show the simulation and leave it alone; films play; a run without them loads no
OpenGL."""

import argparse
import itertools
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from PIL import Image

import envs
from analysis import film
from envs import render
from envs.render import Renderer
from run.video import Recorder, name_skill, pace, write_film
from tests.kit.cli import rows
from utils import ROOT, UserError

av = pytest.importorskip("av", reason="PyAV is not installed")
SIZE = 48
WALKER, JACO = "walker_stand", "jaco_reach_top_left"


@pytest.fixture
def gl():
    """The backend in use; a machine without any skips what must draw."""
    try:
        return render.backend(render.wanted())
    except UserError as error:
        pytest.skip(f"no OpenGL library here: {error}")


def python(code: str, *args, **variables) -> subprocess.CompletedProcess:
    """A new interpreter in the repository, with these variables and without those that choose an
    OpenGL."""
    kept = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=ROOT,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def read(path: Path) -> tuple[np.ndarray, av.VideoStream]:
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        return np.stack(frames), container.streams.video[0]


def picture(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image)


def fresh(env) -> np.ndarray:
    with Renderer(SIZE, SIZE) as renderer:
        return renderer.frame(env)


# ------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("name", [WALKER, "quadruped_walk", JACO])
def test_a_frame_shows_something_and_changes_when_the_physics_does(gl, name):
    env = envs.make(name, seed=1)
    env.reset()
    with Renderer(SIZE, SIZE + 16) as renderer:
        first = renderer.frame(env)
        assert first.shape == (SIZE, SIZE + 16, 3) and first.dtype == np.uint8 and first.std() > 5
        np.testing.assert_array_equal(renderer.frame(env), first)
        for _ in range(10):
            env.step(np.ones(env.action_dim))
        assert (renderer.frame(env) != first).any(-1).mean() > 0.01


def test_frames_are_those_of_dm_controls_own_renderer_at_urlbs_cameras(gl):
    code = """
import sys, numpy as np, envs
from envs.render import Renderer
plain = {"shadow": False, "reflection": False}
for name, camera in (("walker_walk", 0), ("quadruped_run", 2), ("jaco_reach_top_right", "front_close")):
    env = envs.make(name, seed=3)
    env.reset()
    with Renderer(64, 80) as renderer:
        ours = renderer.frame(env).astype(int)
    theirs = env.unwrapped.physics.render(64, 80, camera_id=camera, render_flag_overrides=plain).astype(int)
    assert theirs.std() > 5, name
    print(name, abs(ours - theirs).max())
    env.unwrapped.physics.free()
"""
    done = python(code, MUJOCO_GL=gl)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["0"] * 3, done.stdout


@pytest.mark.parametrize("name", render.OFFSCREEN)
def test_a_backend_whose_library_is_missing_does_not_keep_anyone_from_training(name):
    code = """
import ctypes.util, os
ctypes.util.find_library = lambda name: None
import envs
print(envs.make("walker_stand", seed=1).reset().observation.shape, os.environ["MUJOCO_GL"])
"""
    done = python(code, MUJOCO_GL=name)
    assert (done.returncode, done.stdout) == (0, f"(24,) {name}\n"), done.stderr


@pytest.mark.parametrize("name, steps", [(WALKER, 60), (JACO, 25)])
def test_drawing_leaves_the_simulation_bit_for_bit_as_it_is(gl, name, steps):
    seen, unseen = envs.make(name, seed=4), envs.make(name, seed=4)
    actions = np.random.RandomState(0).uniform(-1, 1, (steps, seen.action_dim))
    with Renderer(SIZE, SIZE) as renderer:
        for _ in range(2):
            np.testing.assert_array_equal(seen.reset().observation, unseen.reset().observation)
            for action in actions:
                renderer.frame(seen)
                ours, theirs = seen.step(action), unseen.step(action)
                assert ours.reward == theirs.reward
                np.testing.assert_array_equal(ours.observation, theirs.observation)


def pendulum(seed):
    from dm_control import suite

    return suite.load("pendulum", "swingup", task_kwargs={"random": seed})


@pytest.mark.parametrize("name", [WALKER, JACO, f"{__name__}:pendulum"])
def test_the_renderer_follows_reset_and_seed_to_the_new_state_and_model(gl, name):
    env = envs.make(name, seed=1)
    with Renderer(SIZE, SIZE) as renderer:
        env.reset()
        pictures = [renderer.frame(env)]
        env.reset()
        pictures.append(renderer.frame(env))
        np.testing.assert_array_equal(pictures[-1], fresh(env))
        env.seed(2)  # the pendulum is built anew here, jaco is compiled anew at the reset
        env.reset()
        pictures.append(renderer.frame(env))
        np.testing.assert_array_equal(pictures[-1], fresh(env))
        env.seed(1)
        env.reset()
        np.testing.assert_array_equal(renderer.frame(env), pictures[0])
    assert all((a != b).any() for a, b in itertools.pairwise(pictures))


def test_two_renderers_and_two_environments_may_take_turns(gl):
    walker, quadruped = envs.make(WALKER, seed=1), envs.make("quadruped_walk", seed=1)
    walker.reset(), quadruped.reset()
    expected = fresh(walker), fresh(quadruped)
    with Renderer(SIZE, SIZE) as one, Renderer(SIZE, SIZE) as other:
        for env, picture in zip((walker, quadruped), expected):
            for renderer in (one, other, one):
                np.testing.assert_array_equal(renderer.frame(env), picture)
        other.close()
        np.testing.assert_array_equal(one.frame(walker), expected[0])
        np.testing.assert_array_equal(other.frame(walker), expected[0])  # opens again


@pytest.mark.parametrize("name", render.OFFSCREEN)
def test_a_renderer_that_nobody_closed_ends_without_a_word(name):
    code = """
import weakref, envs
from envs.render import Renderer
weakref.finalize(Renderer, int)  # whoever registers an exit handler first runs last
env = envs.make("walker_stand", seed=1)
env.reset()
renderer = Renderer(32, 32)
print(renderer.frame(env).shape, renderer._gl.__class__.__module__)
"""
    done = python(code, MUJOCO_GL=name)
    if "UserError: cannot draw" in done.stderr:
        pytest.skip(f"no {name} library here")
    assert (done.returncode, done.stderr) == (
        0,
        "",
    ) and done.stdout == f"(32, 32, 3) mujoco.{name}\n"


# ------------------------------------------------------------------------------------------ backend


@pytest.mark.parametrize(
    "value, names",
    [
        ("egl", ("egl",)),
        ("OSMesa", ("osmesa",)),
        ("glfw", ("glfw",)),
        ("disable", render.OFFSCREEN),
        ("", render.OFFSCREEN),
    ],
)
def test_mujoco_gl_decides_the_backend_if_it_names_one(monkeypatch, value, names):
    monkeypatch.setenv("MUJOCO_GL", value)
    assert render.wanted() == names


def test_the_first_backend_that_works_is_taken(gl):
    assert render.backend.__wrapped__(("no_such_backend", gl)) == gl


def test_without_any_backend_one_line_names_the_packages(monkeypatch):
    # Both of MuJoCo's offscreen modules refuse another platform.
    monkeypatch.setenv("PYOPENGL_PLATFORM", "none")
    with pytest.raises(UserError) as error:
        render.backend.__wrapped__(render.OFFSCREEN)
    line = str(error.value)
    assert (
        "\n" not in line and "libegl1 libopengl0 libgl1-mesa-dri" in line and "libosmesa6" in line
    )
    assert "egl (" in line and "osmesa (" in line


def test_a_broken_egl_falls_back_to_osmesa_or_says_so(monkeypatch):
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "999")
    try:
        assert render.backend.__wrapped__(render.OFFSCREEN) == "osmesa"
    except UserError as error:
        assert "egl (" in str(error) and "libosmesa6" in str(error)


def test_a_states_only_run_loads_no_opengl(tmp_path):
    code = """
import runpy, sys
runpy.run_path("pretrain.py", run_name="__main__")
print("loaded:", [m for m in ("OpenGL", "mujoco.egl", "mujoco.osmesa", "av") if m in sys.modules])
"""
    done = python(
        code, "preset=smoke", "num_train_frames=40", "snapshots=[]", f"run_root={tmp_path}"
    )
    assert done.returncode == 0 and done.stdout.endswith("loaded: []\n"), done.stderr


# ------------------------------------------------------------------------------- other environments


class Painter(gymnasium.Env):
    """Draws its own pictures, twice as wide as high: red, and green after a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, seed=0, render_mode="rgb_array"):
        self.render_mode, self.channel = render_mode, 0

    def reset(self, *, seed=None, options=None):
        self.channel = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.channel = 1
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self):
        picture = np.zeros((20, 40, 3), np.uint8)
        picture[..., self.channel] = 200
        return picture


def blind(seed):
    return Painter(seed, render_mode=None)


def test_a_gymnasium_environment_draws_itself_and_is_fitted_whole():
    env = envs.make(f"{__name__}:Painter", seed=1)
    env.reset()
    before = fresh(env)
    env.step([0.0])
    after = fresh(env)
    for channel, picture in enumerate((before, after)):
        assert picture.shape == (SIZE, SIZE, 3)
        assert (picture[SIZE // 2, :, channel] == 200).all() and (
            picture[0] == 0
        ).all()  # bars above and below


def test_an_environment_that_cannot_be_drawn_says_what_would_work():
    env = envs.make(f"{__name__}:blind", seed=1)
    env.reset()
    with pytest.raises(UserError, match='made with render_mode="rgb_array"'):
        fresh(env)


# -------------------------------------------------------------------------------------------- films


@pytest.mark.parametrize(
    "name, repeat, expected",
    [
        (WALKER, 1, (2, 20)),
        (WALKER, 2, (1, 20)),
        (JACO, 1, (1, 25)),
        ("quadruped_walk", 1, (2, 25)),
        (f"{__name__}:Painter", 1, (2, 25)),
        ("dummy", 1, (1, 20)),
    ],
)
def test_the_pace_of_a_film_is_that_of_the_simulation(name, repeat, expected):
    assert pace(envs.make(name, seed=1), repeat) == expected


def record(path: Path, skill, steps=11, every=3, size=SIZE, reward=1.0):
    env = envs.make(f"{__name__}:Painter", seed=1)
    env.reset()
    with Recorder(path, size=size, fps=12, every=every) as recorder:
        for _ in range(steps):
            recorder.add(env, np.asarray(skill, np.float32), reward)


@pytest.mark.parametrize("size", [64, 65])
def test_a_film_has_its_frames_size_and_rate_and_a_format_that_players_know(tmp_path, size):
    record(tmp_path / "new/film.mp4", [], size=size)
    frames, stream = read(tmp_path / "new/film.mp4")
    # Steps 1, 4, 7, 10; sides are even.
    assert frames.shape == (4, size + size % 2, size + size % 2, 3)
    assert (stream.codec_context.name, stream.pix_fmt, stream.average_rate) == (
        "h264",
        "yuv420p",
        12,
    )
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["film.mp4"]


@pytest.mark.skipif(
    not sys.platform.startswith("linux"),
    reason="glibc fills fresh memory with what a variable says",
)
def test_the_same_frames_are_the_same_film_whatever_was_in_the_memory_before(tmp_path):
    code = """
import sys
from pathlib import Path
import numpy as np
from run.video import write_film
for side in (66, 98, 130):
    noise = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    write_film(Path(sys.argv[1], f"{side}.mp4"), [np.roll(noise, step, 0) for step in range(6)], 20)
"""
    films = []
    for fill in ("1", "85", "170"):
        (tmp_path / fill).mkdir()
        done = python(code, tmp_path / fill, MALLOC_PERTURB_=fill)
        assert done.returncode == 0, done.stderr
        films.append([film.read_bytes() for film in sorted((tmp_path / fill).iterdir())])
    assert len(films[0]) == 3 and films[0] == films[1] == films[2]


def test_a_recorder_films_the_simulation(gl, tmp_path):
    env = envs.make(WALKER, seed=1)
    env.reset()
    with (
        Recorder(tmp_path / "film.mp4", size=64, fps=20, every=1) as recorder,
        Renderer(64, 64) as renderer,
    ):
        for _ in range(5):
            recorder.add(env, np.zeros(0), env.step(np.ones(6)).reward)
        last = renderer.frame(env)
    middle = read(tmp_path / "film.mp4")[0][-1][20:44].astype(int)  # between the words
    assert abs(middle - last[20:44]).mean() < 6


def test_skill_step_and_return_are_written_into_the_frame(tmp_path):
    kinds = {
        "none": [],
        "three": np.eye(16)[3],
        "four": np.eye(16)[4],
        "vector": [0.5, -0.2, 0.1, 0.7],
    }
    films = {}
    for name, skill in kinds.items():
        record(tmp_path / f"{name}.mp4", skill, size=128, steps=2, every=1)
        films[name] = read(tmp_path / f"{name}.mp4")[0].astype(int)
    top = {name: frames[0, :20] for name, frames in films.items()}
    assert top["none"].max() < 40 and all(
        top[name].max() > 200 for name in ("three", "four", "vector")
    )
    assert (
        abs(top["three"] - top["four"]).max() > 60 and abs(top["three"] - top["vector"]).max() > 60
    )
    # Step 1, return 1.0; step 2, return 2.0.
    assert abs(films["none"][0, -20:] - films["none"][1, -20:]).max() > 60


def test_a_skill_is_named_by_its_index_or_its_first_numbers():
    assert name_skill(np.zeros(0)) == "" and name_skill(np.eye(16)[11]) == "skill 11"
    assert name_skill(np.float32([0.51, -0.04, 2, 1])) == "z (0.5, 0.0, 2.0, ...)"
    assert name_skill(np.float32([-1, 0])) == "z (-1.0, 0.0)"


def test_an_interrupted_recording_leaves_the_older_film_and_nothing_else(tmp_path):
    path = tmp_path / "film.mp4"
    record(path, [])
    before = path.read_bytes()
    env = envs.make(f"{__name__}:Painter", seed=1)
    env.reset()
    with pytest.raises(KeyboardInterrupt), Recorder(path, size=32, fps=5, every=1) as recorder:
        recorder.add(env, np.zeros(0), 0.0)
        raise KeyboardInterrupt
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


def test_a_film_whose_frames_fail_half_way_is_not_written(tmp_path):
    def frames():
        yield np.zeros((32, 32, 3), np.uint8)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_film(tmp_path / "film.mp4", frames(), 5)
    assert not list(tmp_path.iterdir())


def test_no_steps_make_no_film_and_a_missing_encoder_one_line(tmp_path, monkeypatch):
    record(tmp_path / "film.mp4", [], steps=0)
    assert not list(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, "av", None)  # as if it were not installed
    with pytest.raises(UserError, match="pip install av"):
        Recorder(tmp_path / "film.mp4", size=32, fps=5, every=1)


# ------------------------------------------------------------------------------------- command line


def run_film(monkeypatch, capsys, *args) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["film", *map(str, args)])
    capsys.readouterr()
    try:
        film.main()
        return 0, capsys.readouterr().out
    except SystemExit as stop:
        return stop.code, capsys.readouterr().err


def snapshot(cli, agent="amped", **overrides) -> Path:
    assert (
        cli(
            "pretrain",
            f"agent={agent}",
            "variant=film",
            *(f"{k}={v}" for k, v in overrides.items()),
        ).code
        == 0
    )
    return cli.root / f"pretrain/walker/{agent}/film/seed_1/snapshots/snapshot_120.pt"


def test_every_skill_is_filmed_and_the_same_command_draws_the_same(
    gl, cli, tmp_path, monkeypatch, capsys
):
    command = ("skills", snapshot(cli, skill_dim=4), "--steps", 10, "--size", SIZE)
    done = subprocess.run(
        [sys.executable, "-m", "analysis.film", *map(str, command), "--out", tmp_path / "a"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    frames, stream = read(tmp_path / "a/skills.mp4")
    side = 2 * SIZE + film.GAP
    # Two by two; steps 0, 2, ... 10.
    assert frames.shape == (6, side, side, 3) and stream.average_rate == 20
    strip, pitch = picture(tmp_path / "a/filmstrip.png"), SIZE + film.GAP
    head, left = strip.shape[0] - 4 * pitch + film.GAP, strip.shape[1] - 9 * pitch + film.GAP
    cells = [
        [strip[head + r * pitch :, left + c * pitch :][:SIZE, :SIZE] for c in range(9)]
        for r in range(4)
    ]
    assert all((row[0] == cells[0][0]).all() for row in cells), "one and the same start"
    assert all((row[8] != row[0]).any() for row in cells) and strip[head:, :left].min() < 100
    code, out = run_film(monkeypatch, capsys, *command, "--out", tmp_path / "b")
    assert code == 0 and "filmstrip.png" in out and "skills.mp4" in out
    names = ["filmstrip.png", "sheet.jpg", "sheet.json", "skills.mp4"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "b").iterdir()) == names


def test_the_film_plays_the_episodes_of_the_runs_own_evaluation(gl, cli, tmp_path):
    path = snapshot(cli)
    # Preset=smoke evaluates 5 steps.
    takes = film.film_skills(
        argparse.Namespace(
            snapshot=path,
            out=tmp_path / "film",
            steps=5,
            seed=None,
            size=32,
            only=None,
            stills=True,
            env=None,
        )
    )
    logged = rows(path.parents[1] / "eval.csv")[-1]
    assert logged["frame"] == "120"
    assert [f"{take.total:.6g}" for take in takes.values()] == logged["returns"].split()
    assert all(len(take.frames) == 6 for take in takes.values()), "no picture that is not shown"
    assert [p.name for p in (tmp_path / "film").iterdir()] == ["filmstrip.png"]


def test_drawn_skills_no_skills_and_fine_tuned_tasks_are_filmed_too(
    gl, cli, tmp_path, monkeypatch, capsys
):
    assert cli("finetune", "agent=ddpg", "task=jaco_reach_top_right").code == 0
    scratch = next(cli.root.glob("finetune/jaco_reach_top_right/**/snapshot_80.pt"))
    heights = []
    for path, only in ((snapshot(cli, "cic"), ("--only", 3, 15)), (scratch, ())):
        code, out = run_film(
            monkeypatch,
            capsys,
            "skills",
            path,
            "--out",
            tmp_path / "film",
            "--stills",
            "--steps",
            8,
            "--size",
            SIZE,
            *only,
        )
        assert code == 0, out
        heights.append(len(picture(tmp_path / "film/filmstrip.png")))
    assert heights[0] - heights[1] == SIZE + film.GAP  # two draws; one row without skills


def test_wrong_arguments_end_in_one_line(cli, tmp_path, monkeypatch, capsys):
    path, taken = snapshot(cli), tmp_path / "file"
    taken.touch()
    for args, words in [
        ((tmp_path / "no.pt", "--out", tmp_path), "no snapshot at"),
        ((path, "--out", tmp_path, "--only", 16), "choose 0 to 15"),
        ((path, "--out", tmp_path, "--steps", 0), "'0' is not a whole number from 1"),
        ((path, "--out", taken), "give --out another place"),
    ]:
        code, err = run_film(monkeypatch, capsys, "skills", *args)
        assert code == 2 and words in err and err.splitlines()[-1].partition("error: ")[1]


def test_the_gallery_shows_every_task_and_jacos_brick_where_it_lies(gl):
    names = ["walker_flip", "quadruped_jump", "jaco_reach_top_left", "jaco_reach_bottom_right"]
    sheet = film.gallery(names, 96, 2).astype(int)
    assert sheet.shape == (96, 4 * 96 + 3 * film.GAP, 3)
    pictures = [sheet[:, i * (96 + film.GAP) :][:, :96] for i in range(4)]
    assert all(picture.std() > 10 for picture in pictures)
    places = []
    for picture in pictures[2:]:
        red = np.argwhere((picture[..., 0] > 120) & (picture[..., 1:] < 60).all(-1))
        assert len(red) > 10
        places.append(red.mean(0))
    (top, left), (bottom, right) = places
    assert top < bottom and left < 48 < right
    np.testing.assert_array_equal(film.gallery(names[:1], 96, 2), film.gallery(names[:1], 96, 2))


def test_poses_of_the_gallery_are_of_tasks_that_exist_and_respect_the_joints():
    assert set(film.POSES) == {name for name, domain in envs.TASKS.items() if domain != "jaco"}
    for name, joints in film.POSES.items():
        env = envs.make(name, seed=1)
        film.pose(env.unwrapped.physics, joints)
        model, data = env.unwrapped.physics.model.ptr, env.unwrapped.physics.data.ptr
        for i in np.flatnonzero(model.jnt_limited):
            low, high = model.jnt_range[i]
            assert low - 1e-6 <= data.qpos[model.jnt_qposadr[i]] <= high + 1e-6, (
                name,
                model.joint(i).name,
            )


# ----------------------------------------------------------------------------------------- in a run


def test_a_run_films_its_evaluations_and_its_numbers_stay(gl, cli):
    args = (
        "finetune",
        "agent=ddpg",
        "task=walker_run",
        "num_eval_episodes=2",
        "num_train_frames=40",
    )
    assert cli(*args, "variant=plain").code == 0
    done = cli(*args, "variant=filmed", "save_video=true", "video_size=32")
    assert done.code == 0, done.err
    plain, filmed = (
        cli.root / f"finetune/walker_run/ddpg/{name}/none/seed_1" for name in ("plain", "filmed")
    )
    assert sorted(p.name for p in (filmed / "videos").iterdir()) == [
        "eval_0_0.mp4",
        "eval_40_0.mp4",
    ]
    frames, _ = read(filmed / "videos/eval_40_0.mp4")
    assert frames.shape == (3, 32, 32, 3)  # five steps, every second one
    assert rows(plain / "eval.csv") == rows(filmed / "eval.csv") and not (plain / "videos").exists()


def test_videos_do_not_make_another_variant_and_are_refused_side_by_side(cli):
    assert cli("finetune", "agent=ddpg", "task=walker_run").code == 0
    assert (
        "is finished; nothing to do"
        in cli("finetune", "agent=ddpg", "task=walker_run", "save_video=true").out
    )
    refused = cli("pretrain", "domain=tree_maze", "save_video=true")
    assert refused.code == 2 and "films one episode at a time" in refused.err


# ------------------------------------------------------------------------ other people's environments


def test_a_gymnasium_environment_that_can_draw_is_filmed_and_in_the_gallery(
    cli, run_main, tmp_path
):
    pytest.importorskip("pygame", reason="Pendulum draws with pygame")
    words = ("domain.primal_task=gymnasium:Pendulum-v1", "num_train_frames=20", "snapshots=[]")
    assert cli("pretrain", "agent=diayn", *words, "variant=p", "skill_dim=2").code == 0
    run = cli.root / "pretrain/walker/diayn/p/seed_1"
    out = tmp_path / "film"
    done = run_main(film.main, "skills", run, "--out", out, "--size", "32", "--steps", "6")
    assert done.code == 0 and (out / "skills.mp4").exists(), done.err
    shown = tmp_path / "gallery.png"
    words = ("--env", "gymnasium:Pendulum-v1", "walker_run", "--out", shown, "--size", "32")
    assert run_main(film.main, "gallery", *words).code == 0 and shown.exists()


def test_one_that_cannot_draw_gets_one_line(run_main, tmp_path, monkeypatch):
    """What gymnasium says without pygame is a traceback of forty lines."""
    monkeypatch.setitem(sys.modules, "pygame", None)
    words = ("--env", "gymnasium:Pendulum-v1", "--out", tmp_path / "x.png")
    told = run_main(film.main, "gallery", *words)
    assert told.code == 2 and told.err.count("\n") == 1
    assert "Pendulum-v1 cannot be drawn: pygame is not installed" in told.err

"""The dashboard: its numbers, and what happens to it under a reader's hands, in a true browser."""

import json
import shutil
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest

from agent import zoo
from analysis import dashboard, film, serve
from tests.kit.browser import browser, needs_browser

PIXELS = "document.querySelector(%s).toDataURL()"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two settings of a task with two seeds each, one of them unfinished; a maze; a film."""
    place = tmp_path_factory.mktemp("dash") / "runs"
    for agent, seed, last in (("ddpg", 1, 40), ("ddpg", 2, 40), ("cic", 1, 40), ("cic", 2, 20)):
        run = place / f"finetune/walker_run/{agent}/cpu/none/seed_{seed}"
        run.mkdir(parents=True)
        rows = [f"{frame},{10 * seed + frame},0" for frame in range(0, last + 1, 20)]
        (run / "eval.csv").write_text("\n".join(["frame,return_mean,return_std", *rows]) + "\n")
        (run / "config.yaml").write_text("device: cpu\nnum_threads: 1\n")
    snapshots = place / "pretrain/tree_maze/amped/cpu/seed_1/snapshots"
    snapshots.mkdir(parents=True)
    shutil.copy(zoo.resolve("zoo:tree_maze/amped"), snapshots / "snapshot_250000.pt")
    return place


@pytest.fixture(scope="module")
def filmed(root):
    sheet = film.tile([np.full((32, 32, 3), 20 * i, np.uint8) for i in range(6)], 3)
    (root / "films").mkdir()
    film.Image.fromarray(sheet).save(root / "films/sheet.jpg", quality=95)
    told = {
        "title": "a film",
        "names": ["skill 0", "skill 1"],
        "steps": [0, 5, 10],
        "size": 32,
        "gap": 2,
    }
    (root / "films/sheet.json").write_text(json.dumps(told))
    return root


def test_curves_are_means_over_seeds_with_intervals_and_what_is_going_is_told(root):
    curves = {each["agent"]: each for each in dashboard.curves(root) if each["on"] == "walker_run"}
    assert curves["ddpg"]["x"] == [0, 20, 40] and curves["ddpg"]["mean"] == [15.0, 35.0, 55.0]
    assert curves["ddpg"]["low"] == [10.0, 30.0, 50.0] and curves["ddpg"]["high"][0] == 20.0
    # The second seed has come to frame 20; from there on there is one, without an interval.
    assert curves["cic"]["mean"] == [15.0, 35.0, 50.0]
    assert curves["cic"]["low"][2] == curves["cic"]["high"][2] == 50.0
    assert "unfinished" in curves["cic"]["told"] and curves["cic"]["measure"] == "return"


def test_a_film_leaves_a_sheet_for_the_sliders(run_main, tmp_path):
    words = ("skills", "zoo:tree_maze/diayn", "--out", tmp_path, "--size", "16", "--steps", "30")
    done = run_main(film.main, *words)
    assert done.code == 0, done.err
    (found,) = dashboard.films(tmp_path)
    assert len(found["names"]) == 6 and found["steps"][0] == 0 and len(found["steps"]) <= 24
    assert found["sheet"].startswith("data:image/jpeg;base64,")


@needs_browser
def test_filters_toggles_and_sliders_do_what_they_say_at_either_width(filmed, tmp_path):
    out = tmp_path / "page.html"
    out.write_text(
        serve.html.page("runs", "lead", {"Your runs": dashboard.section(filmed)}, "foot")
    )
    url = out.as_uri()
    with browser(tmp_path) as seen:
        for width in (1280, 390):
            seen.open(url, width=width)
            assert seen.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
            count = "document.querySelectorAll('.charts figure').length"
            legend = (
                "[...document.querySelectorAll('.legend li')].map(each => each.innerText).join()"
            )
            assert seen.evaluate(count) == 1 and "ddpg" in seen.evaluate(legend)
            # A filter leaves one setting, and the address remembers it.
            seen.evaluate(
                "(() => { const each = document.querySelector('select[name=agent]');"
                "each.value = 'cic'; each.dispatchEvent(new Event('change')); })(), 0"
            )
            assert "ddpg" not in seen.evaluate(legend) and "cic" in seen.evaluate(legend)
            assert "agent=cic" in seen.evaluate("location.hash")
            # A toggle takes a skill out of the maze, and puts it back.
            maze = PIXELS % "'figure.maze canvas'"
            whole = seen.evaluate(maze)
            button = "document.querySelector('.toggles button')"
            seen.evaluate(f"{button}.click(), 0")
            assert seen.evaluate(f"{button}.getAttribute('aria-pressed')") == "false"
            assert seen.evaluate(maze) != whole
            seen.evaluate(f"{button}.click(), 0")
            assert seen.evaluate(maze) == whole
            # Sliders choose a picture of the sheet.
            film_canvas, before = PIXELS % "'figure.film canvas'", None
            for name, value, words in (
                ("time", 2, "skill 0, step 10"),
                ("skill", 1, "skill 1, step 10"),
            ):
                seen.evaluate(
                    f"(() => {{ const each = document.querySelector('input[name={name}]');"
                    f"each.value = {value}; each.dispatchEvent(new Event('input')); }})(), 0"
                )
                assert (
                    seen.evaluate("document.querySelector('figure.film output').innerText") == words
                )
                now = seen.evaluate(film_canvas)
                assert now != before
                before = now
            assert seen.did(url) == []


@needs_browser
def test_a_served_page_follows_the_runs_and_answers_nobody_else(root, tmp_path, monkeypatch):
    monkeypatch.setattr(serve, "LOOK", 200)
    place = tmp_path / "runs"
    shutil.copytree(root / "finetune", place / "finetune")
    with serve.server(place, 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        assert listening.server_address[0] == "127.0.0.1"
        url = f"http://127.0.0.1:{listening.server_address[1]}/"
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(url, headers={"Host": "example.org"}))
        with browser(tmp_path) as seen:
            seen.open(url)
            told = "[...document.querySelectorAll('.legend li')].length"
            assert seen.evaluate(told) == 2
            new = place / "finetune/walker_run/rnd/cpu/none/seed_1"
            shutil.copytree(place / "finetune/walker_run/ddpg/cpu/none/seed_1", new)
            deadline = time.monotonic() + 20
            while seen.evaluate(told) < 3 and time.monotonic() < deadline:
                seen.settle()
            assert seen.evaluate(told) == 3
        listening.shutdown()

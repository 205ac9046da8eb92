"""A report is made of files that somebody else may have written: they are shown, never obeyed."""

import csv
import os
import re
import shutil

import pytest

from analysis import html, report
from analysis.collect import VERSIONS
from tests.kit.browser import TOUCH, browser, needs_browser
from tests.kit.page_attacks import NOWHERE, PAYLOADS, alive
from utils import RESULTS, ROOT

PICTURE = RESULTS / "maze" / "fig_tree6.png"
SEED = "pretrain/tree_maze/amped/smoke/seed_1"
NAMES = ["<img src=x onerror=alert(1)>", "[click](javascript:alert(1))", "\x1b[31m\nerror: fake"]


# ------------------------------------------------------------------------------------------- pieces


@pytest.mark.parametrize("attack", PAYLOADS)
def test_no_piece_of_a_page_lets_a_text_become_markup(attack):
    text = PAYLOADS[attack]
    pieces = [
        html.prose(text),
        html.prose(f"| a | b |\n|---|---:|\n| {text} | `{text}` |"),
        html.prose(f"- {text}\n\n> {text}"),
        html.command(text, text),
        html.fold(text, ""),
        html.bullets([text]),
        report.note(text),
        report.heading(text, text),
        html.picture(PICTURE, text),
        html.page(text, text, {text: ""}, text),
    ]
    assert [line for piece in pieces for line in alive(piece)] == []


def test_a_report_keeps_tables_code_and_emphasis():
    made = html.prose("**b** `c`\n\n| a | n |\n|---|---:|\n| x \\| y | 1 < 2 |")
    for part in (
        "<strong>b</strong>",
        "<code>c</code>",
        "<td>x | y</td>",
        '<td class="right">1 &lt; 2',
    ):
        assert part in made
    assert html.prose("<u>-11.5</u> <u>x</u>") == "<p><u>-11.5</u> &lt;u&gt;x&lt;/u&gt;</p>"


def test_lists_nested_beyond_measure_are_shown_as_they_are():
    assert "- x" in html.prose("".join(f"{'    ' * i}- x\n" for i in range(3000)))


# -------------------------------------------------------------------------------------------- files


@pytest.fixture
def picture(tmp_path):
    """picture(name, content=None): the path of a file in a run directory below run_root."""

    def make(name, content=None):
        path = tmp_path / "runs" / SEED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)
        return path

    make.root = tmp_path / "runs"
    return make


def link(picture, name, secret):
    picture(name).symlink_to(secret)


def linked_directory(picture, name, secret):
    run = picture(name).parent
    run.rmdir()
    run.symlink_to(secret.parent)


def bomb(picture, name, secret):
    huge = (65_535).to_bytes(4, "big")
    picture(name, PICTURE.read_bytes()[:16] + huge + huge + PICTURE.read_bytes()[24:])


TRAPS = {
    "a link": link,
    "a link to nothing": lambda picture, name, _: picture(name).symlink_to("nothing"),
    "a link to itself": lambda picture, name, _: picture(name).symlink_to(name),
    "a linked directory": linked_directory,
    "a directory": lambda picture, name, _: picture(f"{name}/x").parent.mkdir(exist_ok=True),
    "a pipe": lambda picture, name, _: os.mkfifo(picture(name)),
    "empty": lambda picture, name, _: picture(name, b""),
    "a page": lambda picture, name, _: picture(name, b"<html><script>alert(1)</script>"),
    "a drawing with a script": lambda picture, name, _: picture(name, b"<svg onload='alert(1)'/>"),
    "a hidden secret": lambda picture, name, secret: picture(name, secret.read_bytes()),
    "too large": lambda picture, name, _: os.truncate(picture(name, PICTURE.read_bytes()), 10**9),
}


@pytest.mark.parametrize("name", ["skills_40.png", "eval_40_0.mp4"])
@pytest.mark.parametrize("trap", TRAPS)
def test_only_a_true_picture_of_the_run_itself_comes_into_the_page(
    trap, name, picture, tmp_path, capsys
):
    secret = tmp_path / "private" / name
    secret.parent.mkdir()
    secret.write_bytes(b"the secret of another directory")
    TRAPS[trap](picture, name, secret)
    made = report.skills_section(picture.root)
    said = capsys.readouterr().err
    assert said.count("\n") <= 1
    if name.endswith(
        "png"
    ):  # a film may also be of those that are named below the others, or below a link
        assert str(picture.root / SEED / name) in said
    captions = re.findall("<figcaption>.*?</figcaption>", made)  # the shipped gallery may be there
    assert "<video" not in made and not [line for line in captions if "seed_1" in line]
    assert alive(made) == []


def test_a_small_picture_that_unpacks_to_gigabytes_stays_out(picture, capsys):
    bomb(picture, "skills_40.png", None)
    assert "seed_1, frame" not in report.skills_section(picture.root)
    assert "pixels" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["skills_abc.png", "skills_.png", f"skills_{'9' * 200}.png", "skills_-1.png"]
)
def test_a_picture_of_no_frame_is_none_of_a_run(name, picture):
    picture(name, PICTURE.read_bytes())
    picture("skills_40.png", PICTURE.read_bytes())
    assert report.skills_section(picture.root).count("<img") == 1


@pytest.mark.parametrize(
    "content", [b"\xff\xfe binary", b"x" * 2_000_000, None], ids=["no text", "too long", "a link"]
)
def test_a_note_that_is_none_is_left_out(content, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(report, "of_kind", lambda *kinds: ["fig_tree6"])
    figures = tmp_path / "figures"
    figures.mkdir()
    shutil.copy(PICTURE, figures / "fig_tree6.png")
    note = figures / "fig_tree6.md"
    (tmp_path / "secret.md").write_text("# x\nthe secret")
    note.symlink_to(ROOT / "README.md") if content is None else note.write_bytes(content)
    made = report.maze_section(tmp_path)
    assert "base64" in made and "<details>" not in made
    assert capsys.readouterr().err.count("left out: ") == 1


# --------------------------------------------------------------------------------------------- page


def poisoned(root):
    """A run_root in which every place that a report shows holds every attack."""
    columns = ["phase", "domain", "task", "agent", "variant", "skills", "seed", "frame", "score"]
    columns += ["wall_seconds", "commit", "dirty", "device", *VERSIONS, "config_hash"]
    sound = dict.fromkeys(columns, "1") | {"phase": "finetune", "dirty": "False"}
    with (root / "results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        for attack in PAYLOADS.values():
            for name in columns:
                if name not in ("frame", "score", "wall_seconds", "seed"):
                    table.writerow(sound | {name: attack.replace("\x00", "")})
    for name in NAMES:
        run = root / "pretrain" / "tree_maze" / name / name / "seed_1"
        (run / "videos").mkdir(parents=True)
        shutil.copy(PICTURE, run / "skills_40.png")
        (run / "videos" / f"{name}.mp4").write_bytes(b"\0\0\0\x18ftypmp42")
    (root / "figures").mkdir()
    shutil.copy(PICTURE, root / "figures" / "fig_tree6.png")
    attacks = "\n\n".join(PAYLOADS.values())
    cells = "".join(f"\n| {text} |" for text in PAYLOADS.values() if "\n" not in text)
    (root / "figures" / "fig_tree6.md").write_text(f"# x\n\n{attacks}\n\n| a |\n|---|{cells}\n")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("page") / "<b>runs"
    root.mkdir()
    poisoned(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            report, "of_kind", lambda *kinds: ["smoke"] if "scores" in kinds else ["fig_tree6"]
        )
        return report.make([f"run_root={root}"], root.parent / "out")


def test_a_page_of_poisoned_files_shows_them_and_holds_nothing_alive(page):
    text = page.read_text()
    assert alive(text) == []
    for attack in ("script", "onload", "onerror", "link", "markdown link"):
        assert html.escape(PAYLOADS[attack]).replace("&quot;", '"') in text.replace(
            "&quot;", '"'
        ), attack


@needs_browser
def test_a_browser_does_nothing_but_show_a_page_of_poisoned_files(page, tmp_path):
    """No dialog, no request, no frame, no word on the console, not even when everything is clicked."""
    with browser(tmp_path) as seen:
        seen.open(page.as_uri())
        seen.evaluate(TOUCH)
        seen.settle()
        assert seen.did(f"{page.as_uri()}") == []
        assert seen.evaluate("document.title") == "AMPED: report"
        assert seen.evaluate("[...document.images].every(each => each.naturalWidth > 0)")
        assert seen.evaluate("document.querySelectorAll('iframe, object, svg').length") == 0
        assert seen.evaluate("document.scripts.length") == 1  # the page's own


@needs_browser
def test_the_policy_holds_even_where_markup_should_come_in(tmp_path):
    """The second wall: the same attacks, unescaped. Without the policy the browser obeys them. (No
    policy forbids a page to send its reader elsewhere, so "refresh" has only the first wall.)"""
    attacks = [text for name, text in PAYLOADS.items() if name != "refresh"]
    page = html.page("t", "lead", {"s": "\n".join(attacks)}, "foot")
    done = {}
    with browser(tmp_path) as seen:
        for wall in ("Content-Security-Policy", "none"):
            path = tmp_path / f"{wall}.html"
            path.write_text(page.replace("Content-Security-Policy", wall))
            seen.open(path.as_uri())
            seen.evaluate(TOUCH)
            seen.settle()
            done[wall] = [
                line
                for line in seen.did(path.as_uri())
                if line.startswith(("request", "Page.java"))
            ]
    assert any("Dialog" in line for line in done["none"])
    assert any(NOWHERE in line for line in done["none"])
    assert done["Content-Security-Policy"] == []

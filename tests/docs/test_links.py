"""Links, pictures and paths in README, docs/ and the other pages lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.kit.pages import OTHERS, PAGES, name, prose
from utils import ROOT

LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")
ROOMS = "agent|run|envs|experiment|analysis|benchmarks|tests|configs|results|notebooks|docs"
MENTIONED = re.compile(rf"(?<![\w./<-])(?:{ROOMS})/[\w./*<>-]*[\w*>/]")


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_every_link_of_a_page_leads_somewhere(page):
    assert not broken(page)


def test_every_page_of_docs_is_linked_from_its_index_and_from_the_front_page():
    for index, below in ((ROOT / "docs/README.md", ""), (ROOT / "README.md", "docs/")):
        linked = {link.partition("#")[0] for link in LINK.findall(prose(index))}
        assert {f"{below}{page.name}" for page in (ROOT / "docs").glob("*.md")} <= linked | {
            "README.md"
        }


@pytest.mark.parametrize("page", [*PAGES, *OTHERS], ids=name)
def test_every_file_that_a_page_mentions_exists(page):
    """`<name>` and `*` stand for at least one; two pages name files that their reader writes."""
    if name(page) in ("docs/extending.md", "docs/your-table.md"):
        return
    for path in MENTIONED.findall(prose(page)):
        assert list(ROOT.glob(re.sub(r"<\w+>", "*", path))), path


def test_a_missing_file_and_a_missing_heading_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Title, *with* signs\n[a](#title-with-signs) [b](#other) [c](none.md)\n")
    assert broken(page) == ["#other", "none.md"]

"""A score with its interval stands in README and docs only if a page of results/ has the same, which a
command wrote from rows."""

import re

import pytest

from utils import ROOT

INTERVAL = re.compile(r"\d\.\d{3} \[\d\.\d{3}, \d\.\d{3}\]")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def intervals(path) -> set[str]:
    return set(INTERVAL.findall(path.read_text()))


@pytest.mark.parametrize("page", [p for p in PAGES if intervals(p)], ids=lambda page: page.name)
def test_every_score_with_an_interval_is_one_of_the_results(page):
    measured = set().union(*map(intervals, (ROOT / "results").rglob("*.md")))
    assert len(measured) > 50
    assert intervals(page) <= measured, sorted(intervals(page) - measured)

"""README and docs/ as text, prose and code blocks apart."""

from __future__ import annotations

import re
from pathlib import Path

from utils import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = [ROOT / f"{name}.md" for name in ("CONTRIBUTING", "SECURITY", "CHANGELOG")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", page.read_text())


def shell_blocks(page: Path) -> list[str]:
    """Code blocks without a language: what a user types."""
    return [text for language, text in FENCE.findall(page.read_text()) if not language]

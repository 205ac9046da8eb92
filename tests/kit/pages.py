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


def section(title: str) -> str:
    """Of docs/extending.md."""
    return (ROOT / "docs/extending.md").read_text().split(f"## {title}\n")[1].split("\n## ")[0]


def named_files(text: str) -> dict[str, str]:
    """`path` on a line of its own, followed by a code block."""
    return dict(re.findall(r"^`([\w./]+)`\n```\w+\n(.*?)```", text, re.M | re.S))


def write(files: dict[str, str], directory: Path) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)

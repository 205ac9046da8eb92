"""Pieces of text that several tables and pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from run.cli.console import printable


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right_from: int | None = None
) -> str:
    """A Markdown table. Columns from number `right_from` on are set to the right, as numbers are;
    a | inside a cell is escaped, and a cell is one line."""
    left = len(head) if right_from is None else right_from
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    lines = [head, rule, *rows]
    return "\n".join(
        "| " + " | ".join(printable(cell).replace("|", r"\|") for cell in line) + " |"
        for line in lines
    )


def markdown_records(rows: Sequence[dict[str, str]]) -> str:
    """The same of rows that all have the same keys, which become the head."""
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows])


def short_commit(commit: object, dirty: object) -> str:
    """`1a2b3c4`, or `1a2b3c4 (changed)` of a run whose files were not those of the commit."""
    return f"{str(commit)[:7]}{' (changed)' if str(dirty) == 'True' else ''}"

"""Tables that other commands wrote, line by line as their schema has them."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from records import Record, wrong
from run.cli.console import leave_out
from run.files import Damaged, read_text


def read_table(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and lines of a CSV, cells as texts; Damaged where it is none. A line that is too
    long has its rest under None, one that is too short has None in it."""
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        lines: list[dict[str, Any]] = list(reader)
    except csv.Error as error:
        raise Damaged(f"{path.name} cannot be read ({error})") from error
    return list(reader.fieldnames or ()), lines


def fitting_lines(
    path: Path, lines: list[dict[str, Any]], schema: type[Record]
) -> list[dict[str, Any]]:
    """Those that fit, as values; one that does not is named and left out."""
    rows = []
    for count, line in enumerate(lines, 2):
        if problem := "it is too long" if None in line else wrong(schema, line):
            leave_out(f"{path}, line {count}: {problem}")
        else:
            rows.append(schema.model_validate(line).model_dump(include=set(schema.model_fields)))
    return rows

"""A CRC-32 over a whole torch file, kept as the comment of its zip archive: readers pass over it, one flipped bit or a
missing end does not pass it.

torch writes a CRC-32 for each record and never looks at it; nor would that see a flag in a header that hides a tensor.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

MARK = b"crc32:"
LENGTH = len(MARK) + 8  # of the comment
CHUNK = 1 << 20


class Damaged(Exception):
    """The bytes are not those that were written."""


def _tail(crc: int) -> bytes:
    """The last bytes of a sealed file: the length of the comment, which torch leaves at 0, and the comment."""
    return LENGTH.to_bytes(2, "little") + MARK + b"%08x" % crc


class Sealing:
    """A file for torch.save that sums what is written, and keeps the reason of a failure, which torch does not."""

    def __init__(self, file: BinaryIO):
        self.file, self.crc = file, 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self.file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.crc = zlib.crc32(data, self.crc)
        return len(data)

    def flush(self) -> None:
        self.file.flush()

    def seal(self) -> None:
        """After the last write."""
        self.file.seek(-2, os.SEEK_END)
        self.file.write(_tail(self.crc))


def verify(path: Path) -> None:
    """Raises Damaged unless the bytes are those that were written. A file from before the seal has only the checksums
    of its records, which are checked instead."""
    with path.open("rb") as file:
        body = file.seek(0, os.SEEK_END) - 2 - LENGTH
        file.seek(max(body, 0))
        tail = file.read()
        if tail[2 : 2 + len(MARK)] != MARK:
            return _verify_records(path)
        file.seek(0)
        crc = 0
        while chunk := file.read(min(CHUNK, body - file.tell())):
            crc = zlib.crc32(chunk, crc)
    if tail != _tail(zlib.crc32(b"\0\0", crc)):
        raise Damaged("its checksum does not match: it was changed after it was written")


def _verify_records(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.comment:
                raise Damaged("its checksum is not readable")
            bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise Damaged(f"truncated, or not one of ours: {error}") from error
    if bad:
        raise Damaged(f"the checksum of its record {bad} does not match")

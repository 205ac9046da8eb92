"""Pictures, films and notes that lie below a run_root, read only if they are what their names say.

Run directories are sent from one person to another. A file in one may be a link to somewhere else,
a pipe that never ends, or a page of HTML called skills_1.png.
"""

from __future__ import annotations

from pathlib import Path

from run.files import read_bytes
from utils import Unreadable

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".mp4": "video/mp4"}
LIMITS = {
    ".png": 20_000_000,
    ".jpg": 20_000_000,
    ".mp4": 30_000_000,
    ".md": 200_000,
    ".json": 200_000,
}  # bytes
PIXELS = 100_000_000  # of a picture: a small file can unpack to far more than fits into memory


def read_inside(path: Path, root: Path) -> bytes:
    """The bytes of a regular file that really lies below `root`, up to the limit of its kind."""
    try:
        if not path.parent.resolve().is_relative_to(root.resolve()):
            raise Unreadable("it lies outside of the directory that is shown")
        return read_bytes(path, LIMITS[path.suffix], follow=False)
    except (Unreadable, OSError, RuntimeError) as error:  # of links in a circle
        raise Unreadable(f"{path}: {error}") from error


def read_media(path: Path, root: Path) -> bytes:
    """A PNG, JPEG or MP4 by its first bytes, not only by its name."""
    content = read_inside(path, root)
    fits = {
        ".png": content.startswith(PNG) and content[12:16] == b"IHDR",
        ".jpg": content.startswith(JPEG),
        ".mp4": content[4:8] == b"ftyp",
    }
    if not fits[path.suffix]:
        raise Unreadable(f"{path} is no {KINDS[path.suffix]} by its first bytes")
    if path.suffix == ".png" and (pixels := png_width(content) * png_height(content)) > PIXELS:
        raise Unreadable(f"{path} has {pixels:,} pixels, more than {PIXELS:,}")
    return content


def png_width(png: bytes) -> int:
    return int.from_bytes(png[16:20], "big")


def png_height(png: bytes) -> int:
    return int.from_bytes(png[20:24], "big")


def read_note(path: Path, root: Path) -> str:
    try:
        return read_inside(path, root).decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is no text ({error.reason})") from error

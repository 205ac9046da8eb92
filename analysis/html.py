"""Pieces of an HTML page that is one file: pictures and films are inside it, nothing is fetched."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable
from pathlib import Path

import markdown
from matplotlib.figure import Figure

STYLE = """
:root { --ink: #1c1c22; --soft: #5c5c66; --line: #dcdce2; --tint: #f5f5f8; --mark: #882255; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 16px/1.55 system-ui, sans-serif; }
header, main, footer { max-width: 72rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .6rem; padding-top: .8rem; border-top: 2px solid var(--mark); }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p, li { max-width: 46rem; }
nav { position: sticky; top: 0; z-index: 1; background: #fff; border-bottom: 1px solid var(--line); overflow-x: auto; }
nav div { display: flex; gap: 1.1rem; max-width: 72rem; margin: 0 auto; padding: .55rem 1.25rem; white-space: nowrap; }
nav a { color: var(--mark); text-decoration: none; font-size: .92rem; }
h2, h3 { scroll-margin-top: 3rem; }
.note { color: var(--soft); font-size: .92rem; }
.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
td.prose { white-space: normal; min-width: 14rem; }
th { background: var(--tint); }
td[style*="right"], th[style*="right"] { text-align: right; }
figure { margin: 1rem 0; }
figure img, figure video { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 46rem; }
@media (max-width: 45rem) { figure.broad div { overflow-x: auto; } figure.broad img { max-width: none; width: 48rem; } }
.row { display: flex; flex-wrap: wrap; gap: 1rem; }
.row figure { flex: 1 1 16rem; max-width: 24rem; margin: 0; }
pre { background: var(--tint); padding: .6rem .8rem; overflow-x: auto; border-radius: 4px; font-size: .85rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
pre code { overflow-wrap: normal; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--mark); }
footer { color: var(--soft); font-size: .85rem; padding: 2rem 1.25rem 3rem; }
"""
KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".mp4": "video/mp4"}


def escape(text: object) -> str:
    return html.escape(str(text))


def prose(text: str) -> str:
    """Markdown, with each table in a box of its own that scrolls on a small screen."""
    made = markdown.markdown(text, extensions=["tables", "sane_lists"])
    return made.replace("<table>", '<div class="wide"><table>').replace(
        "</table>", "</table></div>"
    )


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def picture(source: Path | Figure, caption: str) -> str:
    """A PNG or a film from a file, or a figure as it is drawn; the caption is also what a screen
    reader says."""
    if isinstance(source, Figure):
        buffer = io.BytesIO()
        source.savefig(buffer, format="png", dpi=130)
        content, kind = buffer.getvalue(), "image/png"
    else:
        content, kind = source.read_bytes(), KINDS[source.suffix]
    uri = data_uri(content, kind)
    shown = (
        f'<video src="{uri}" controls muted loop playsinline></video>'
        if kind.startswith("video")
        else f'<img src="{uri}" alt="{escape(caption)}">'
    )
    broad = ' class="broad"' if kind == "image/png" and is_broad(content) else ""
    return f"<figure{broad}><div>{shown}</div><figcaption>{escape(caption)}</figcaption></figure>"


def is_broad(png: bytes) -> bool:
    """More than twice as wide as high, by the PNG's header: on a phone it scrolls instead of
    shrinking to a stamp."""
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    return width > 2 * height


def command(*lines: str) -> str:
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


def fold(summary: str, content: str, *, unfolded: bool = False) -> str:
    return f"<details{' open' if unfolded else ''}><summary>{escape(summary)}</summary>{content}</details>"


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="note">{items}</ul>' if items else ""


def page(title: str, lead: str, sections: dict[str, str], foot: str) -> str:
    """Sections by their heading, each with a link at the top."""
    names = {heading: "s" + str(i) for i, heading in enumerate(sections)}
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for heading, name in names.items())
    body = "".join(
        f'<section><h2 id="{names[heading]}">{escape(heading)}</h2>{content}</section>\n'
        for heading, content in sections.items()
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{escape(title)}</h1>{prose(lead)}</header>\n"
        f"<nav><div>{links}</div></nav>\n<main>\n{body}</main>\n<footer>{prose(foot)}</footer>\n</body>\n</html>\n"
    )

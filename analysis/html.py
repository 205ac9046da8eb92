"""Pieces of an HTML page that is one file: pictures and films are inside it, nothing is fetched.

Whatever a page shows may come from files of somebody else. So every piece escapes the text that it
is given, Markdown makes neither HTML nor links, and the page forbids the browser all that it does
not need itself (`policy`).
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Iterable
from pathlib import Path

import markdown
from matplotlib.figure import Figure

from analysis.media import KINDS, png_height, png_width, read_media
from run.cli.console import printable
from utils import RESULTS

# The page's own, the only one that a browser runs (`policy`).
SCRIPT = Path(__file__).with_name("dashboard.js").read_text()
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
.note { color: var(--soft); font-size: .92rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: .6rem 0 1rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
td.prose { white-space: normal; min-width: 14rem; }
th { background: var(--tint); }
.right { text-align: right; }
figure { margin: 1rem 0; }
figure img, figure video { max-width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 46rem; }
@media (max-width: 45rem) { figure.broad div { overflow-x: auto; } figure.broad img { max-width: none; width: 48rem; } }
.row { display: flex; flex-wrap: wrap; gap: 1rem; margin-top: 1rem; }
.row figure { flex: 1 1 16rem; max-width: 24rem; margin: 0; }
pre { background: var(--tint); padding: .6rem .8rem; overflow-x: auto; border-radius: 4px; font-size: .85rem; }
code { font-size: .9em; overflow-wrap: anywhere; }
pre code { overflow-wrap: normal; }
.filters { display: flex; flex-wrap: wrap; gap: .6rem 1.2rem; margin: .8rem 0; font-size: .92rem; }
.filters label { display: flex; gap: .4rem; align-items: center; max-width: 100%; }
select { font: inherit; max-width: 14rem; padding: .2rem; }
.charts figure { flex: 1 1 24rem; max-width: 29rem; }
.legend { list-style: none; margin: .2rem 0 0; padding: 0; font-size: .85rem; overflow-wrap: anywhere; }
.dot { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .4rem; }
.toggles { display: flex; flex-wrap: wrap; gap: .3rem; margin: .4rem 0; }
.toggles button { font: inherit; min-width: 2.2rem; padding: .2rem; background: #fff; }
.toggles button { border: 3px solid; border-radius: 6px; }
.toggles button[aria-pressed="false"] { opacity: .35; }
figure.film label { display: flex; gap: .5rem; align-items: center; } figure.film input { flex: 1; }
figure.film output { display: block; font-size: .9rem; }
figcaption { overflow-wrap: anywhere; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--mark); }
footer { color: var(--soft); font-size: .85rem; padding: 2rem 1.25rem 3rem; }
"""
# What Python-Markdown calls the rules that let a text bring HTML or an address along.
HTML_RULES = ("html", "entity", "autolink", "automail", "link", "reference", "short_reference")
IMAGE_RULES = ("image_link", "image_reference", "short_image_ref")

# How our tables mark the second best: around a number, and around nothing else.
UNDERLINED = re.compile(r"&lt;u&gt;([-+0-9.,]{1,20})&lt;/u&gt;")
DEEP = re.compile(r"^[ \t>*+-]{40}", re.M)  # lists in lists in lists, for which it takes hours


def escape(text: object) -> str:
    return html.escape(printable(text))


def prose(text: str) -> str:
    """Markdown without HTML, links and images, which are shown as they were typed. Each table is in
    a box of its own that scrolls on a small screen."""
    made = markdown.Markdown(extensions=["tables", "sane_lists"])
    made.preprocessors.deregister("html_block")
    made.parser.blockprocessors.deregister("reference")
    for rule in (*HTML_RULES, *IMAGE_RULES):
        made.inlinePatterns.deregister(rule)
    text = printable(text, keep="\n")
    if DEEP.search(text):
        return f"<pre>{html.escape(text)}</pre>"
    content = made.convert(text)
    for old, new in {
        "<table>": '<div class="wide"><table>',
        "</table>": "</table></div>",
        ' style="text-align: right;"': ' class="right"',
    }.items():
        content = content.replace(old, new)
    return UNDERLINED.sub(r"<u>\1</u>", content)


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def picture(source: Path | Figure, caption: str, root: Path = RESULTS) -> str:
    """A PNG or a film from a file below `root`, or a figure as it is drawn; the caption is also
    what a screen reader says."""
    if isinstance(source, Figure):
        buffer = io.BytesIO()
        source.savefig(buffer, format="png", dpi=130)
        content, kind = buffer.getvalue(), "image/png"
    else:
        content, kind = read_media(source, root), KINDS[source.suffix]
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
    return png_width(png) > 2 * png_height(png)


def command(*lines: str) -> str:
    return f"<pre><code>{chr(10).join(map(escape, lines))}</code></pre>"


def fold(summary: str, content: str, *, unfolded: bool = False) -> str:
    return f"<details{' open' if unfolded else ''}><summary>{escape(summary)}</summary>{content}</details>"


def bullets(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="note">{items}</ul>' if items else ""


def policy(script: str = SCRIPT, style: str = STYLE, *, live: bool = False) -> str:
    """The Content-Security-Policy of a page with this script and this style: nothing else runs, and
    nothing is fetched or sent anywhere, whatever should come into the page. A live page asks the
    server that it came from, and nobody else."""

    def only(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; img-src data:; media-src data:; style-src {only(style)}; "
        f"script-src {only(script)}; base-uri 'none'; form-action 'none'"
        + ("; connect-src 'self'" if live else "")
    )


def page(title: str, lead: str, sections: dict[str, str], foot: str, *, live: bool = False) -> str:
    """Sections by their heading, each with a link at the top."""
    names = {heading: "s" + str(i) for i, heading in enumerate(sections)}
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for heading, name in names.items())
    body = "".join(
        f'<section><h2 id="{names[heading]}">{escape(heading)}</h2>{content}</section>\n'
        for heading, content in sections.items()
    )
    script = f"<script>{SCRIPT}</script>\n" if SCRIPT else ""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(live=live)}">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<header><h1>{escape(title)}</h1>{prose(lead)}</header>\n"
        f"<nav><div>{links}</div></nav>\n<main>\n{body}</main>\n<footer>{prose(foot)}</footer>\n"
        f"{script}</body>\n</html>\n"
    )

"""What somebody may put into the files that a report is made of, to make it do something."""

from __future__ import annotations

from html.parser import HTMLParser

from analysis import html

NOWHERE = "http://127.0.0.1:9"  # nobody answers there, but a request to it is seen
PAYLOADS = {
    "script": "<script>alert(1)</script>",
    "script from elsewhere": f"<script src={NOWHERE}/a.js></script>",
    "onload": "<svg onload=alert(1)>",
    "onerror": "<img src=x onerror=alert(1)>",
    "ontoggle": "<details open ontoggle=alert(1)>",
    "frame": f"<iframe src={NOWHERE}/frame></iframe>",
    "frame of its own": '<iframe srcdoc="<script>parent.alert(1)</script>"></iframe>',
    "out of an attribute": '"><script>alert(1)</script>',
    "out of an attribute in single quotes": "'><script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)" autofocus onfocus="alert(1)',
    "out of the title": "</title></style></pre></code><script>alert(1)</script>",
    "comment": "--><script>alert(1)</script><!--",
    "link": '<a href="javascript:alert(1)">click</a>',
    "markdown link": "[click](javascript:alert(1))",
    "markdown link in brackets": "[click](<javascript:alert(1)>)",
    "markdown reference": "[click][1]\n\n[1]: javascript:alert(1)",
    "markdown short reference": "[click]\n\n[click]: javascript:alert(1)",
    "markdown picture": f"![x]({NOWHERE}/a.png)",
    "markdown picture by reference": f"![x][2]\n\n[2]: {NOWHERE}/b.png",
    "autolink": f"<{NOWHERE}/auto>",
    "mail": "<mailto:a@b.example>",
    "code span": "`</code><script>alert(1)</script>`",
    "code block": "    </pre><script>alert(1)</script>",
    "entities": "&lt;script&gt;alert(1)&lt;/script&gt;&#60;img src=x onerror=alert(1)&#62;",
    "stash of the Markdown library": "\x02wzxhzdk:0\x03<script>alert(1)</script>",
    "zero": "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "refresh": f'<meta http-equiv="refresh" content="0;url={NOWHERE}/refresh">',
    "style": f"<style>body {{ background: url({NOWHERE}/style.png) }}</style>",
    "style sheet": f'<link rel="stylesheet" href="{NOWHERE}/a.css">',
    "base": f'<base href="{NOWHERE}/">',
    "form": f'<form action="{NOWHERE}"><button>send</button></form>',
    "object": f"<object data={NOWHERE}/object></object>",
    "film": f"<video src={NOWHERE}/film.mp4 autoplay></video>",
}
# What the page itself is made of. None of the attributes can run anything or fetch anything but data.
TAGS = {
    *("html", "head", "meta", "title", "link", "style", "body", "header", "nav", "main", "section"),
    *("footer", "div", "h1", "h2", "h3", "h4", "p", "a", "ul", "ol", "li", "pre", "code", "em"),
    *("strong", "details", "summary", "figure", "figcaption", "img", "video", "blockquote", "hr"),
    *("table", "thead", "tbody", "tr", "th", "td", "br", "u"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "rel", "href", "id", "class", "open", "src", "alt"),
    *("controls", "muted", "loop", "playsinline", "http-equiv", "start", "data-json"),
}


class Page(HTMLParser):
    """The tags of a page with their attributes, and its words."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)


def alive(text: str) -> list[str]:
    """Tags, attributes and addresses that do not belong into a report, whose own script does."""
    found = []
    text = text.replace(f"<script>{html.SCRIPT}</script>", "")
    for tag, attributes in Page(text).tags:
        if tag not in TAGS or not attributes.keys() <= ATTRIBUTES:
            found.append(f"{tag} {attributes}"[:120])
        for key in ("src", "href"):
            if key in attributes and not (attributes[key] or "").startswith(("data:", "#")):
                found.append(f"{tag} {key}={attributes[key]}"[:120])
        if "http-equiv" in attributes and attributes["http-equiv"] != "Content-Security-Policy":
            found.append(f"{tag} {attributes}")
    return found

"""What methods are called in tables and figures, and by which colour and marker they are drawn.

An agent's yaml says so itself under `agent.show`; the run does not see it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from run.cli import own

# Rows of tables that are no agent: changes of one, rules of choosing skills, the paper's own names.
CHANGES = {
    "amped_selector": "AMPED + selector",
    "infonce": "InfoNCE",
    "cosine": "cosine InfoNCE",
    "metra": "METRA",
    "metra_gaussian": "METRA (Gaussian)",
    "no_rnd": "w/o RND",
    "no_aninfonce": "w/o AnInfoNCE",
    "no_surgery": "w/o surgery",
    "no_selector": "w/o selector",
    "selector": "skill selector",
    "random": "random skill",
    "single": "single skill",
    "oracle": "oracle best skill",
}


def shown() -> dict[str, dict[str, Any]]:
    """agent -> label, family, colour, marker, as far as its own yaml says; an agent that says
    nothing has its own name."""
    return _shown(tuple(own.yamls("agent").items()))


@functools.cache
def _shown(yamls: tuple[tuple[str, Path], ...]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, path in yamls:
        show = yaml.safe_load(path.read_text())["agent"].get("show", {})
        found[name] = {"label": name, "family": name, **show}
    return found


def label(method: str) -> str:
    return shown()[method]["label"] if method in shown() else CHANGES.get(method, method)

"""pyproject.toml, read once."""

from __future__ import annotations

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings the same under its old name
    import tomli as tomllib

from utils import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]

"""pyproject.toml, the requirements files and the commands they install agree."""

import importlib
import re
import sys
from pathlib import Path

import pytest

import experiment
import sweep
from tests.kit.project import EXTRAS, PROJECT, PYPROJECT
from utils import ROOT, UserError


def requirements(file: Path) -> dict[str, list[str]]:
    """Requirements by section (`# --- run: ...`), without comments."""
    found: dict[str, list[str]] = {"": []}
    section = ""
    for line in file.read_text().splitlines():
        if title := re.match(r"# --- (\w+)", line):
            section = title[1]
            found[section] = []
        elif word := line.partition("#")[0].strip():
            found[section].append(word)
    return found


def test_requirements_txt_lists_what_pyproject_lists():
    listed = requirements(ROOT / "requirements.txt")
    assert listed == {
        "": [],
        "run": PROJECT["dependencies"],
        "slurm": EXTRAS["slurm"],
        "test": [word for word in EXTRAS["test"] if word != "amped[slurm]"],
    }
    assert "amped[slurm]" in EXTRAS["test"]


def test_requirements_ray_txt_lists_what_the_extra_lists():
    assert requirements(ROOT / "requirements-ray.txt") == {"": EXTRAS["ray"]}


def test_every_installed_command_is_a_function():
    assert set(PROJECT["scripts"]) == {
        f"amped-{n}" for n in ("pretrain", "finetune", "sweep", "report")
    }
    for target in PROJECT["scripts"].values():
        module, _, function = target.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_room_with_python_files_is_installed():
    tool = PYPROJECT["tool"]["setuptools"]
    modules = {path.stem for path in ROOT.glob("*.py")}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert set(tool["py-modules"]) == modules
    assert {word for word in tool["packages"]["find"]["include"] if "." not in word} == packages


def test_the_version_is_one():
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_supported_pythons_are_those_of_the_makefile_and_the_workflow():
    low, high = re.match(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    supported = [f"3.{minor}" for minor in range(int(low), int(high))]
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^SUPPORTED := (.*)$", makefile, re.M)[1].split() == supported
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    tried = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*)\]", workflow)[1])
    assert set(tried) <= set(supported) and {"3.10", "3.11", "3.12"} <= set(tried)


def test_notebooks_import_the_installed_code_and_never_edit_the_path():
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert len(notebooks) == 5
    for notebook in notebooks:
        assert not re.search(r"sys\.path|chdir", notebook.read_text()), notebook.name


def test_a_sweep_on_slurm_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    monkeypatch.delitem(sys.modules, "experiment.slurm", raising=False)
    monkeypatch.delattr(experiment, "slurm", raising=False)
    with pytest.raises(UserError, match=r"needs submitit; install it: pip install -e .*slurm"):
        sweep.backend("slurm")

"""What tests share stands in tests/kit: no file takes anything from a test."""

import ast
import sys

from utils import ROOT

TESTS = ROOT / "tests"


def imported(text: str) -> set[str]:
    """Every module that a file imports, wherever in it. `from a import b` gives a and a.b, because
    b may be a module too."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def is_of_a_test(module: str) -> bool:
    """It is one of tests/**/test_*.py, or below one; tests/conftest.py counts as well."""
    first, *rest = module.split(".")
    names = rest if first in ("tests", "") else [first]
    return any(name.startswith("test_") or name == "conftest" for name in names)


def taken_from_tests(text: str) -> set[str]:
    return {module for module in imported(text) if is_of_a_test(module)}


def test_no_file_imports_anything_from_a_test():
    for path in TESTS.rglob("*.py"):
        assert not taken_from_tests(path.read_text()), path.relative_to(ROOT)


def test_the_kit_imports_no_other_part_of_the_tests():
    for path in (TESTS / "kit").glob("*.py"):
        ours = {name for name in imported(path.read_text()) if name.startswith(("tests.", "."))}
        assert all(name.startswith("tests.kit") for name in ours), path.relative_to(ROOT)


def test_no_file_of_the_kit_has_the_name_of_a_module_of_python():
    """A script that is started from the kit would import it in that module's place."""
    assert not {path.stem for path in (TESTS / "kit").glob("*.py")} & sys.stdlib_module_names


def test_the_rule_sees_every_way_to_import_a_test():
    for text in (
        "from tests.run.test_resume import stop_at",
        "from tests.agent import test_amped",
        "import tests.agent.test_amped as amped",
        "import test_amped",
        "from .test_amped import make",
        "def f():\n    from tests.test_replay import Diary",
        "from tests import conftest",
    ):
        assert taken_from_tests(text), text
    for text in ("from tests.kit.runs import stop_at", "from tests.kit import meta, runs"):
        assert not taken_from_tests(text), text

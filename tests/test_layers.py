"""The rooms of the house: nothing imports upward, and agent and envs do not know each other."""

import ast

import pytest

from utils import ROOT

# A room may import itself and what stands below it. Rooms on one line do not know each other.
FLOORS = (
    ("pretrain", "finetune", "sweep", "benchmarks"),
    ("analysis",),
    ("experiment",),
    ("run",),
    ("agent", "envs"),
    ("frame_replay",),
    ("replay_buffer",),
    ("utils",),
    ("records",),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# utils.load_policy is a name that users' scripts import; it hands on to the room where it lives.
EXCEPTIONS = {("utils", "agent.policy")}


def sources():
    for room in FLOOR:
        folder = ROOT / room
        for file in (
            sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
        ):
            yield room, file


def imports(text: str) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the room they come from"
            found.add(node.module)
    return found


def upward(room: str, text: str) -> set[str]:
    """What a file of a room may not import."""
    wrong = set()
    for module in imports(text):
        other = module.partition(".")[0]
        if other == "tests" or (other in FLOOR and other != room and FLOOR[other] <= FLOOR[room]):
            wrong.add(module)
    return {module for module in wrong if (room, module) not in EXCEPTIONS}


@pytest.mark.parametrize("room", FLOOR)
def test_a_room_imports_only_what_stands_below_it(room):
    for owner, path in sources():
        if owner == room:
            assert not upward(room, path.read_text()), path.relative_to(ROOT)


def test_every_python_file_of_the_repository_has_a_room():
    aside = {"tests", "docs", "notebooks", "runs", "build"}
    rooms = {
        path.stem
        for path in ROOT.iterdir()
        if path.suffix == ".py"
        or (path.is_dir() and not path.name.startswith(".") and any(path.rglob("*.py")))
    }
    assert rooms - aside == set(FLOOR)


def test_the_rule_sees_upward_imports_inside_functions_and_between_neighbours():
    assert upward("utils", "def f():\n    from agent.base import Objective\n") == {"agent.base"}
    assert upward("agent", "import envs.maze") == {"envs.maze"}
    assert upward("run", "from analysis.maze import x") == {"analysis.maze"}
    assert not upward(
        "run", "import numpy\nfrom agent.base import Objective\nfrom run import video"
    )

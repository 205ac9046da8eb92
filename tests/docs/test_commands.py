"""Every command that README and docs/ print is one that exists: scripts, modules, targets, keys, options.

Nothing is trained here; the examples of docs/extending.md are run in tests/test_readme.py.
"""

import importlib
import importlib.util
import itertools
import re
import shlex
import sys

import pytest

from experiment import definition, graph
from experiment.rows import last_frames
from run.cli.guard import read_arguments
from run.cli.words import GROUPS, options
from sweep import ACTIONS
from tests.kit.configs import composed
from tests.kit.pages import PAGES, name, prose, shell_blocks
from tests.kit.project import EXTRAS, PROJECT
from utils import ROOT

TARGETS = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
FOREIGN = {"apt-get", "conda", "source", "jupyter", "git", "pre-commit"}
EXPERIMENT_WORDS = ("preset", "methods", "task", "run_root")  # besides the keys of its grid


def expand(block: str) -> list[str]:
    """The lines of a block; `for x in a b` gives each line that holds $x once per value."""
    values = dict(re.findall(r"\bfor (\w+) in ([^;]+);", block))
    lines = []
    for line in re.sub(r"\bfor \w+ in [^;]+; do", "", block).splitlines():
        used = [variable for variable in values if f"${variable}" in line]
        for chosen in itertools.product(*(values[variable].split() for variable in used)):
            each = line
            for variable, value in zip(used, chosen, strict=True):
                each = each.replace(f"${variable}", value)
            lines.append(each)
    return lines


def commands() -> list[tuple[str, str]]:
    """Of code blocks, and of `python ...` or `make ...` in the text, whose capitals are the
    reader's to fill in."""
    found = {}
    for page in PAGES:
        lines = [line for block in shell_blocks(page) for line in expand(block)]
        inline = re.findall(r"`((?:python|make) [^`]+)`", prose(page))
        for line in [*lines, *(" ".join(text.split()) for text in inline)]:
            line = re.sub(r"\s+#.*$", "", line).strip()
            for command in line.split(" && "):
                if command and not re.fullmatch(r"done(; done)*", command):
                    found.setdefault(command, name(page))
    return [(page, command) for command, page in found.items() if "..." not in command]


def check(command: str) -> None:
    program, *words = shlex.split(command, comments=True)
    while "=" in program:  # PYTHONPATH=my_method python ...
        program, *words = words
    if program == "uv":
        assert words[0] in ("sync", "run")
        if words[0] == "run":
            check(shlex.join(words[1:]))
        program, words = "pip", [w for w in words if w in EXTRAS] if words[0] == "sync" else []
    if program == "make":
        assert {word for word in words if "=" not in word} <= set(TARGETS)
    elif program == "pip":
        for extras in re.findall(r"\.\[(.*?)\]", " ".join(words)):
            assert set(extras.split(",")) <= set(EXTRAS)
        for file in re.findall(r"-r (\S+)", " ".join(words)):
            assert (ROOT / file).is_file()
    elif program in PROJECT["scripts"]:
        check_script(PROJECT["scripts"][program].partition(":")[0], words)
    elif program == "python" and words[0] == "-m":
        check_module(words[1], words[2:])
    elif program == "python":
        assert (ROOT / words[0]).is_file(), words[0]
        check_script(words[0].removesuffix(".py"), words[1:])
    else:
        assert program in FOREIGN, f"{program}: neither ours nor known"


def check_script(script: str, words: list[str]) -> None:
    if script in ("pretrain", "finetune"):
        if "--config-dir" not in words:  # whose groups are the reader's own
            check_run(script, words)
    elif script == "sweep" and "--config-dir" not in words:
        given = definition.split_words(words)
        assert given.pop("action", "run") in ACTIONS
        graph.settings(given.pop("cluster", "local"), definition.take(given, "cluster."))
        rows = given.pop("rows", None)
        assert rows is None or last_frames(ROOT / rows)
        check_experiment(given)


def check_run(phase: str, words: list[str]) -> None:
    """The words compose to a config whose every value is valid."""
    multirun = "-m" in words
    words = [word for word in read_arguments(words, phase) if word != "-m"]
    words = [word for word in words if not re.search(r"=[A-Z]+$", word)]
    if phase == "finetune" and not any(word.startswith("task=") for word in words):
        words.append("task=walker_run")
    for key, _, launcher in (word.partition("=") for word in words if word.startswith("hydra")):
        assert key == "hydra/launcher" and launcher in ("joblib", "submitit_local", "ray")
    words = [word for word in words if not word.startswith("hydra")]
    choices = [word.split(",") if multirun else [word] for word in words]
    keys = [word.partition("=")[0] for word in words]
    for chosen in itertools.product(*choices):
        overrides = [w if "=" in w else f"{k}={w}" for k, w in zip(keys, chosen, strict=True)]
        composed(phase, *overrides)


def check_experiment(given: dict[str, str]) -> None:
    found = definition.read(given.pop("experiment"))
    grids = found["grid"] if isinstance(found["grid"], list) else [found["grid"]]
    for key, value in given.items():
        assert key in EXPERIMENT_WORDS or any(key in grid for grid in grids), key
        if key in GROUPS:
            assert set(value.split(",")) <= set(options(key))


def check_module(module: str, words: list[str]) -> None:
    """It can be run, its --help knows the options, its words name an experiment."""
    if module == "pytest":
        assert all((ROOT / word).exists() for word in words if word.startswith("tests"))
        return
    found = importlib.util.find_spec(module)
    assert found, module
    if found.submodule_search_locations:
        module = f"{module}.__main__"
        assert importlib.util.find_spec(module), module
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    if given:
        text = help_of(
            module, *words[: len(words) and re.fullmatch("[a-z]+", words[0]) is not None]
        )
        assert all(option in text for option in given), text
    settings = definition.split_words([w for w in words if re.match(r"[a-z][\w.]*=", w)])
    if "experiment" in settings and "--config-dir" not in words:
        check_experiment(settings)


def help_of(module: str, *subcommand: str) -> str:
    parts = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *subcommand, "--help"])
        patch.setattr(sys.stdout, "write", parts.append)
        with pytest.raises(SystemExit):
            importlib.import_module(module).main()
    return "".join(parts)


@pytest.mark.parametrize("page, command", commands())
def test_a_printed_command_exists(page, command):
    check(command)


def test_the_pages_print_commands_of_every_kind():
    text = "\n".join(command for _, command in commands())
    for word in ("pretrain.py", "finetune.py", "sweep.py", "analysis.table", "analysis.figure"):
        assert word in text
    assert len(commands()) > 60


@pytest.mark.parametrize(
    "wrong",
    [
        "python pretrian.py agent=amped",
        "python pretrain.py agent=ampde",
        "python pretrain.py agent=amped learnign_rate=3",
        "python finetune.py agent=amped task=walker_fly",
        "python -m analysis.tables experiment=table_urlb",
        "python -m analysis.table experiment=table_nothing",
        "python -m analysis.table experiment=table_urlb --colour red",
        "python sweep.py experiment=smoke action=dance",
        "make coffee",
        'pip install -e ".[gpu]"',
        "brew install amped",
    ],
)
def test_a_wrong_command_is_noticed(wrong):
    with pytest.raises(Exception):  # noqa: B017  the kinds differ, the point is that each is refused
        check(wrong)

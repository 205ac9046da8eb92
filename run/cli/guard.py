"""What the scripts and commands share: one clear line for every mistake, exit code 2."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.errors import MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from run.cli import own
from run.cli.console import LEFT_OUT, Parser, leave, left_out
from run.cli.help import show as show_help
from run.cli.schema import Schema, flatten
from run.cli.words import GROUPS, check_words, nearest, quote_words
from utils import CONFIGS, Interrupted, UserError

Task = Callable[[DictConfig, list[str]], Any]


def one_line(error: Exception) -> str:
    """An error of Hydra's, which may be paragraphs, or of ours, as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return (
            f"{group}={name} is not known; choose from {', '.join(sorted(error.options))}"
            + nearest(name, error.options)
        )
    if found := re.match(r"You must specify '(\w+)'.*Available options: (.*)", text):
        return f"{found[1]}= is missing; choose from {', '.join(found[2].split())}"
    if re.match("Could not override 'experiment'", text):
        return "experiments are sets of runs: python -m analysis.figure experiment=NAME"
    if found := re.match("Could not override '(task|skills|adapt|data)'", text):
        return f"{found[1]}= is not for pre-training; use finetune.py"
    if found := re.match(r"Could not override '([^']*)'", text):
        return f"{found[1]} is not a key of this run{_nearest_key(found[1], error)}; --help lists the keys and groups"
    if found := re.match(r"Error merging override ([^=]*=.*?)(?: [A-Z]|$)", text):
        return f"{found[1]} does not fit: a group of keys is no single value; --help shows what stands there"
    if isinstance(error, OverrideParseException):
        return f"{error.override} cannot be read; give key=value, with special characters in quotes: \"key='a b'\""
    if found := re.match(r"Additional config directory '(.*)' not found", text):
        return (
            f"--config-dir {found[1]} is no directory; give one that holds agent/, domain/ or task/"
        )
    if found := re.match(r"Cannot find primary config '(.*?)'", text):
        return f"--config-name {found[1]} is not known; leave it away, each script has its own"
    return text


def _nearest_key(key: str, error: Exception) -> str:
    """The key that the user may have meant, from the config that refused the given one. Hydra's
    error carries it along."""
    node = getattr(error.__cause__, "parent_node", None)
    if node is None:
        return ""
    config = OmegaConf.to_container(node._get_root(), resolve=False)
    assert isinstance(config, dict)
    known = flatten({str(name): value for name, value in config.items()})
    return nearest(key, [each for each in known if not each.startswith("hydra.")])


def read_arguments(arguments: list[str], phase: str) -> list[str]:
    """The arguments of a Hydra script, checked and quoted."""
    parser = get_args_parser()
    parser.__class__ = Parser  # the same parser, whose errors are one line
    given = parser.parse_args(arguments)
    own.use(given.config_dir)
    check_words(given.overrides, multirun=given.multirun)
    if given.multirun:  # there a comma separates the values of a sweep
        check_sweeps(given.overrides, phase)
        return arguments
    quoted = dict(zip(given.overrides, quote_words(given.overrides), strict=True))
    return [quoted.get(word, word) for word in arguments]


def check_sweeps(words: list[str], phase: str) -> None:
    """All values of a sweep before its first run. What a key may hold depends on the groups, such
    as agent=, so each combination of these is composed."""
    swept: dict[str, list[Any]] = {}
    fixed = []
    for word, override in zip(words, OverridesParser.create().parse_overrides(words), strict=True):
        key = override.key_or_group
        if override.is_discrete_sweep() and not key.startswith("hydra"):
            each = override.sweep_iterator(Transformer.identity)
            swept[key] = [getattr(value, "text", value) for value in each]  # a quoted string
        elif not key.startswith("hydra"):
            fixed.append(word)
    groups = [[f"{key}={value}" for value in swept.pop(key)] for key in GROUPS if key in swept]
    if not swept:
        return
    fixed += own.search_words()
    for chosen in itertools.product(*groups):
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = hydra.compose(phase, [*fixed, *chosen])
        schema = Schema(OmegaConf.to_container(cfg, resolve=False))  # type: ignore[arg-type]
        for key, values in swept.items():
            for value in values:
                schema.require_valid(key, value)


def run_command(task: Callable[[], Any], *wrong: type[Exception]) -> None:
    """Run the body of a command without Hydra (sweep.py, python -m analysis.NAME). Mistakes of the
    user become one line: UserError, OSError and whatever else `wrong` names. A command that did its
    work but left out files that it could not read says so in its exit code."""
    mistakes: tuple[type[Exception], ...] = (UserError, OSError, *wrong)
    left_out.clear()
    try:
        task()
        sys.stdout.flush()
        if left_out:
            sys.exit(LEFT_OUT)
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except mistakes as error:
        if guard.full_error:
            raise
        if isinstance(error, OSError) and error.filename is not None:
            leave(f"error: cannot use {error.filename}: {error.strerror}; give another path", 2)
        leave(f"error: {error}", 2)
    except Interrupted as stop:
        leave(str(stop), stop.exit_code)
    except KeyboardInterrupt:
        leave("interrupted; the same command goes on", 130)


class Guard:
    """Runs a Hydra main. HYDRA_FULL_ERROR=1 in the environment asks for tracebacks instead of
    lines."""

    def __init__(self):
        self.full_error = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"
        self.started = False

    def task(self, task: Task, cfg: DictConfig) -> None:
        """Run one job. In a multirun a job that fails must not stop the others, so there its error
        goes to Hydra."""
        self.started = True
        job = HydraConfig.get()
        # unresolved, so that beta=${alpha} stays as it was typed
        words = OmegaConf.to_container(job.overrides.task, resolve=False)
        assert isinstance(words, list)
        try:
            task(cfg, words)
        except UserError as error:
            if job.mode == RunMode.MULTIRUN or self.full_error:
                raise
            leave(f"error: {error}", 2)
        except Interrupted as stop:
            leave(str(stop), stop.exit_code)

    def launch(self, main: Callable[[], None], phase: str) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on it is caught
        try:
            asked = {"--help", "-h"} & set(sys.argv[1:])
            if asked:
                sys.argv[1:] = [word for word in sys.argv[1:] if word not in asked]
            sys.argv[1:] = read_arguments(sys.argv[1:], phase)
            if asked:
                return show_help(phase, get_args_parser().parse_args(sys.argv[1:]).overrides)
            os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing paragraphs
            main()
        except BrokenPipeError:  # --help | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            leave(
                "interrupted before anything was trained" if not self.started else "interrupted",
                130,
            )
        except Exception as error:
            if self.full_error or (self.started and not isinstance(error, UserError)):
                raise  # asked for, or a bug of ours: show it whole
            leave(f"error: {one_line(error)}", 2)


guard = Guard()

"""What the scripts and commands share: one clear line for every mistake, exit code 2."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig

from agent.runner import Interrupted
from utils import UserError

Task = Callable[[DictConfig, list[str]], Any]


def one_line(error: Exception) -> str:
    """Hydra's paragraphs, and our own lines, as one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        close = difflib.get_close_matches(name, error.options, 1)
        return (f"{group}={name} is not known; choose from {', '.join(sorted(error.options))}"
                + (f" (did you mean {close[0]}?)" if close else ""))
    if found := re.match(r"You must specify '(\w+)'.*Available options: (.*)", text):
        return f"{found[1]}= is missing; choose from {', '.join(found[2].split())}"
    if re.match("Could not override 'experiment'", text):
        return "experiments are sets of runs: python -m analysis.figure experiment=NAME"
    if found := re.match(r"Could not override '([^']*)'", text):
        return f"{found[1]} is not a key of this run; --help lists the keys and groups"
    return text


def quote_paths(arguments: list[str]) -> list[str]:
    """Paths and variants hold commas, spaces and equal signs, which Hydra takes for grammar: quote them."""
    if {"-m", "--multirun"} & set(arguments):
        return arguments  # there a comma separates the values of a sweep
    quoted = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("snapshot", "run_root", "variant", "pretrain_variant") and re.search(r"[^\w./-]", value):
            if value[0] not in "'\"" and "${" not in value:
                value = "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        quoted.append(f"{key}={value}" if "=" in argument else argument)
    return quoted


def leave(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr, flush=True)
    sys.exit(code)


def run_command(task: Callable[[], Any]) -> None:
    """The body of a command without Hydra (sweep.py, python -m analysis.NAME)."""
    try:
        task()
        sys.stdout.flush()
    except BrokenPipeError:  # | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, OSError) as error:
        leave(f"error: {error}", 2)
    except Interrupted as stop:
        leave(str(stop), stop.exit_code)
    except KeyboardInterrupt:
        leave("interrupted; the same command goes on", 130)


class Guard:
    """Runs a Hydra main. HYDRA_FULL_ERROR=1 in the environment asks for tracebacks instead of lines."""

    def __init__(self):
        self.full_error = os.environ.get("HYDRA_FULL_ERROR", "0") == "1"
        self.started = False

    def task(self, task: Task, cfg: DictConfig) -> None:
        """One job; in a multirun a wrong job must not stop the others."""
        self.started = True
        hydra = HydraConfig.get()
        try:
            task(cfg, list(hydra.overrides.task))
        except UserError as error:
            if hydra.mode == RunMode.MULTIRUN or self.full_error:
                raise
            leave(f"error: {error}", 2)
        except Interrupted as stop:
            leave(str(stop), stop.exit_code)

    def launch(self, main: Callable[[], None]) -> None:
        sys.argv[1:] = quote_paths(sys.argv[1:])
        if self.full_error:
            return main()
        os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing paragraphs
        try:
            main()
        except KeyboardInterrupt:
            leave("interrupted before anything was trained" if not self.started else "interrupted", 130)
        except Exception as error:
            if self.started and not isinstance(error, UserError):
                raise  # a bug of ours: show it whole
            leave(f"error: {one_line(error)}", 2)


guard = Guard()

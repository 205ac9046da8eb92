"""What both scripts share on the command line: one clear line for every mistake, exit code 2."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from agent.runner import Interrupted
from utils import UserError

Task = Callable[[DictConfig, list[str]], Any]


def one_line(error: Exception) -> str:
    """Hydra's and ours, without the paragraphs."""
    if isinstance(error, MissingConfigException) and error.options and error.missing_cfg_file:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        close = difflib.get_close_matches(name, error.options, 1)
        return (f"{group}={name} is not known; choose from {', '.join(sorted(error.options))}"
                + (f" (did you mean {close[0]}?)" if close else ""))
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, ConfigCompositionException) and error.__cause__ is not None:
        lines += [line.strip() for line in str(error.__cause__).splitlines()[:1]]
    lines = [line for line in lines if not line.startswith(("full_key:", "object_type=", "See https", "Set the env"))]
    return "; ".join(lines[:4]) or type(error).__name__


def guarded(task: Task, cfg: DictConfig) -> None:
    """Run one job; in a multirun a wrong job must not stop the others."""
    hydra = HydraConfig.get()
    try:
        task(cfg, list(hydra.overrides.task))
    except UserError as error:
        if hydra.mode == RunMode.MULTIRUN or _full_error():
            raise
        _exit(f"error: {error}", 2)
    except Interrupted as stop:
        _exit(str(stop), stop.exit_code)


def launch(main: Callable[[], None]) -> None:
    """Call a hydra main; wrong input ends in one line, unless HYDRA_FULL_ERROR=1 asks for the traceback."""
    sys.argv[0] = str(Path(sys.argv[0]))
    if _full_error():
        main()
        return
    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes Hydra raise instead of printing paragraphs
    _OURS.append(True)
    try:
        main()
    except (UserError, HydraException, OmegaConfBaseException) as error:
        _exit(f"error: {one_line(error)}", 2)


_OURS: list[bool] = []


def _full_error() -> bool:
    return not _OURS and os.environ.get("HYDRA_FULL_ERROR", "0") == "1"


def _exit(line: str, code: int) -> None:
    print(line, file=sys.stderr, flush=True)
    sys.exit(code)

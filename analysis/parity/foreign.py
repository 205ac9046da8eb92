"""Modules of somebody else's checkout, beside ours of the same names (`utils`, `agent`).

The code of the checkout is executed: give one that you trust. What it imports and this machine lacks
(wandb, tensorboard, ...) becomes an empty module in memory, so that definitions can be read; using
one says so.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from utils import UserError

PACKAGES = ("agent", "skill_selector")  # directories, with or without __init__.py
SHADOWED = ("agent", "skill_selector", "utils")  # names that are ours or theirs


class Empty(ModuleType):
    """Stands for a module that is not installed: any name in it is a class that cannot be made."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        module = self.__name__

        class Missing:
            def __init__(self, *_: Any, **__: Any):
                raise RuntimeError(f"{module} is not installed, and the checkout uses {name} of it")

        return Missing


def is_shadowed(name: str) -> bool:
    return name.partition(".")[0] in SHADOWED


@contextlib.contextmanager
def in_place_of_ours(root: Path) -> Iterator[None]:
    """Inside, `utils`, `agent` and `skill_selector` are the checkout's."""
    ours = {name: module for name, module in sys.modules.items() if is_shadowed(name)}
    for name in ours:
        del sys.modules[name]
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root / name)]  # never ours, whichever has an __init__.py
        sys.modules[name] = package
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if is_shadowed(name)]:
            del sys.modules[name]
        sys.modules.update(ours)


def load(root: Path, *modules: str) -> tuple[dict[str, ModuleType], list[str]]:
    """The modules by their names, and which others had to be made up."""
    for module in modules:
        path = root / (module.replace(".", "/") + ".py")
        if not path.is_file():
            raise UserError(
                f"{root} has no {path.relative_to(root)}; give a checkout of the public AMPED code"
            )
    made_up: list[str] = []
    with in_place_of_ours(root):
        found = {}
        for module in modules:
            found[module] = import_one(module, made_up)
    for name in made_up:
        del sys.modules[name]
    return found, made_up


def import_one(module: str, made_up: list[str]) -> ModuleType:
    while True:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if not missing or is_shadowed(missing) or missing in made_up:
                raise UserError(f"{module} of the checkout cannot be imported: {error}") from error
            made_up.append(missing)
            sys.modules[missing] = Empty(missing)
        except Exception as error:
            raise UserError(
                f"{module} of the checkout cannot be imported: {type(error).__name__}: {error}"
            ) from error

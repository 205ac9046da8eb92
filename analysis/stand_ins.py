"""A torch.save file of foreign code, read without that code.

Every class in the file becomes an inert stand-in. The reader is torch's own for
`weights_only=True`, which looks names up in a table instead of importing them. The table is
lengthened here by classes that record what they are given and do nothing else, so that no file can
call anything.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch

from utils import UserError, why_refused

# What agents of URLB-family code consist of. Any other name makes the file something else, and it
# is refused whole.
FAMILY = re.compile(
    r"(agent|utils|omegaconf|torch\.nn\.modules|torch\.optim|torch\.distributions)\.[\w.]+|"
    r"numpy\.(_?core\.multiarray\.(scalar|_reconstruct)|dtype|ndarray)|"
    r"builtins\.(dict|list|tuple|str|int|float|bool)|typing\.(Any|Union|Optional)|collections\.defaultdict"
)


class StandIn:
    """An object of a class that is not here: `args` it was made with, `state` it was given,
    `source` its class."""

    source = ""

    def __new__(cls, *args: Any) -> StandIn:
        self = object.__new__(cls)
        self.args, self.state = args, {}
        return self

    def __setstate__(self, state: Any) -> None:
        self.state = state

    @property
    def kind(self) -> str:
        return self.source.rpartition(".")[2]

    def get(self, name: str) -> Any:
        """An attribute; None where there is none."""
        return self.state.get(name) if isinstance(self.state, dict) else None

    def parts(self, name: str) -> dict:
        """An attribute that holds others by name (_modules, _parameters)."""
        found = self.get(name)
        return found if isinstance(found, dict) else {}


def plain_dict(*_: Any) -> dict:
    """In place of defaultdict, which optimisers keep their state in."""
    return {}


def stand_in(name: str) -> tuple[Any, str]:
    """What the reader finds under a name."""
    if name == "collections.defaultdict":
        return plain_dict, name
    return type("StandIn", (StandIn,), {"source": name}), name


def read(path: Path) -> Any:
    """The content of a file: tensors, plain Python and stand-ins."""
    if not path.is_file():
        raise UserError(f"no file {path}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of formats that are refused anyway
        try:
            names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
            require_family(path, names)
            with torch.serialization.safe_globals([*map(stand_in, names)]):
                return torch.load(path, map_location="cpu", weights_only=True)
        except UserError:
            raise
        except Exception as error:  # whatever a broken or hostile file makes of the reader
            raise UserError(
                f"{path} is no snapshot of URLB-family code as torch 1.6 or later saves it: "
                f"{why_refused(error)}; nothing in it was executed"
            ) from error


def require_family(path: Path, names: list[str]) -> None:
    if foreign := sorted(name for name in names if not FAMILY.fullmatch(name)):
        raise UserError(
            f"{path} is refused: it names {', '.join(foreign[:3])}, which no snapshot of URLB-family code "
            "needs; nothing in it was executed"
        )

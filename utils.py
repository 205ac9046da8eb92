"""What every room needs: errors, the paths of the repository, random streams, files, snapshots."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import tempfile
import warnings
import zipfile
import zlib
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval

from records import Snapshot, not_plain, wrong

ROOT = Path(__file__).resolve().parent
CONFIGS, RESULTS = ROOT / "configs", ROOT / "results"
SNAPSHOT_FORMAT = 1
MARK = b"crc32:"  # of a sealed file's comment, which ends it
MARK_LENGTH = len(MARK) + 8
CHUNK = 1 << 20
FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up"}

# What a number of a config may be. Constructors annotate their arguments with these, and
# run/cli/schema.py reads them: a class says itself what its keys may hold.
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Natural = Annotated[int, Ge(0)]
Count = Annotated[int, Ge(1)]
Repeats = Annotated[int, Interval(ge=1, le=10**4)]  # of a step inside one update
Size = Annotated[int, Interval(ge=1, le=2**16)]  # of a layer: its square takes memory
Rows = Annotated[int, Interval(ge=1, le=10**6)]  # of a batch or a pool
Several = Annotated[int, Interval(ge=2, le=10**6)]  # rows, of which a deviation is taken
Layers = Annotated[int, Interval(ge=1, le=100)]


class UserError(Exception):
    """Wrong input or surroundings: shown as one line, exit code 2."""


class Unreadable(UserError):
    """A file that is damaged or none of ours."""


class NotFinite(UserError):
    """Names a quantity that is no finite number any more. The run adds to the message which
    checkpoint is from before that."""


class Interrupted(Exception):
    """A signal to stop arrived (run/signals.py); the run is saved and can be continued."""

    def __init__(self, signum: int, saved: str):
        super().__init__(
            f"{signal.Signals(signum).name}: {saved}; the same command continues there"
        )
        self.exit_code = 128 + signum


def first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def plural(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def choose(key: str, value: str, choices: tuple[str, ...]) -> str:
    """The value, if it is one of the choices; else an error that lists them."""
    if value not in choices:
        raise UserError(f"{key}={value} is not known; choose from {', '.join(choices)}")
    return value


# --------------------------------------------------------------------------------------- randomness


def stream_seed(seed: int, *names: str | int) -> int:
    """A seed for one consumer: the same (seed, names) give the same number on every machine."""
    words = [zlib.crc32(str(name).encode()) for name in names]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1)[0])


class Streams:
    """Named random generators, one per consumer, so that drawing more in one place moves no other
    number."""

    def __init__(self, seed: int, device: torch.device | str = "cpu"):
        self.seed, self.device = seed, torch.device(device)
        self._numpy: dict[str, np.random.Generator] = {}
        self._torch: dict[str, torch.Generator] = {}
        self._since: tuple[int, ...] = ()

    def numpy(self, name: str) -> np.random.Generator:
        return self._numpy.setdefault(
            name, np.random.Generator(np.random.PCG64(self._seed_of(name)))
        )

    def torch(self, name: str) -> torch.Generator | None:
        """A generator on the learner's device; None on `meta`, which has none."""
        if self.device.type == "meta":
            return None
        if name not in self._torch:
            self._torch[name] = torch.Generator(self.device).manual_seed(self._seed_of(name))
        return self._torch[name]

    def begin_anew(self, frame: int) -> None:
        """Other numbers than a run of this seed drew before: for one that goes on at a frame without
        the state in which its streams were."""
        self._since = (frame,)
        for name, numbers in self._numpy.items():
            numbers.bit_generator.state = np.random.PCG64(self._seed_of(name)).state
        for name, generator in self._torch.items():
            generator.manual_seed(self._seed_of(name))

    def _seed_of(self, name: str) -> int:
        return stream_seed(self.seed, name, *self._since)

    def state_dict(self) -> dict[str, Any]:
        return {
            "numpy": {name: g.bit_generator.state for name, g in self._numpy.items()},
            "torch": {name: g.get_state() for name, g in self._torch.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state["numpy"].items():
            self.numpy(name).bit_generator.state = value
        for name, value in state["torch"].items():
            if (generator := self.torch(name)) is not None:
                generator.set_state(value.cpu())


# -------------------------------------------------------------------------------------------- files


@contextlib.contextmanager
def writing(path: Path):
    """Inside, a failing disk becomes one line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {FULL.get(error.errno or 0) or error.strerror or error}; what was written "
            "before is intact"
        ) from error


def write_atomic(path: Path, write) -> None:
    """Write through a temporary file and a rename: a reader, a kill or a full disk never leaves
    half a file."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(name, 0o644)  # mkstemp makes it private
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def remove_halves(directory: Path) -> None:
    """Temporary files that a killed `write_atomic` left behind."""
    for path in directory.rglob(".*.tmp"):
        path.unlink()


def write_text(path: Path, text: str) -> None:
    write_atomic(path, lambda file: file.write(text.encode()))


def read_json(path: Path) -> dict[str, Any]:
    """A mapping; what cannot be read is a one-line error."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise ValueError("it is no mapping")
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}); remove it to run that again") from error
    return found


# ------------------------------------------------------------------------------------- sealed files
#
# A CRC-32 over a whole torch file, kept as the comment of its zip archive: readers pass over it; one flipped bit or a
# missing end does not pass it. torch writes a CRC-32 for each record and never looks at it.


class Damaged(Exception):
    """The bytes are not those that were written."""


def _tail(crc: int) -> bytes:
    """The last bytes of a sealed file: the comment of its zip archive, and before it the comment's
    length, which torch leaves at 0."""
    return MARK_LENGTH.to_bytes(2, "little") + MARK + b"%08x" % crc


class Sealing:
    """A file for torch.save that computes the checksum of what is written. It also keeps the reason
    of a failed write, which torch forgets."""

    def __init__(self, file: BinaryIO):
        self.file, self.crc = file, 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self.file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.crc = zlib.crc32(data, self.crc)
        return len(data)

    def flush(self) -> None:
        self.file.flush()

    def seal(self) -> None:
        """Put the checksum into the file, after the last write."""
        self.file.seek(-2, os.SEEK_END)
        self.file.write(_tail(self.crc))


def verify(path: Path) -> None:
    """Raise Damaged unless the bytes are those that were written. A file from before there were
    seals has only the checksums of its records, which are checked instead."""
    with path.open("rb") as file:
        body = file.seek(0, os.SEEK_END) - 2 - MARK_LENGTH
        file.seek(max(body, 0))
        tail = file.read()
        if tail[2 : 2 + len(MARK)] != MARK:
            return _verify_records(path)
        file.seek(0)
        crc = 0
        while chunk := file.read(min(CHUNK, body - file.tell())):
            crc = zlib.crc32(chunk, crc)
    if tail != _tail(zlib.crc32(b"\0\0", crc)):
        raise Damaged("its checksum does not match: it was changed after it was written")


def _verify_records(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.comment:
                raise Damaged("its checksum is not readable")
            bad = archive.testzip()
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise Damaged(f"truncated, or not one of ours: {error}") from error
    if bad:
        raise Damaged(f"the checksum of its record {bad} does not match")


def save_torch(path: Path, payload: dict[str, Any]) -> None:
    """torch.save, atomic and sealed."""

    def write(file) -> None:
        sealing = Sealing(file)
        try:
            torch.save(payload, cast(BinaryIO, sealing))  # it writes and flushes, no more
        except RuntimeError:
            if sealing.error:  # what torch makes of a failing disk
                raise sealing.error from None
            raise
        sealing.seal()

    write_atomic(path, write)


def out_of_memory(error: BaseException) -> bool:
    """Whether numpy, torch or CUDA ran out of memory, each of which says so in its own way."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "allocate memory" in str(error)
    )


def why_refused(error: Exception) -> str:
    """Why torch.load refused a file, in a line, without torch's advice to load it with
    weights_only=False."""
    text = str(error).strip() or type(error).__name__
    if found := re.search(r"GLOBAL (\S+)", text):
        said = (
            f"it names {found[1]}, which is neither a tensor nor plain Python; nothing was executed"
        )
        if found[1].startswith("agent."):
            said += "; snapshots of URLB-family code: python -m analysis.import_release"
        return said
    found = re.search(r"WeightsUnpickler error: (.+)", text)
    first = (found[1] if found else text.splitlines()[0]).partition(" In PyTorch ")[0].strip()
    if legacy := re.match("Cannot use ``weights_only=True`` with (.+)", first):
        return f"it is one of the {legacy[1]}"
    return first


def load_torch(path: Path, what: str, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Load tensors and plain Python only (`weights_only`), after the checksum: no file can run code
    here."""
    try:
        if path.exists() and not path.is_file():  # a pipe would have the reader wait
            raise Damaged("it is no regular file")
        verify(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of formats that are refused anyway
            payload = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"no {what} at {path}") from None
    except Exception as error:
        if out_of_memory(error):
            raise  # the file may be sound
        raise Unreadable(f"{path} is not a readable {what} ({why_refused(error)})") from error
    if not isinstance(payload, dict) or payload.get("kind") != what:
        raise Unreadable(
            f"{path} holds no {what}, but {type(payload).__name__}; give a file written by pretrain.py"
        )
    return payload


def versions() -> dict[str, str]:
    """The releases of libraries that can move numbers: mujoco, for one, changes contacts between
    releases. And the names of libraries that were put before all others (benchmarks/amd.py makes one)."""
    before = [
        Path(each).name for each in re.split("[ :]+", os.environ.get("LD_PRELOAD", "")) if each
    ]
    releases = {
        name: metadata.version(name)
        for name in ("torch", "numpy", "mujoco", "dm_control", "gymnasium")
    }
    return releases | ({"LD_PRELOAD": " ".join(before)} if before else {})


# ---------------------------------------------------------------------------------------- snapshots


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers without the optimisers that travel in a Trainable's extra state."""
    return {k: v for k, v in module.state_dict().items() if not k.endswith("_extra_state")}


def load_weights(module: torch.nn.Module, state: dict[str, torch.Tensor]) -> None:
    """The counterpart of `weights`: everything must be there but the optimisers."""
    with fitting("the snapshot"):
        missing, unexpected = module.load_state_dict(state, strict=False)
    wrong = [k for k in (*missing, *unexpected) if not k.endswith("_extra_state")]
    if wrong:
        raise UserError(
            f"the snapshot does not fit {type(module).__name__}: {', '.join(wrong[:4])}"
        )


def save_snapshot(path: Path, **payload: Any) -> None:
    save_torch(
        path, {"kind": "snapshot", "format": SNAPSHOT_FORMAT, "versions": versions(), **payload}
    )


def load_snapshot(path: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    payload = load_torch(Path(path), "snapshot", device)
    if payload.get("format") != SNAPSHOT_FORMAT:
        raise UserError(
            f"{path} is a snapshot of format {payload.get('format')!r:.50}; this code reads format "
            f"{SNAPSHOT_FORMAT}"
        )
    problem = not_plain(payload.get("config")) or wrong(Snapshot, payload)
    for part in ("learner", "objective", "skills"):
        problem = problem or not_weights(part, payload.get(part, {}))
    if problem:
        raise Unreadable(f"{path} is not what pretrain.py writes: {problem}")
    return payload


def not_weights(part: str, state: Any) -> str:
    """Why these are no weights by name; empty if they are."""
    if not isinstance(state, dict):
        return f"{part} holds no weights"
    for name, value in state.items():
        dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
        if not isinstance(name, str) or not dense or value.device.type == "meta":
            return f"{part}.{name!s:.100} is no dense tensor"
    return ""


@contextlib.contextmanager
def fitting(path: object):
    """Inside, weights that fit no network become one line."""
    try:
        yield
    except RuntimeError as error:
        if "loading state_dict" not in str(error):
            raise
        reason = str(error).strip().splitlines()[1].strip()
        raise Unreadable(
            f"{path} does not fit the networks that it names: {reason:.200}"
        ) from error


def load_policy(path: str | Path):
    """agent.policy.load_policy under the name that users' scripts know it by."""
    from agent.policy import load_policy

    return load_policy(path)

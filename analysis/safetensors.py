"""The format of model hubs: an 8-byte length, a JSON header, the tensors one after the other.

Written and read here because that is all there is to it; tests read the files with the library.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import torch

from utils import Unreadable, write_atomic

TYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32}
TYPES |= {"U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def save(path: Path, tensors: dict[str, torch.Tensor], about: dict[str, str]) -> None:
    head: dict[str, object] = {"__metadata__": about}
    parts, offset = [], 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        data = tensor.numpy().tobytes()
        head[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        parts.append(data)
        offset += len(data)
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8

    def write(file) -> None:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(parts)

    write_atomic(path, write)


def load(path: Path) -> dict[str, torch.Tensor]:
    data = path.read_bytes()
    try:
        (length,) = struct.unpack("<Q", data[:8])
        head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
        head.pop("__metadata__", None)
        tensors = {}
        for name, told in head.items():
            start, end = told["data_offsets"]
            dtype = TYPES[told["dtype"]]
            numbers = np.frombuffer(bytearray(body[start:end]), str(dtype).removeprefix("torch."))
            tensors[name] = torch.from_numpy(numbers).reshape(told["shape"])
        return tensors
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unreadable(f"{path} is no readable safetensors file ({error})") from error

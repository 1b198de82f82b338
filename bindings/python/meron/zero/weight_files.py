# SPDX-License-Identifier: Apache-2.0
"""Files of weights, read by one process: safetensors, and what torch.save writes."""

from __future__ import annotations

import json
import mmap
import os
import pickle
from pathlib import Path

import torch

from meron import errors

TORCH_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
MOST_HEADER = 100_000_000  # bytes, as safetensors has it


def read_weights(file: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """The tensors of a file, by name. They are in the mapped file, and are not to be written to.

    Of a file of torch.save only tensors and plain containers are read (weights_only); one that has
    its weights under "state_dict", "model" or "module" is understood. Raises NotFoundError,
    CorruptError.
    """
    path = Path(file)
    if not path.is_file():
        raise errors.NotFoundError(
            f"there is no file {path}",
            subject=str(path),
            advice="Give one file of weights; load_pretrained reads a directory.",
        )
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise corrupt(path, f"is not as torch.save writes tensors: {error}") from error
    for key in ("state_dict", "model", "module"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
            break
    if not isinstance(state, dict):
        raise corrupt(path, f"has a {type(state).__name__}, and no tensors by name")
    return {str(name): value for name, value in state.items() if isinstance(value, torch.Tensor)}


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(8)
        length = int.from_bytes(head, "little") if len(head) == 8 else -1
        if not 2 <= length <= min(MOST_HEADER, size - 8):
            raise corrupt(path, f"has {size} bytes, and a header of {length}")
        try:
            header = json.loads(file.read(length))
            entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
            memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            data = torch.frombuffer(memory, dtype=torch.uint8)[8 + length :]
            return {name: tensor_in(data, path, name, entry) for name, entry in entries.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise corrupt(path, f"has a header that cannot be read: {error}") from error


def tensor_in(data: torch.Tensor, path: Path, name: str, entry: dict[str, object]) -> torch.Tensor:
    dtype = TORCH_DTYPES[str(entry["dtype"])]
    shape, offsets = entry["shape"], entry["data_offsets"]
    assert isinstance(shape, list) and isinstance(offsets, list)
    begin, end = map(int, offsets)
    size = dtype.itemsize
    for each in shape:
        size *= int(each)
    if not 0 <= begin <= end <= data.numel() or end - begin != size or min(shape, default=0) < 0:
        raise corrupt(path, f"has '{name}' at bytes {begin} to {end}, of {data.numel()}")
    part = data[begin:end]
    # safetensors aligns the header only.
    part = part if part.data_ptr() % dtype.itemsize == 0 else part.clone()
    return part.view(dtype).view(shape)


def corrupt(path: Path, what: str) -> errors.CorruptError:
    return errors.CorruptError(
        f"{path} {what}", subject=str(path), advice="Copy the file again from where it is from."
    )

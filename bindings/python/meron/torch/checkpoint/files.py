# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch as files have them."""

from __future__ import annotations

import numpy as np
import torch

from meron import errors
from meron.checkpoint import Checkpoint, CheckpointTensor

TORCH_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U8": torch.uint8, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
    "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
FILE_DTYPES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor of the host."""
    if tensor.numel() == 0:
        return np.zeros(0, np.uint8)
    array: np.ndarray = tensor.detach().view(-1).view(torch.uint8).numpy()
    return array


def saved_tensor(
    name: str,
    tensor: torch.Tensor,
    *,
    kind: str = "extra",
    shape: tuple[int, ...] | None = None,
    begin: int = 0,
) -> CheckpointTensor:
    """A tensor of the host, or a part of one, to be saved. `shape` is of the whole."""
    dtype = FILE_DTYPES.get(tensor.dtype)
    if dtype is None or tensor.layout is not torch.strided:
        raise errors.UnsupportedError(
            f"{name} has dtype {tensor.dtype} and layout {tensor.layout}: checkpoints hold dense "
            "tensors of " + ", ".join(str(each) for each in FILE_DTYPES),
            subject=name,
            advice="Convert it, or leave it out of what is saved.",
        )
    data = tensor.detach().contiguous()
    whole = tuple(data.shape) if shape is None else shape
    return CheckpointTensor(name, dtype, whole, bytes_of(data), begin, kind)


def read_tensor(
    checkpoint: Checkpoint, name: str, kind: str, begin: int = 0, count: int | None = None
) -> torch.Tensor:
    """Elements of a tensor of a checkpoint; the tensor's shape if it is read whole. Local."""
    entry = checkpoint.tensors[kind, name]
    shape = tuple(entry["shape"])
    size = int(np.prod(shape, dtype=object))
    many = size - begin if count is None else count
    out = torch.empty(many, dtype=TORCH_DTYPES[entry["dtype"]], device="cpu")
    if many:
        checkpoint.read_into(bytes_of(out), name, kind, begin=begin, count=many)
    return out.view(shape) if many == size else out

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights out of a checkpoint of Meron, in a dtype. Needs zero_to_fp32.py beside it.

    python zero_to_torch.py CHECKPOINT_DIR OUTPUT_DIR --dtype bf16 [--safe_serialization] [-t TAG]

engine.save_checkpoint puts a copy of this file beside the checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

if __package__:
    from meron.zero import zero_to_fp32
else:  # a copy of this file beside checkpoints
    import zero_to_fp32  # type: ignore[import-not-found,no-redef]

__all__ = ["OUTPUT_DTYPE_NAMES", "convert_zero_checkpoint_to_state_dict", "to_torch_tensor"]

OUTPUT_DTYPE_NAMES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "float16": torch.float16,
    "fp16": torch.float16,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
}


def output_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """A dtype by its name. Raises ValueError for others than those of OUTPUT_DTYPE_NAMES."""
    name = str(dtype).removeprefix("torch.").lower()
    if name not in OUTPUT_DTYPE_NAMES:
        known = ", ".join(sorted(OUTPUT_DTYPE_NAMES))
        raise ValueError(f"Unsupported output dtype {dtype!r}: use one of {known}")
    return OUTPUT_DTYPE_NAMES[name]


def convert_zero_checkpoint_to_state_dict(
    checkpoint_dir: zero_to_fp32.PathLike,
    output_dir: zero_to_fp32.PathLike,
    dtype: str | torch.dtype = torch.float32,
    max_shard_size: str | int | None = "5GB",
    safe_serialization: bool = False,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
) -> None:
    """As zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict, with floats in another dtype.

    Args:
        dtype: float32, float16 or bfloat16, or a name of OUTPUT_DTYPE_NAMES. It counts for
            max_shard_size, too. Tensors of integers keep theirs.
    """
    chosen = output_dtype(dtype)
    reader = zero_to_fp32.open_reader(zero_to_fp32.find_checkpoint(checkpoint_dir, tag))
    lazy = zero_to_fp32.lazy_state_dict(reader, exclude_frozen_parameters)
    for value in lazy.values():
        value.cast(chosen)
    zero_to_fp32.write_weights(lazy, Path(output_dir), max_shard_size, safe_serialization)


def to_torch_tensor(
    state_dict: dict[str, Any],
    return_empty_tensor: bool = False,
    dtype: str | torch.dtype | None = None,
) -> dict[str, torch.Tensor]:
    """The tensors of a state dict of lazy_mode, read. Tied ones stay one tensor.

    Args:
        return_empty_tensor: shapes and dtypes alone; nothing is read.
        dtype: of floats; None keeps theirs.
    """
    chosen = None if dtype is None else output_dtype(dtype)
    done: dict[int, torch.Tensor] = {}
    for value in state_dict.values():
        if id(value) in done:
            continue
        target = chosen if chosen is not None and value.dtype.is_floating_point else value.dtype
        empty = torch.empty(tuple(value.shape), dtype=target) if return_empty_tensor else None
        done[id(value)] = value.contiguous().to(target) if empty is None else empty
    return {name: done[id(value)] for name, value in state_dict.items()}


def main(argv: list[str] | None = None) -> None:
    prog = "zero_to_torch.py"
    parser = zero_to_fp32.make_parser(prog, "weights")
    parser.add_argument("--dtype", choices=sorted(OUTPUT_DTYPE_NAMES), required=True)
    given = parser.parse_args(argv)
    zero_to_fp32.convert(given, prog, OUTPUT_DTYPE_NAMES[given.dtype])


if __name__ == "__main__":
    main()

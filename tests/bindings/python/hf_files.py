# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files, and models as Hugging Face publishes them, without its packages."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NAMES = {"f8": "F64", "f4": "F32", "f2": "F16", "u2": "BF16", "i8": "I64"}  # u2: bits of bfloat16


def bf16(values: Array) -> Array:
    """The bits of values that bfloat16 has exactly."""
    return (np.asarray(values, "<f4").view("<u4") >> 16).astype("<u2")


def write_file(path: Path, tensors: Mapping[str, Array]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": NAMES[array.dtype.str[1:]],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    data = b"".join(array.tobytes() for array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(folder: Path, *shards: Mapping[str, Array]) -> None:
    """One file, or several with an index."""
    folder.mkdir(exist_ok=True)
    if len(shards) == 1:
        write_file(folder / "model.safetensors", shards[0])
        return
    places = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_file(folder / name, shard)
        places.update(dict.fromkeys(shard, name))
    index = {"metadata": {"total_size": 0}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")

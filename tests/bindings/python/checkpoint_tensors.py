# SPDX-License-Identifier: Apache-2.0
"""Tensors of the caller in checkpoints: parts of them, and how they are saved and read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import ranks
from test_checkpoint_format import documented_load

import meron
from meron import CheckpointTensor

Parts = Callable[[int], list[CheckpointTensor]]

WHOLE = np.arange(20, dtype="<f4").reshape(4, 5)


def part(
    whole: np.ndarray[Any, Any],
    begin: int = 0,
    end: int | None = None,
    *,
    name: str = "t",
    kind: str = "extra",
    dtype: str = "F32",
) -> CheckpointTensor:
    data = np.ascontiguousarray(whole.reshape(-1)[begin:end])
    return CheckpointTensor(name, dtype, whole.shape, data, begin, kind)


def save(folder: Path, count: int, parts: Parts, **options: Any) -> Path:
    def body(ctx: meron.Context) -> None:
        ctx.save(folder, "one", tensors=parts(ctx.rank), **options)

    ranks.threads(count, body)
    return folder / "one"


def manifest_of(checkpoint: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((checkpoint / "meron.json").read_text("utf-8"))
    return manifest


def documented_read(checkpoint: Path, kind: str) -> dict[str, np.ndarray[Any, Any]]:
    return dict(documented_load()(checkpoint, kind))

# SPDX-License-Identifier: Apache-2.0
"""Detects the format of a path."""

from __future__ import annotations

import os
from pathlib import Path

from meron.convert import dcp, deepspeed, plain, universal
from meron.convert.content import Content, ConvertError

READERS = {
    "deepspeed": deepspeed.read,
    "universal": universal.read,
    "dcp": dcp.read,
    "torch": plain.read,
}


def format_of(path: Path, tag: str | None = None) -> str:
    """One of READERS; ConvertError says what was looked for."""
    if not path.exists():
        raise ConvertError(f"{path}: no such file or folder")
    if path.is_file():
        return "torch"
    inner = path / tag if tag else path
    if universal.is_universal(inner) or (tag is None and (path / "latest_universal").is_file()):
        return "universal"
    if dcp.is_dcp(inner):
        return "dcp"
    if deepspeed.is_step_folder(inner) or (path / "latest").is_file():
        return "deepspeed"
    single = [path / name for name in ("pytorch_model.bin", "model.pt") if (path / name).is_file()]
    if single:
        raise ConvertError(f"{path} is a folder: pass the file, {single[0]}")
    raise ConvertError(
        f"{path} is no checkpoint that is known: not DeepSpeed's (latest, *_model_states.pt), not "
        "a universal one (zero/), not torch.distributed.checkpoint's (.metadata), not a file"
    )


def read(
    path: str | os.PathLike[str],
    *,
    format: str = "auto",
    tag: str | None = None,
    trust: bool = False,
) -> Content:
    """Reads a checkpoint of another program. Runs code in it only if `trust` is true."""
    source = Path(path)
    chosen = format_of(source, tag) if format == "auto" else format
    if chosen not in READERS:
        raise ConvertError(f"unknown format {format!r}: auto, {', '.join(READERS)} are known")
    return READERS[chosen](source, tag, trust)

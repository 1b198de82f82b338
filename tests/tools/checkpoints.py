# SPDX-License-Identifier: Apache-2.0
"""Checkpoints for the tests of the command, written by docs/checkpoint-format.md alone."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PAGE, BLOCK = 4096, 1 << 20
WIDTHS = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "I64": 8}


def crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = crc_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Tensor(NamedTuple):
    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def tensor(name: str, values: Any, kind: str = "values", dtype: str = "F32") -> Tensor:
    array = np.asarray(values)
    if dtype == "BF16":
        data = (array.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        numpy = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8"}[dtype]
        data = array.astype(numpy).tobytes()
    return Tensor(name, kind, dtype, array.shape, data)


def header(entries: dict[str, Any], metadata: dict[str, str], align: int = PAGE) -> bytes:
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    size = -(-(8 + len(text)) // align) * align
    return struct.pack("<Q", size - 8) + text.ljust(size - 8)


def cut(count: int, ranks: int) -> list[tuple[int, int]]:
    return [(count * r // ranks, count * (r + 1) // ranks) for r in range(ranks)]


def write_checkpoint(
    path: Path, tensors: list[Tensor], ranks: int = 1, step: int = 1, **changes: Any
) -> Path:
    """A checkpoint of so many ranks; `changes` are keys of the manifest."""
    path.mkdir(parents=True)
    identity = "0123456789abcdef" * 2
    files: list[dict[str, Any]] = []
    pieces: dict[tuple[str, str], list[list[int]]] = {(t.kind, t.name): [] for t in tensors}
    for rank in range(ranks):
        for values in (True, False):
            chosen = [t for t in tensors if (t.kind == "values") == values]
            chosen.sort(key=lambda t: -WIDTHS[t.dtype])
            entries, data, places = {}, b"", []
            for t in chosen:
                width = WIDTHS[t.dtype]
                count = len(t.data) // width
                begin, end = cut(count, ranks)[rank]
                if begin == end:
                    continue
                whole = end - begin == count
                name = t.name if t.kind == "values" else f"{t.kind}:{t.name}"
                entries[name if whole else f"{name}[{begin}:{end}]"] = {
                    "dtype": t.dtype,
                    "shape": list(t.shape) if whole else [end - begin],
                    "data_offsets": [len(data), len(data) + (end - begin) * width],
                }
                places.append((t, begin, end - begin, len(data)))
                data += t.data[begin * width : end * width]
            if not places:
                continue
            head = header(entries, {"format": "pt", "meron.id": identity})
            content = head + data
            kind = "values" if values else "state"
            name = f"{kind}-{rank:05}-of-{ranks:05}.safetensors"
            for t, begin, count, offset in places:
                pieces[t.kind, t.name].append([len(files), begin, count, len(head) + offset])
            blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
            crc = "".join(f"{crc32c(block):08x}" for block in blocks)
            files.append({"name": name, "rank": rank, "node": 0, "bytes": len(content), "crc": crc})
            (path / name).write_bytes(content)
    manifest = {
        "format": "meron-checkpoint",
        "version": 1,
        "id": identity,
        "name": path.name,
        "step": step,
        "created": "2026-11-25T08:00:00Z",
        "writer": "a test",
        "world": ranks,
        "nodes": 1,
        "complete": True,
        "block_bytes": BLOCK,
        "plan": {"name": "zero3"},
        "extra": {"epoch": 3},
        "optimizers": [],
        "files": files,
        "tensors": [
            {
                "name": t.name,
                "kind": t.kind,
                "dtype": t.dtype,
                "shape": list(t.shape),
                "pieces": pieces[t.kind, t.name],
            }
            for t in tensors
        ],
        **changes,
    }
    (path / "meron.json").write_text(sealed(json.dumps(manifest)))
    return path


def sealed(manifest: str) -> str:
    """The text of a manifest with the checksum at its end."""
    text = manifest.removesuffix("}").rstrip() + ",\n"
    return f'{text}"crc": "{crc32c(text.encode()):08x}"\n}}\n'


def read_checkpoint(path: Path) -> dict[tuple[str, str], Tensor]:
    """By kind and name."""
    manifest = json.loads((path / "meron.json").read_text())
    found = {}
    for t in manifest["tensors"]:
        data = b""
        for file, begin, count, offset in t["pieces"]:
            width = WIDTHS[t["dtype"]]
            assert begin * width == len(data)
            content = (path / manifest["files"][file]["name"]).read_bytes()
            data += content[offset : offset + count * width]
        found[t["kind"], t["name"]] = Tensor(
            t["name"], t["kind"], t["dtype"], tuple(t["shape"]), data
        )
    return found


def write_model(path: Path, tensors: list[Tensor]) -> Path:
    """A safetensors file."""
    entries, data = {}, b""
    for t in tensors:
        entries[t.name] = {
            "dtype": t.dtype,
            "shape": list(t.shape),
            "data_offsets": [len(data), len(data) + len(t.data)],
        }
        data += t.data
    path.write_bytes(header(entries, {"format": "pt"}, 8) + data)
    return path


def read_model(path: Path) -> dict[str, Tensor]:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    entries = json.loads(content[8 : 8 + length])
    entries.pop("__metadata__")
    found = {}
    for name, entry in entries.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        found[name] = Tensor(
            name, "values", entry["dtype"], tuple(entry["shape"]), content[begin:end]
        )
    return found

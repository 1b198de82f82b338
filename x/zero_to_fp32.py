#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""f32 weights out of a checkpoint of Meron, by DeepSpeed's names. Needs only torch and numpy.

    python zero_to_fp32.py CHECKPOINT_DIR OUTPUT_DIR [--safe_serialization] [-t TAG]

engine.save_checkpoint puts a copy of this file beside the checkpoints. Where a tensor has an f32
master, that is read. Tensors are read and written one at a time.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import numpy as np
import torch

__all__ = [
    "convert_zero_checkpoint_to_fp32_state_dict",
    "get_fp32_state_dict_from_zero_checkpoint",
    "load_state_dict_from_zero_checkpoint",
]

PathLike = Union[str, "os.PathLike[str]"]
MANIFEST = "meron.json"
DTYPES = {
    "F64": ("<f8", torch.float64), "F32": ("<f4", torch.float32), "F16": ("<f2", torch.float16),
    "BF16": ("<i2", torch.bfloat16), "I64": ("<i8", torch.int64), "I32": ("<i4", torch.int32),
    "I16": ("<i2", torch.int16), "I8": ("i1", torch.int8), "U8": ("u1", torch.uint8),
    "BOOL": ("?", torch.bool),
}  # fmt: skip
NAMES = {dtype: name for name, (_, dtype) in DTYPES.items()}
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
         "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


class Lazy:
    """A tensor that is read when `contiguous()` is called."""

    def __init__(self, folder: Path, files: list[dict[str, Any]], entry: dict[str, Any]) -> None:
        self.folder = folder
        self.files = files
        self.entry = entry
        self.shape = torch.Size(entry["shape"])
        stored = DTYPES[entry["dtype"]][1]
        self.dtype = torch.float32 if stored.is_floating_point else stored

    def numel(self) -> int:
        return self.shape.numel()

    def contiguous(self) -> torch.Tensor:
        kind, stored = DTYPES[self.entry["dtype"]]
        out = np.empty(self.numel(), kind)
        for file, begin, count, offset in self.entry["pieces"]:
            name = self.files[file]["name"]
            if os.path.basename(name) != name or name.startswith("."):
                raise ValueError(f"{self.folder} names a file outside of it: {name!r}")
            path = self.folder / name
            part = np.fromfile(path, out.dtype, count, offset=offset)
            if len(part) != count:
                raise ValueError(f"{path} is too short for '{self.entry['name']}'")
            out[begin : begin + count] = part
        return torch.from_numpy(out).view(stored).to(self.dtype).reshape(self.shape)


class LazyDict(Mapping[str, torch.Tensor]):
    """The state dict of a checkpoint, as it is saved; a value is read when it is used."""

    def __init__(self, folder: Path) -> None:
        self.tensors = lazy_state_dict(folder, False, ("values",))

    def __getitem__(self, name: str) -> torch.Tensor:
        lazy = self.tensors[name]
        return lazy.contiguous().to(DTYPES[lazy.entry["dtype"]][1])

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def find_checkpoint(checkpoint_dir: PathLike, tag: str | None = None) -> Path:
    """The directory of a checkpoint: `tag`, or the one that the file `latest` names."""
    folder = Path(checkpoint_dir)
    if tag is None and not (folder / MANIFEST).is_file():
        if not (folder / "latest").is_file():
            raise ValueError(f"Unable to find 'latest' file at {folder / 'latest'}")
        tag = (folder / "latest").read_text("utf-8").strip()
    if tag is not None:
        folder = folder / tag
    if not folder.is_dir():
        raise FileNotFoundError(f"Directory '{folder}' doesn't exist")
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} is no checkpoint of Meron: it has no {MANIFEST}")
    return folder


def lazy_state_dict(
    folder: Path, exclude_frozen: bool, kinds: tuple[str, ...] = ("values", "master")
) -> dict[str, Lazy]:
    """All of a checkpoint's tensors of a model, tied ones under each of their names. Of several
    kinds the last that is there counts."""
    manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    if manifest["version"] != 1:
        raise ValueError(f"{folder} is of version {manifest['version']}: this file reads version 1")
    found: dict[str, Lazy] = {}
    for kind in kinds:
        for entry in manifest["tensors"]:
            if entry["kind"] == kind:
                found[entry["name"]] = Lazy(folder, manifest["files"], entry)
    extra = manifest["extra"]
    for alias, name in extra.get("meron.torch", {}).get("aliases", {}).items():
        if name in found:
            found[alias] = found[name]
    if exclude_frozen:
        for name in extra.get("meron.zero", {}).get("frozen", ()):
            found.pop(name, None)
    return found


def get_fp32_state_dict_from_zero_checkpoint(
    checkpoint_dir: PathLike,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
    lazy_mode: bool = False,
) -> dict[str, Any]:
    """The model's state dict, floats in f32.

    Args:
        checkpoint_dir: the folder that has the folder `tag`; or that folder.
        tag: default is what the file `latest` says.
        exclude_frozen_parameters: leaves out what did not require gradients.
        lazy_mode: values are read by their `contiguous()`.
    """
    lazy = lazy_state_dict(find_checkpoint(checkpoint_dir, tag), exclude_frozen_parameters)
    if lazy_mode:
        return dict(lazy)
    return read_all(lazy)


def read_all(lazy: dict[str, Lazy]) -> dict[str, torch.Tensor]:
    """The tensors, tied ones as one."""
    done: dict[int, torch.Tensor] = {}
    for value in lazy.values():
        if id(value) not in done:
            done[id(value)] = value.contiguous()
    return {name: done[id(value)] for name, value in lazy.items()}


def load_state_dict_from_zero_checkpoint(
    model: torch.nn.Module, checkpoint_dir: PathLike, tag: str | None = None
) -> torch.nn.Module:
    """Loads the f32 weights of a checkpoint into a model, which is moved to the CPU, and returns
    it. (For a sharded model engine.load_checkpoint is the way.)"""
    state = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag)
    model = model.cpu()
    model.load_state_dict(state, strict=False)
    return model


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: PathLike,
    output_dir: PathLike,
    max_shard_size: str | int | None = "5GB",
    safe_serialization: bool = False,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
) -> None:
    """Writes the f32 weights of a checkpoint as Hugging Face publishes models.

    Args:
        checkpoint_dir, tag, exclude_frozen_parameters: as above.
        output_dir: gets pytorch_model.bin or model.safetensors; several of them and an index, where
            one would be above max_shard_size.
        max_shard_size: bytes, or as "5GB"; None: one file.
        safe_serialization: safetensors, with tied tensors once; else what torch.save writes.
    """
    lazy = lazy_state_dict(find_checkpoint(checkpoint_dir, tag), exclude_frozen_parameters)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    base = "model.safetensors" if safe_serialization else "pytorch_model.bin"
    stem, suffix = os.path.splitext(base)
    shards = split(lazy, size_of(max_shard_size))
    index: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        many = len(shards) > 1
        name = f"{stem}-{number:05}-of-{len(shards):05}{suffix}" if many else base
        if safe_serialization:
            names = list({id(lazy[each]): each for each in reversed(names)}.values())[::-1]
            write_safetensors(
                folder / name,
                [(each, lazy[each].dtype, tuple(lazy[each].shape)) for each in names],
                (lazy[each].contiguous() for each in names),
            )
        else:
            part = folder / f".{name}.part"
            torch.save(read_all({each: lazy[each] for each in names}), part)
            os.replace(part, folder / name)
        index.update(dict.fromkeys(names, name))
    if len(shards) > 1:
        total = sum(lazy[each].numel() * lazy[each].dtype.itemsize for each in index)
        table = {"metadata": {"total_size": total}, "weight_map": index}
        (folder / f"{base}.index.json").write_text(json.dumps(table, indent=2), "utf-8")


def size_of(text: str | int | None) -> int | None:
    if text is None or isinstance(text, int):
        return text
    found = re.fullmatch(r"\s*([0-9.]+)\s*([A-Za-z]*)\s*", text)
    if not found or found[2].upper() not in UNITS:
        raise ValueError(f"max_shard_size is {text!r}: a size is written as '5GB'")
    return int(float(found[1]) * UNITS[found[2].upper()])


def split(lazy: dict[str, Lazy], most: int | None) -> list[list[str]]:
    """Names by file: as many of them as fit, tied ones together."""
    together: dict[int, list[str]] = collections.defaultdict(list)
    for name, value in lazy.items():
        together[id(value)].append(name)
    shards: list[list[str]] = [[]]
    room = 0
    for names in together.values():
        value = lazy[names[0]]
        size = value.numel() * value.dtype.itemsize
        if most is not None and shards[-1] and room + size > most:
            shards.append([])
            room = 0
        shards[-1] += names
        room += size
    return shards


def write_safetensors(
    path: Path,
    entries: Iterable[tuple[str, torch.dtype, tuple[int, ...]]],
    values: Iterable[torch.Tensor],
) -> None:
    """A safetensors file of tensors that arrive one after the other; it exists whole or not."""
    entries = list(entries)
    sizes = [int(np.prod(shape, dtype=object)) * dtype.itemsize for _, dtype, shape in entries]
    ends = list(itertools.accumulate(sizes, initial=0))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for (name, dtype, shape), begin, end in zip(entries, ends, ends[1:]):
        dtype_name = NAMES[dtype]
        header[name] = {"dtype": dtype_name, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in values:
            flat = value.detach().contiguous().reshape(-1)
            file.write(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="f32 weights out of a checkpoint of Meron")
    parser.add_argument("checkpoint_dir", help="the folder that has the checkpoints and `latest`")
    parser.add_argument("output_dir", help="receives the weights")
    parser.add_argument("--max_shard_size", default="5GB", help="of a file, as 5GB")
    parser.add_argument("--safe_serialization", action="store_true", help="write safetensors")
    parser.add_argument("-t", "--tag", help="the checkpoint; default is what `latest` says")
    parser.add_argument("--exclude_frozen_parameters", action="store_true")
    parser.add_argument("-d", "--debug", action="store_true", help="without effect")
    given = parser.parse_args(argv)
    convert_zero_checkpoint_to_fp32_state_dict(
        given.checkpoint_dir,
        given.output_dir,
        given.max_shard_size,
        given.safe_serialization,
        given.tag,
        given.exclude_frozen_parameters,
    )


if __name__ == "__main__":
    main()

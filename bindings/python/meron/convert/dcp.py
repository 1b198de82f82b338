# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch.distributed.checkpoint, as FSDP2, torchtitan and Lightning write them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as torch_dcp
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from meron.convert import pickles
from meron.convert.content import Content, ConvertError, Found, plain_number, state_kind

OPTIMIZER = re.compile(
    r"(?:.*?\.)?(?:optim|optimizer|optimizers|optimizer_0)\.(state|param_groups)\.(.+)"
)


def is_dcp(path: Path) -> bool:
    return (path / ".metadata").is_file()


class Reader(torch_dcp.FileSystemReader):
    """Reads the index by pickles.load_metadata; the tensors by torch, weights only."""

    def __init__(self, path: Path, metadata: Any) -> None:
        super().__init__(path)
        self.given = metadata

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self.given  # type: ignore[no-any-return]


def read(path: Path, tag: str | None = None, trust: bool = False) -> Content:
    folder = path / tag if tag else path
    metadata = pickles.load_metadata(folder / ".metadata", trust)
    if not isinstance(metadata, Metadata):
        raise ConvertError(f"{folder}/.metadata is no index of torch.distributed.checkpoint")
    check_places(folder, metadata)
    entries = metadata.state_dict_metadata
    tensors = {
        key: torch.empty(entry.size, dtype=entry.properties.dtype)
        for key, entry in entries.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    try:
        torch_dcp.load(dict(tensors), storage_reader=Reader(folder, metadata), no_dist=True)
    except Exception as error:  # of many kinds, in an exception of its own
        raise ConvertError(f"{folder} cannot be read: {first_line(error)}") from error
    content = Content("a checkpoint of torch.distributed.checkpoint")
    values = {key: tensor for key, tensor in tensors.items() if not OPTIMIZER.fullmatch(key)}
    prefix = common_prefix(values)
    groups: dict[str, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        match = OPTIMIZER.fullmatch(key)
        if match is None:
            content.tensors.append(Found.whole(key.removeprefix(prefix), "values", tensor))
        elif match[1] == "state":
            name, _, state = match[2].rpartition(".")
            if state == "step":
                content.optimizer_steps = int(tensor)
            else:
                content.tensors.append(Found.whole(name, state_kind(state), tensor))
        else:
            index, _, number = match[2].rpartition(".")
            groups.setdefault(index, {})[number] = plain_number(tensor)
    read_bytes(folder, metadata, content, groups, trust)
    add_groups(content, groups)
    content.infer_rule()
    if not content.tensors:
        raise ConvertError(f"{folder} holds no tensors")
    return content


def check_places(folder: Path, metadata: Metadata) -> None:
    """ConvertError if the index names a file outside of the folder, or one that is no file."""
    storage = metadata.storage_data
    for info in storage.values() if isinstance(storage, dict) else ():
        name: Any = getattr(info, "relative_path", None)
        plain = isinstance(name, str) and Path(name).name == name and "\0" not in name
        if not plain or name in ("", ".."):
            raise ConvertError(f"{folder}/.metadata names a file outside of its folder: {name!r}")
        if (folder / name).is_symlink():
            raise ConvertError(
                f"{folder / name} is a link, which may lead out of the folder. Copy the file there"
            )


def add_groups(content: Content, groups: dict[str, dict[str, Any]]) -> None:
    """Groups by their index, or by the name of each param where the state dict was flattened."""
    if all(index.isdigit() for index in groups):
        numbers = [groups[index] for index in sorted(groups, key=int)]
        content.add_groups([group.get("params") or [] for group in numbers], numbers)
        return
    names = sorted(groups)
    first = groups[names[0]]
    if all(group == first for group in groups.values()):
        content.add_groups([names], [first])
        return
    content.add_groups([[name] for name in names], [groups[name] for name in names])
    content.left_out.append(
        f"param_groups: the numbers are saved by param, not by group: imported as {len(names)} "
        "groups of one param each"
    )


def read_bytes(
    folder: Path, metadata: Any, content: Content, groups: dict[str, dict[str, Any]], trust: bool
) -> None:
    """Entries that are no tensors: numbers of groups, counts, the caller's own."""
    others = {
        key: None
        for key, entry in metadata.state_dict_metadata.items()
        if not isinstance(entry, TensorStorageMetadata)
    }
    for key in others:
        one: dict[str, Any] = {key: None}
        try:
            torch_dcp.load(one, storage_reader=Reader(folder, metadata), no_dist=True)
        except Exception as error:
            content.left_out.append(f"{key}: {first_line(error)}")
            continue
        match = OPTIMIZER.fullmatch(key)
        if match is not None and match[1] == "param_groups":
            index, _, number = match[2].rpartition(".")
            groups.setdefault(index, {})[number] = one[key]
        elif match is not None and match[2].endswith(".step") and is_number(one[key]):
            content.optimizer_steps = int(one[key])
        elif key.rpartition(".")[2] in ("step", "global_step") and isinstance(one[key], int):
            content.step = one[key]
        else:
            content.keep_json([(key, one[key])])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def common_prefix(names: Any) -> str:
    """The names' common prefix that stems from the saved dict, and not from the model."""
    prefix = ""
    for level in (("state_dict.", "app."), ("model.", "module.")):
        for more in level:
            if names and all(name.startswith(prefix + more) for name in names):
                prefix += more
                break
    return prefix


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__

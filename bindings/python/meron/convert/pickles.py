# SPDX-License-Identifier: Apache-2.0
"""Pickled files. Code in them runs only if the caller trusts them.

torch's own unpickler reads tensors and plain containers. Objects of DeepSpeed (a loss scaler, an
enum) become `Inert`: a bag of their fields. For any other object, the file is rejected, and the
error names the object.
"""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any, ClassVar

import torch

from meron.convert.content import ConvertError

INERT_PACKAGES = ("deepspeed.",)


class Inert:
    """Stands for an object of another package: its arguments and fields, and no code."""

    args: tuple[Any, ...]

    def __new__(cls, *args: Any, **_: Any) -> Inert:
        made = super().__new__(cls)
        made.args = args
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __hash__(self) -> int:
        return id(self)


def inert(name: str) -> type[Inert]:
    return type(name.rsplit(".", 1)[-1], (Inert,), {})


def load(path: Path, trust: bool) -> Any:
    """Reads a file of torch.save, with tensors mapped from the file.

    ConvertError names the objects that would need `trust`.
    """
    if not path.is_file():
        raise ConvertError(
            f"{path}: no such file. The checkpoint is incomplete: copy all its files"
        )
    try:
        if trust:
            return load_mapped(path, weights_only=False)
        names = foreign_names(path)
        foreign = [name for name in names if not name.startswith(INERT_PACKAGES)]
        if foreign:
            raise ConvertError(
                f"{path} holds objects whose code would have to run: {', '.join(sorted(foreign))}. "
                "If you trust whoever made it, pass --trust"
            )
        stand_ins: list[Any] = [(inert(name), name) for name in names]
        with torch.serialization.safe_globals(stand_ins):
            return load_mapped(path, weights_only=True)
    except ConvertError:
        raise
    except Exception as error:  # an unpickler that reads a damaged file raises anything
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConvertError(f"{path} cannot be read: {first}") from error


def is_zipped(path: Path) -> bool:
    """Files that torch wrote before version 1.6 are not: they cannot be mapped."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def foreign_names(path: Path) -> list[str]:
    """Classes and functions that the file needs and torch does not know as harmless.

    None for old files: torch's unpickler refuses them by itself.
    """
    if not is_zipped(path):
        return []
    return torch.serialization.get_unsafe_globals_in_checkpoint(os.fspath(path))


def load_mapped(path: Path, weights_only: bool) -> Any:
    mapped = is_zipped(path)
    return torch.load(path, map_location="cpu", weights_only=weights_only, mmap=mapped)


class MetadataUnpickler(pickle.Unpickler):
    """Reads the index of a torch.distributed.checkpoint: torch's own descriptions only."""

    ALLOWED: ClassVar[dict[str, set[str]]] = {
        "torch": {"Size", "device", "strided", "contiguous_format", "preserve_format"},
        "torch.serialization": {"_get_layout"},
        "torch._utils": {"_rebuild_device_tensor_from_numpy"},
        "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
        "torch.distributed.checkpoint.metadata": {
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        },
        "collections": {"OrderedDict", "defaultdict"},
        "pathlib": {"PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath", "Path"},
        "builtins": {"list", "dict", "tuple", "set", "int", "str", "slice"},
    }

    def find_class(self, module: str, name: str) -> Any:
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if dtype or name in self.ALLOWED.get(module, ()):
            return super().find_class(module, name)
        raise ConvertError(f"the index names {module}.{name}, which no index needs: it is not read")


def load_metadata(path: Path, trust: bool) -> Any:
    if not path.is_file():
        raise ConvertError(
            f"{path}: no such file. The checkpoint is incomplete: copy all its files"
        )
    content = path.read_bytes()
    try:
        if trust:
            return pickle.loads(content)
        return MetadataUnpickler(io.BytesIO(content)).load()
    except ConvertError as error:
        raise ConvertError(f"{path}: {error}. If you trust whoever made it, pass --trust") from None
    except Exception as error:
        raise ConvertError(f"{path} cannot be read: {error}") from error

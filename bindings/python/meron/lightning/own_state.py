# SPDX-License-Identifier: Apache-2.0
"""Lightning's own state in a checkpoint: loops, callbacks, schedulers, hyperparameters.

It is JSON (`meron.lightning.json`) and tensors (`meron.lightning.0`, ...), both extra tensors of
the checkpoint. Objects that JSON cannot hold are together one pickle (`meron.lightning.pickle`),
and the checkpoint's `extra` lists their names. A checkpoint without such objects has no pickle.

A pickle can run code when it is read. By default torch's restricted unpickler reads this one, and
runs none. With weights_only=False the caller trusts it. In version 1 all of the state was a pickle.
"""

from __future__ import annotations

import collections
import io
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from meron import errors
from meron.checkpoint import Checkpoint
from meron.torch.checkpoint import packing
from meron.torch.checkpoint.agreement import LoadError
from meron.torch.checkpoint.files import FILE_DTYPES, read_tensor

KEY = "meron.lightning"  # of `extra`, and of the tensors' names
VERSION = 2
JSON = f"{KEY}.json"
PICKLE = f"{KEY}.pickle"
DEEPEST = 64  # level of JSON; what is deeper is pickled
MOST_BITS = 4096  # of a number in JSON, whose readers bound its digits
MOST_NAMES = 100  # of pickled objects that `extra` lists


class Packed:
    """A state as a checkpoint holds it.

    Attributes:
        tensors: all that is saved, by name.
        pickled: names of the objects in the pickle, such as "state['hyper_parameters']['loss']".
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        """Raises ArgumentError for an object that cannot be pickled."""
        self.tensors: dict[str, torch.Tensor] = {}
        self.pickled: list[str] = []
        self._names: dict[int, str] = {}  # of tensors, by their identity
        self._alive: list[Any] = []
        self._objects: list[Any] = []
        document = self._pack(dict(state), "state", 0)
        text = json.dumps(document, allow_nan=False).encode()
        self.tensors[JSON] = as_tensor(text)
        if self._objects:
            self.tensors[PICKLE] = as_tensor(self._pickle())

    def entry(self) -> dict[str, Any]:
        """Its entry in `extra`."""
        return {"version": VERSION, "pickled": self.pickled[:MOST_NAMES]}

    def _pack(self, value: Any, what: str, depth: int) -> Any:
        """JSON for a value. Exact types only: a subclass may be more than its base."""
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int and value.bit_length() <= MOST_BITS:
            return value
        if kind is float:
            return packing.pack(value, what)
        if depth > DEEPEST:
            return self._object(value, what)
        if kind in (list, tuple, set):
            items = [self._pack(item, f"{what}[{i}]", depth + 1) for i, item in enumerate(value)]
            return items if kind is list else {f"${kind.__name__}": items}
        if kind in (dict, collections.OrderedDict, collections.Counter):
            return self._pack_dict(value, what, depth)
        if kind is torch.Tensor and is_plain(value):
            return {"$tensor_of": self._tensor(value)}
        if isinstance(value, (np.ndarray, np.generic)) and is_plain_array(value):
            return {"$numpy": [self._array(value), isinstance(value, np.generic)]}
        if kind is type(pathlib.Path()):
            return {"$path": str(value)}
        if kind is bytes:
            return {"$bytes": value.hex()}
        return self._object(value, what)

    def _pack_dict(self, value: Mapping[Any, Any], what: str, depth: int) -> Any:
        kind = type(value)
        items = [
            [key, self._pack(item, f"{what}[{key!r}]", depth + 1)] for key, item in value.items()
        ]
        if kind is dict and all(type(key) is str and not key.startswith("$") for key in value):
            return dict(items)
        pairs = [[self._pack(key, f"{what}, a key", depth + 1), item] for key, item in items]
        names = {dict: "$dict", collections.Counter: "$counter"}
        return {names.get(kind, "$ordered"): pairs}

    def _tensor(self, value: torch.Tensor) -> str:
        """The name of a tensor; one that occurs twice has one name."""
        if id(value) not in self._names:
            self._alive.append(value)
            name = f"{KEY}.{len(self._names)}"
            self._names[id(value)] = name
            self.tensors[name] = value.detach().cpu()
        return self._names[id(value)]

    def _array(self, value: Any) -> str:
        return self._tensor(torch.from_numpy(np.array(value)))

    def _object(self, value: Any, what: str) -> Any:
        self.pickled.append(f"{what} (a {type(value).__name__})"[:200])
        self._objects.append(value)
        return {"$pickled": len(self._objects) - 1}

    def _pickle(self) -> bytes:
        try:
            return pickled(self._objects)
        except Exception:
            for name, value in zip(self.pickled, self._objects, strict=True):
                try:
                    pickled(value)
                except Exception as error:
                    raise errors.argument(
                        f"the checkpoint's {name} can be neither JSON nor a pickle: {error}",
                        subject=name,
                        advice="Leave it out of hyperparameters and of what hooks add.",
                    ) from error
            raise


def pickled(value: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def as_tensor(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def is_plain(value: torch.Tensor) -> bool:
    """True if a checkpoint holds all of a tensor: its values, dtype and shape."""
    dense = value.layout is torch.strided and not value.is_meta and not value.is_quantized
    return dense and value.dtype in FILE_DTYPES and not value.requires_grad


def is_plain_array(value: Any) -> bool:
    kind = type(value) is np.ndarray or isinstance(value, np.generic)
    return kind and value.dtype.isnative and value.dtype.kind in "biuf" and value.itemsize <= 8


# ---- Reading ------------------------------------------------------------------------------------


class NoState(LookupError):
    """A checkpoint that Lightning has not saved."""


def read(checkpoint: Checkpoint, weights_only: bool | None) -> dict[str, Any]:
    """Lightning's state of a checkpoint, after its checksums were compared. Local.

    Args:
        weights_only: False trusts the maker of the checkpoint: the objects in its pickle may run
            code. With True and None torch's restricted unpickler reads them; None is torch's own
            default, which the variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD changes.

    Raises NoState, LoadError (a pickle needs trust), VersionError,
    ParseError, CorruptError.
    """
    own = checkpoint.extra.get(KEY)
    if own is None:
        raise NoState(f"{checkpoint.path} has no state of Lightning")
    version = own.get("version") if isinstance(own, dict) else None
    if type(version) is not int or version > VERSION:
        raise errors.make(
            errors.VersionError.status,
            f"its state of Lightning has version {version}; this one reads {VERSION}",
            subject=str(checkpoint.path),
            advice="Install a newer Meron.",
        )
    if version == 1:
        found = unpickle(checkpoint, KEY, weights_only, ["Lightning's state, by an older Meron"])
    else:
        found = read_json(checkpoint, weights_only, own.get("pickled"))
    if not isinstance(found, dict):
        raise packing.unreadable("Lightning's state", TypeError(f"a {type(found).__name__}"))
    return found


def read_json(checkpoint: Checkpoint, weights_only: bool | None, listed: Any) -> Any:
    tensors: dict[str, torch.Tensor] = {}
    objects: list[Any] = []
    names = [str(name) for name in listed] if isinstance(listed, list) else []

    def tensor(name: Any) -> torch.Tensor:
        if not isinstance(name, str) or not name.startswith(f"{KEY}."):
            raise ValueError(f"{name!r} is no tensor of Lightning's state")
        if name not in tensors:
            tensors[name] = tensor_of(checkpoint, name)
        return tensors[name]

    def special(key: str, content: Any) -> Any:
        if key == "$tensor_of":
            return tensor(content)
        if key == "$numpy":
            name, is_scalar = content
            array = tensor(name).numpy()
            return array[()] if is_scalar else array
        if key == "$path":
            return pathlib.Path(content)
        if key == "$bytes":
            return bytes.fromhex(content)
        if key == "$set":
            return {packing.unpack(item, special) for item in content}
        if key == "$ordered":
            pairs = [(packing.unpack(k, special), packing.unpack(v, special)) for k, v in content]
            return collections.OrderedDict(pairs)
        if key == "$pickled":
            if not objects:
                objects.append(unpickle(checkpoint, PICKLE, weights_only, names))
            if type(content) is not int or content < 0:
                raise ValueError(f"object {content!r} of the pickle")
            return objects[0][content]
        raise ValueError(f"unknown object {key!r}")

    text = tensor_of(checkpoint, JSON).numpy().tobytes()
    return packing.loads(text, "Lightning's state", special)


def tensor_of(checkpoint: Checkpoint, name: str) -> torch.Tensor:
    if ("extra", name) not in checkpoint.tensors:
        raise packing.unreadable("Lightning's state", LookupError(f"{name} is not there"))
    return read_tensor(checkpoint, name, "extra")


def unpickle(
    checkpoint: Checkpoint, name: str, weights_only: bool | None, listed: list[str]
) -> Any:
    """LoadError for what needs trust, or is no pickle."""
    data = io.BytesIO(tensor_of(checkpoint, name).numpy().tobytes())
    trusted = trusts(weights_only)
    try:
        return torch.load(data, map_location="cpu", weights_only=not trusted)
    except Exception as error:  # an unpickler raises anything
        lines = str(error).strip().splitlines() or [type(error).__name__]
        if trusted:
            raise packing.unreadable("Lightning's state", error) from error
        raise LoadError(
            f"{checkpoint.path} has objects whose code would have to run: "
            f"{', '.join(listed) or 'it does not say which'} ({lines[0]})",
            subject=str(checkpoint.path),
            advice=TRUST,
        ) from None


TRUST = (
    "If you trust whoever made it, pass weights_only=False; Trainer does not pass that on to a "
    "strategy: call torch.serialization.add_safe_globals with the classes before, or set "
    "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1."
)


def trusts(weights_only: bool | None) -> bool:
    """True if the caller allows code of a pickle to run, by torch's rules."""
    if weights_only is not None:
        return not weights_only
    return os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0") in ("1", "y", "yes", "true")

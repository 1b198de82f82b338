# SPDX-License-Identifier: Apache-2.0
"""The client state of a checkpoint, as JSON with tensors beside it. Nothing is pickled.

An object with one key that begins with "$" stands for a value that JSON lacks: those of
`client_values`, and `$tensor_of` and `$array`, whose elements are a tensor of the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from meron import errors
from meron.torch.checkpoint import packing
from meron.torch.checkpoint.files import FILE_DTYPES, TORCH_DTYPES
from meron.zero.client_values import (
    CONTAINER_READERS,
    LEAF_READERS,
    UnsupportedValue,
    array_of,
    container_of,
    leaf_of,
    read_dtype,
    require_bytes,
    write_dtype,
    write_items,
    write_pairs,
)

KEY = "$client_state"  # the only key of the text; older texts have none
OLD_TENSOR = "$meron.tensor"  # in these, the only key of a dict that stands for a tensor
DEEPEST = 100  # level of values within values
MOST_TEXT = 4096  # bytes that are written as text; more are a tensor
MOST_BITS = 4096  # of a number, because readers of JSON bound its digits
LONG: dict[type, str] = {bytes: "$bytes_of", bytearray: "$bytearray_of"}
BASES: tuple[type, ...] = (str, int, float, list, tuple, dict, set, frozenset, bytes)


def pack(state: Any) -> tuple[str, dict[str, torch.Tensor]]:
    """A client state as text, and its tensors by name.

    Raises ArgumentError naming the keys that lead to a value that cannot be saved without pickle.
    """
    if not isinstance(state, Mapping):
        raise errors.argument(
            f"client_state is a {type(state).__name__}, no dict", subject="client_state"
        )
    writer = Writer()
    document = writer.pack(dict(state), "client_state")
    return json.dumps({KEY: document}, allow_nan=False), writer.tensors


class Writer:
    """Makes JSON of values.

    Attributes:
        tensors: what the JSON refers to, by name.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._names: dict[int, str] = {}  # of the caller's tensors, by their identity
        self._depth = 0

    def pack(self, value: Any, what: str) -> Any:
        """JSON for a value. `what` names it: client_state['args'].lr."""
        if self._depth > DEEPEST:
            raise errors.argument(
                f"client_state is nested deeper than {DEEPEST} levels, at {what[:200]}",
                subject="client_state",
                advice="If a list or a dict holds itself, leave it out.",
            )
        self._depth += 1
        try:
            return self._pack(value, what)
        finally:
            self._depth -= 1

    def _pack(self, value: Any, what: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, str):
            return value
        if kind is int:
            return value if value.bit_length() <= MOST_BITS else {"$int": hex(value)}
        if kind is float:
            return packing.pack(value, what)
        if kind is list:
            return write_items(value, what, self.pack)
        if kind is dict:
            return self._dict(value, what)
        if isinstance(value, torch.Tensor):
            return {"$tensor_of": self._tensor(value, what)}
        if kind is np.ndarray:
            return {"$array": self._array(value, what)}
        if kind in LONG and len(value) > MOST_TEXT:
            return {LONG[kind]: self._add(as_tensor(value))}
        return self._special(value, what)

    def _dict(self, value: dict[Any, Any], what: str) -> Any:
        pairs = write_pairs(value, what, self.pack)
        if all(type(key) is str and not key.startswith("$") for key in value):
            return dict(pairs)
        return {"$dict": pairs}

    def _special(self, value: Any, what: str) -> Any:
        """A value of the tables. One of a class that is derived from a base is written as that."""
        leaf, container = leaf_of(value), container_of(value)
        try:
            if leaf is not None:
                return {leaf.key: leaf.write(value)}
            if container is not None:
                return {container.key: container.write(value, what, self.pack)}
        except UnsupportedValue as error:
            raise refused(what, str(error)) from None
        for base in BASES:
            if isinstance(value, base):
                return self.pack(base(value), what)
        raise refused(what, f"a {type(value).__name__}")

    def _tensor(self, value: torch.Tensor, what: str) -> str:
        """The name of a tensor; one that occurs twice has one name."""
        if id(value) not in self._names:
            if value.layout is not torch.strided or value.dtype not in FILE_DTYPES or value.is_meta:
                raise refused(what, f"a tensor of {value.dtype}, {value.layout}, on {value.device}")
            self._names[id(value)] = self._add(value)
        return self._names[id(value)]

    def _array(self, value: np.ndarray, what: str) -> list[Any]:
        try:
            dtype = write_dtype(value.dtype)
        except UnsupportedValue as error:
            raise refused(what, f"an array of {error}") from None
        return [dtype, list(value.shape), self._add(as_tensor(value.tobytes()))]

    def _add(self, tensor: torch.Tensor) -> str:
        name = f"client_state.{len(self.tensors)}"
        self.tensors[name] = tensor
        return name


def as_tensor(data: bytes | bytearray) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def refused(what: str, found: str) -> errors.ArgumentError:
    return errors.argument(
        f"{what} is {found}, which client_state cannot hold: it is saved without pickle",
        subject=what,
        advice="Leave it out, or save its state_dict() or its attributes. "
        "docs/torch_deepspeed.md lists the types.",
    )


# ---- Reading ------------------------------------------------------------------------------------


def unpack(text: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Reverses `pack`. Raises ParseError for any other text, and if a tensor is missing.

    Tensors on the device "meta" have no values: arrays of them are not read, but for their size.
    """
    try:
        state = json.loads(text)
        if isinstance(state, dict) and set(state) == {KEY}:
            state = packing.unpack(state[KEY], reader(tensors))
        else:
            state = with_old_tensors(packing.unpack(state), tensors)
        if not isinstance(state, dict):
            raise TypeError(f"it is a {type(state).__name__}, no dict")
        return state
    except errors.Error:
        raise
    except packing.WRONG as error:
        raise packing.unreadable("client_state", error) from error


def check(text: Any, entries: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises the errors of `unpack`, before values are read.

    Args:
        entries: the manifest's entries of the caller's tensors, by name.
    """
    tensors = {
        name: torch.empty(entry["shape"], dtype=TORCH_DTYPES[entry["dtype"]], device="meta")
        for name, entry in entries.items()
    }
    unpack(text, tensors)


def reader(tensors: Mapping[str, torch.Tensor]) -> packing.Special:
    """Reads the objects that `Writer` makes."""

    def data_of(name: Any) -> torch.Tensor:
        tensor = tensors[name]
        if tensor.dtype != torch.uint8 or tensor.dim() != 1:
            raise ValueError(f"{name} has no bytes")
        return tensor

    def special(key: str, content: Any) -> Any:
        if key in LEAF_READERS:
            return LEAF_READERS[key](content)
        if key in CONTAINER_READERS:
            return CONTAINER_READERS[key](packing.unpack(content, special))
        if key == "$int":
            return int(content, 16)
        if key == "$tensor_of":
            return tensors[content]
        if key == "$array":
            dtype, shape, name = content
            return array_in(data_of(name), read_dtype(dtype), shape)
        for kind, name in LONG.items():
            if key == name:
                data = data_of(content)
                return kind() if data.is_meta else kind(data.numpy().tobytes())
        raise ValueError(f"unknown object {key!r:.100}")

    return special


def array_in(data: torch.Tensor, dtype: np.dtype[Any], shape: Any) -> np.ndarray:
    """The array whose elements a tensor of bytes has. ValueError if it has not as many."""
    require_bytes(dtype, shape, data.numel())
    if data.is_meta:
        return np.broadcast_to(np.zeros((), dtype), shape)
    return array_of(dtype, shape, data.numpy().tobytes())


def with_old_tensors(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if type(value) is dict:
        if set(value) == {OLD_TENSOR}:
            return tensors[value[OLD_TENSOR]]
        return {key: with_old_tensors(item, tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_old_tensors(item, tensors) for item in value)
    return value

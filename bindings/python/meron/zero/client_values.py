# SPDX-License-Identifier: Apache-2.0
"""Values of a client state that JSON lacks, each with the key of the object that stands for it.

`{"$date": [2026, 11, 29]}` is a date. Reading calls constructors of the types in these tables, and
no other code: a class that a text names is looked up among the classes that are imported already.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import math
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from meron.torch.checkpoint import packing


class UnsupportedValue(ValueError):
    """A value that cannot be written. The text completes "it is ..."."""


class Leaf(NamedTuple):
    """A type without parts. `write` gives JSON, and `read` makes the value of it."""

    key: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


Pack = Callable[[Any, str], Any]  # makes JSON of a part, which is named for errors


class Container(NamedTuple):
    """A type with parts. `write` gives JSON, in which `pack` made the parts. `read` makes the value
    of what that JSON holds."""

    key: str
    write: Callable[[Any, str, Pack], Any]
    read: Callable[[Any], Any]


def named(known: dict[str, Any], name: Any) -> Any:
    """The entry of a table. ValueError if there is none."""
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"{name!r:.100} is unknown")
    return known[name]


# ---- Dates --------------------------------------------------------------------------------------


def write_delta(value: datetime.timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def read_delta(content: Any) -> datetime.timedelta:
    days, seconds, microseconds = content
    return datetime.timedelta(days, seconds, microseconds)


def write_zone(value: datetime.timezone) -> list[Any]:
    """The offset, and the name if it has one of its own."""
    (offset, *name) = value.__getinitargs__()  # type: ignore[attr-defined]
    return [write_delta(offset), *name]


def read_zone(content: Any) -> datetime.timezone:
    offset, *name = content
    return datetime.timezone(read_delta(offset), *name)


CLOCK = ("hour", "minute", "second", "microsecond")


def write_time(value: datetime.time | datetime.datetime) -> list[Any]:
    """Raises UnsupportedValue for a time zone of another class than datetime.timezone."""
    zone = value.tzinfo
    if zone is not None and type(zone) is not datetime.timezone:
        raise UnsupportedValue(f"a time zone of the class {type(zone).__name__}")
    clock = [getattr(value, name) for name in CLOCK]
    return [*clock, value.fold, None if zone is None else write_zone(zone)]


def read_time(content: Any, kind: Any = datetime.time, date: Any = ()) -> Any:
    *clock, fold, zone = content
    return kind(*date, *clock, None if zone is None else read_zone(zone), fold=fold)


def write_date(value: datetime.date) -> list[int]:
    return [value.year, value.month, value.day]


def write_datetime(value: datetime.datetime) -> list[Any]:
    return [*write_date(value), *write_time(value)]


def read_datetime(content: Any) -> datetime.datetime:
    found: datetime.datetime = read_time(content[3:], datetime.datetime, content[:3])
    return found


# ---- NumPy --------------------------------------------------------------------------------------

MOST_DIMENSIONS = 64  # of an array of NumPy
# A dtype without fields and objects: b of a bool, or i4, U5, M8[ns] with the order of the bytes.
SIMPLE_DTYPE = re.compile(r"[<>|][biufcSUVmM][0-9]{1,9}(\[[0-9]{0,9}[A-Za-z]{1,2}\])?")


def write_dtype(dtype: np.dtype[Any]) -> str:
    """Raises UnsupportedValue for a dtype with fields or of objects."""
    text = dtype.str
    if not SIMPLE_DTYPE.fullmatch(text) or not dtype.itemsize or np.dtype(text) != dtype:
        raise UnsupportedValue(f"the NumPy dtype {dtype}")
    return text


def read_dtype(content: Any) -> np.dtype[Any]:
    if not isinstance(content, str) or not SIMPLE_DTYPE.fullmatch(content):
        raise ValueError(f"{content!r:.100} is no dtype of NumPy")
    found = np.dtype(content)
    if not found.itemsize:  # arrays of it would have other elements
        raise ValueError(f"{content!r:.100} has no bytes")
    return found


def write_scalar(value: np.generic) -> list[str]:
    array = np.asarray(value)
    return [write_dtype(array.dtype), array.tobytes().hex()]


def read_scalar(content: Any) -> Any:
    dtype, data = content
    return array_of(read_dtype(dtype), (), bytes.fromhex(data))[()]


def require_bytes(dtype: np.dtype[Any], shape: Any, size: int) -> None:
    """ValueError if an array of this shape has another number of bytes."""
    if len(shape) > MOST_DIMENSIONS or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{shape!r:.100} is no shape")
    if math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"an array of {dtype} and the shape {shape!r:.100} has {size} bytes")


def array_of(dtype: np.dtype[Any], shape: Any, data: bytes) -> np.ndarray:
    """An array of the bytes of its elements."""
    require_bytes(dtype, shape, len(data))
    flat = np.frombuffer(data, dtype) if data else np.empty(0, dtype)
    return flat.reshape(shape).copy()


def write_scalar_type(value: type) -> str:
    """The name of a type such as np.float32."""
    name: str = value.__name__
    if SCALAR_TYPES.get(name) is not value:
        raise UnsupportedValue(f"the class {name}")
    return name


def read_scalar_type(content: Any) -> type:
    return named(SCALAR_TYPES, content)  # type: ignore[no-any-return]


SCALAR_TYPES = {
    kind.__name__: kind
    for kind in (np.dtype(code).type for code in (*np.typecodes["All"],))
    if kind is not np.object_
}

# ---- Classes of the program ---------------------------------------------------------------------


def imported_class(module: Any, path: Any) -> type | None:
    """A class by its module and its name there; None if it is not imported. Runs no code."""
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    for name in str(path).split("."):
        known = isinstance(found, (types.ModuleType, type))
        found = found.__dict__.get(name) if known else None
    return found if isinstance(found, type) else None


def write_class(kind: type) -> list[str]:
    """Raises UnsupportedValue for a class that cannot be found by its name."""
    if imported_class(kind.__module__, kind.__qualname__) is not kind:
        raise UnsupportedValue(
            f"the class {kind.__qualname__}, which {kind.__module__} does not have"
        )
    return [kind.__module__, kind.__qualname__]


def read_class(content: Any, base: type) -> Any:
    module, path = content
    found = imported_class(module, path)
    if found is None or not issubclass(found, base):
        raise ValueError(
            f"{path!r:.100} of the module {module!r:.100} is not imported: import it before the "
            "checkpoint is loaded"
        )
    return found


def write_enum(value: enum.Enum) -> list[str]:
    """Raises UnsupportedValue for a combination of flags."""
    if type(value).__members__.get(str(value.name)) is not value:
        raise UnsupportedValue(f"the combined flag {value!r:.100}")
    return [*write_class(type(value)), str(value.name)]


def read_enum(content: Any) -> Any:
    module, path, name = content
    return named(dict(read_class([module, path], enum.Enum).__members__), name)


def write_named_tuple(value: Any, what: str, pack: Pack) -> list[Any]:
    items = [pack(getattr(value, name), f"{what}.{name}") for name in value._fields]
    return [write_class(type(value)), items]


def read_named_tuple(content: Any) -> Any:
    kind, items = content
    found = read_class(kind, tuple)
    if len(getattr(found, "_fields", ())) != len(items):
        raise ValueError(f"{found.__name__} has another number of fields")
    return tuple.__new__(found, items)


def is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and isinstance(getattr(value, "_fields", None), tuple)


# ---- Collections --------------------------------------------------------------------------------

FACTORIES = {kind.__name__: kind for kind in (int, float, str, bool, list, tuple, dict, set)}


def write_items(value: Any, what: str, pack: Pack) -> list[Any]:
    return [pack(item, f"{what}[{i}]") for i, item in enumerate(value)]


def write_members(value: Any, what: str, pack: Pack) -> list[Any]:
    return [pack(item, f"a member of {what}") for item in value]


def write_pairs(value: Any, what: str, pack: Pack) -> list[Any]:
    return [
        [pack(key, f"a key of {what}"), pack(item, f"{what}[{key!r:.100}]")]
        for key, item in value.items()
    ]


def write_attributes(value: Any, what: str, pack: Pack) -> list[Any]:
    return [[name, pack(item, f"{what}.{name}")] for name, item in vars(value).items()]


def read_attributes(kind: Any) -> Callable[[Any], Any]:
    """Makes a namespace. Its attributes are set past the class, whose names they may have."""

    def read(content: Any) -> Any:
        made = kind()
        made.__dict__.update({str(name): value for name, value in content})
        return made

    return read


def write_default_dict(value: Any, what: str, pack: Pack) -> list[Any]:
    """Raises UnsupportedValue for a factory that is no built-in type."""
    factory = value.default_factory
    if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise UnsupportedValue("a defaultdict whose factory is no built-in type")
    return [None if factory is None else factory.__name__, write_pairs(value, what, pack)]


def read_default_dict(content: Any) -> Any:
    name, items = content
    return collections.defaultdict(None if name is None else named(FACTORIES, name), items)


def write_deque(value: Any, what: str, pack: Pack) -> list[Any]:
    return [write_items(value, what, pack), value.maxlen]


def read_deque(content: Any) -> Any:
    items, most = content
    return collections.deque(items, most)


PATHS: list[type[pathlib.PurePath]] = [pathlib.PurePosixPath, pathlib.PureWindowsPath]
PATHS.append(type(pathlib.Path()))


def read_path(kind: type[pathlib.PurePath]) -> Callable[[Any], pathlib.PurePath]:
    return lambda content: kind(str(content))


# ---- Tables -------------------------------------------------------------------------------------

LEAVES: dict[type, Leaf] = {
    bytes: Leaf("$bytes", bytes.hex, bytes.fromhex),
    bytearray: Leaf("$bytearray", bytearray.hex, bytearray.fromhex),
    complex: Leaf(
        "$complex",
        lambda value: [repr(value.real), repr(value.imag)],
        lambda content: complex(float(content[0]), float(content[1])),
    ),
    range: Leaf(
        "$range",
        lambda value: [value.start, value.stop, value.step],
        lambda content: range(*content),
    ),
    datetime.date: Leaf("$date", write_date, lambda content: datetime.date(*content)),
    datetime.time: Leaf("$time", write_time, read_time),
    datetime.datetime: Leaf("$datetime", write_datetime, read_datetime),
    datetime.timedelta: Leaf("$timedelta", write_delta, read_delta),
    datetime.timezone: Leaf("$timezone", write_zone, read_zone),
    torch.dtype: Leaf(
        "$torch.dtype", lambda value: str(value).removeprefix("torch."), packing.dtype_of
    ),
    torch.device: Leaf("$torch.device", str, lambda content: torch.device(str(content))),
    torch.Size: Leaf("$torch.Size", list, torch.Size),
    **{kind: Leaf(f"${kind.__name__}", str, read_path(kind)) for kind in PATHS},
}

CONTAINERS: dict[type, Container] = {
    tuple: Container("$tuple", write_items, tuple),
    set: Container("$set", write_members, set),
    frozenset: Container("$frozenset", write_members, frozenset),
    collections.OrderedDict: Container("$ordered", write_pairs, collections.OrderedDict),
    collections.Counter: Container(
        "$counter", write_pairs, lambda content: collections.Counter(dict(content))
    ),
    collections.defaultdict: Container("$defaultdict", write_default_dict, read_default_dict),
    collections.deque: Container("$deque", write_deque, read_deque),
    **{
        kind: Container(f"${kind.__name__}", write_attributes, read_attributes(kind))
        for kind in (argparse.Namespace, types.SimpleNamespace)
    },
}

# Families of types, with the test of a value that belongs to one.
LEAF_FAMILIES: tuple[tuple[Callable[[Any], bool], Leaf], ...] = (
    (
        lambda value: isinstance(value, np.generic),
        Leaf("$numpy.scalar", write_scalar, read_scalar),
    ),
    (lambda value: isinstance(value, np.dtype), Leaf("$numpy.dtype", write_dtype, read_dtype)),
    (
        lambda value: isinstance(value, type) and issubclass(value, np.generic),
        Leaf("$numpy.type", write_scalar_type, read_scalar_type),
    ),
    (lambda value: isinstance(value, enum.Enum), Leaf("$enum", write_enum, read_enum)),
)
NAMED_TUPLE = Container("$namedtuple", write_named_tuple, read_named_tuple)

LEAF_READERS = {
    leaf.key: leaf.read for leaf in (*LEAVES.values(), *(leaf for _, leaf in LEAF_FAMILIES))
}
CONTAINER_READERS = {each.key: each.read for each in (*CONTAINERS.values(), NAMED_TUPLE)}


def leaf_of(value: Any) -> Leaf | None:
    """The writer of a value without parts, by its exact type or its family; None for others."""
    found = LEAVES.get(type(value))
    if found is not None:
        return found
    return next((leaf for belongs, leaf in LEAF_FAMILIES if belongs(value)), None)


def container_of(value: Any) -> Container | None:
    """The writer of a value with parts; None for other values."""
    found = CONTAINERS.get(type(value))
    if found is None and is_named_tuple(value):
        return NAMED_TUPLE
    return found

# SPDX-License-Identifier: Apache-2.0
"""client_state: values of any documented type come back equal, and no text runs code."""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime
import enum
import json
import math
import pathlib
import random
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from adam_engine import made

import meron
from meron.zero import client_state
from meron.zero.client_values import CONTAINER_READERS, LEAF_READERS


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(str, enum.Enum):  # noqa: UP042
    FAST = "fast"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: Any


class Table(dict[str, int]):
    pass


ZONE = datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))
VALUES: dict[str, Any] = {
    "none": None,
    "flags": [True, False],
    "integers": [0, -1, 2**62, -(2**64), 3**20_000, -(3**20_000)],
    "floats": [0.1, -0.0, math.inf, -math.inf, 1e-320],
    "complex": [1 + 2j, complex(math.inf, -0.0)],
    "texts": ["", "a\0b", "\ud800", "$tensor_of", "ü"],
    "bytes": [b"", b"\x00\xff", bytearray(b"ab"), b"x" * 5000, bytearray(b"y" * 5000)],
    "tuples": ((), (1, (2, [3])), torch.Size([2, 3]), Point(1, Point(2, [3]))),
    "sets": [set(), {1, "a", (2, 3)}, frozenset({1.5}), {frozenset({1}), Color.RED}],
    "dicts": [
        {},
        {1: 2, None: 3, (1, 2): 4, Color.RED: 6, 1.5: 7},
        {"$tensor_of": "x"},
        {"$meron.tensor": "client_state.0"},
        {"$client_state": {}},
        {"$enum": ["os", "system", "x"]},
    ],
    "collections": [
        collections.OrderedDict([("b", 1), ("a", {2})]),
        collections.Counter("abca"),
        collections.defaultdict(list, {"a": [1], 2: [b"x"]}),
        collections.defaultdict(None, {"a": 1}),
        collections.deque([1, (2,)], maxlen=3),
        collections.deque(),
    ],
    "ranges": [range(3), range(10, -5, -3)],
    "namespaces": [
        argparse.Namespace(lr=1e-3, nested=argparse.Namespace(path=pathlib.Path("/x"))),
        types.SimpleNamespace(a=1, b={"c": (1, 2)}),
    ],
    "dtypes": [torch.float16, torch.complex64, torch.device("cuda:1"), torch.device("cpu")],
    "numpy dtypes": [np.dtype("f4"), np.dtype(">i8"), np.dtype("M8[25us]"), np.float32, np.str_],
    "paths": [pathlib.Path("a/b"), pathlib.PurePosixPath("/"), pathlib.PureWindowsPath("c:\\x")],
    "dates": [
        datetime.date(1, 1, 1),
        datetime.datetime(2026, 11, 29, 3, 4, 5, 6, fold=1),
        datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC),
        datetime.datetime(2026, 1, 1, tzinfo=ZONE),
        datetime.time(23, 59, 59, 999999),
        datetime.time(1, tzinfo=datetime.timezone(datetime.timedelta(1, -1), "east")),
        datetime.timedelta(-1, 5, 7),
        datetime.UTC,
        ZONE,
    ],
    "enums": [Color.RED, Level.HIGH, Mode.FAST, Access.READ],
    "random": [random.Random(1).getstate(), np.random.RandomState(1).get_state()],
    "generator": np.random.default_rng(1).bit_generator.state,
    "scalars": [
        np.float32(0.1),
        np.float64("-inf"),
        np.int8(-3),
        np.bool_(True),
        np.complex128(1j),
        np.longdouble(1) / 3,
        np.str_("ü"),
        np.str_(""),
        np.bytes_(b"a"),
        np.datetime64("2026-11-29T01:02:03", "ns"),
        np.timedelta64(5, "D"),
        np.float16(2),
    ],
    "arrays": [
        np.ones(2),
        np.arange(24, dtype=">i2").reshape(2, 3, 4)[:, ::2].T,
        np.zeros((0, 3), np.float16),
        np.array(5, np.uint64),
        np.array(["a", "bcd"]),
        np.array(["2026-01-01"], "M8[D]"),
        np.array([1 + 1j], np.complex64),
        np.array([b"a", b"bc"]),
        np.array([True, False]),
    ],
}


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, (argparse.Namespace, types.SimpleNamespace)):
        return same(vars(a), vars(b))
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b)
    return bool(a == b)


def through(value: Any) -> Any:
    text, tensors = client_state.pack({"x": value})
    entries = {
        name: {"dtype": {torch.uint8: "U8"}.get(each.dtype, "F32"), "shape": list(each.shape)}
        for name, each in tensors.items()
    }
    client_state.check(text, entries)
    return client_state.unpack(text, tensors)["x"]


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_equal_and_of_the_same_type(name: str) -> None:
    assert same(through(VALUES[name]), VALUES[name])


def test_details_that_equality_ignores_come_back() -> None:
    assert through(datetime.datetime(2026, 11, 1, fold=1)).fold == 1
    assert through(collections.deque([1], maxlen=4)).maxlen == 4
    assert through(collections.defaultdict(int)).default_factory is int
    assert str(through(datetime.timezone(datetime.timedelta(0), "zero"))) == "zero"
    nan = through([math.nan, np.float32("nan"), complex(0, math.nan)])
    assert math.isnan(nan[0]) and np.isnan(nan[1]) and math.isnan(nan[2].imag)
    array = through(np.ones(3))
    array[0] = 2  # it belongs to the caller


def test_a_tensor_that_occurs_twice_is_one_tensor_of_the_checkpoint() -> None:
    tensor = torch.ones(3)
    text, tensors = client_state.pack({"a": tensor, "b": [tensor]})
    assert len(tensors) == 1
    state = client_state.unpack(text, tensors)
    assert torch.equal(state["a"], state["b"][0])


def test_a_class_that_is_derived_from_a_known_one_comes_back_as_that() -> None:
    class Text(str):
        pass

    assert same(through(Table(a=1)), {"a": 1})
    assert same(through(Text("x")), "x")


class Local:
    class Inner(enum.Enum):
        A = 1


def test_a_value_that_needs_pickle_is_named_by_its_keys() -> None:
    hidden = enum.Enum("hidden", "A")
    hidden.__module__ = "no.such.module"
    namespace = argparse.Namespace(model=torch.nn.Linear(1, 1))
    assert through(Local.Inner.A) is Local.Inner.A
    wrong: dict[str, tuple[Any, str]] = {
        "an object": ([0, object()], r"client_state\['x'\]\[1\] is a object"),
        "an attribute": (namespace, r"client_state\['x'\]\.model is a Linear"),
        "a key": ({object: 1}, r"a key of client_state\['x'\] is a type"),
        "a field": (Point(1, print), r"client_state\['x'\]\.y is a builtin_function"),
        "a member": ({1, max}, r"a member of client_state\['x'\] is a builtin_function"),
        "objects of an array": (np.array([{}]), r"client_state\['x'\] is an array of the NumPy"),
        "fields of an array": (np.zeros(1, "i4,f4"), "an array of the NumPy dtype"),
        "a hidden class": (hidden["A"], "the class hidden, which no.such.module does not have"),
        "a factory": (collections.defaultdict(lambda: 1), "a defaultdict whose factory is"),
        "flags": (Access.READ | Access.WRITE, "the combined flag"),
        "a sparse tensor": (torch.ones(2).to_sparse(), "a tensor of torch.float32"),
        "a complex tensor": (torch.ones(2, dtype=torch.complex64), "a tensor of torch.complex64"),
        "a tensor without values": (torch.ones(2, device="meta"), "a tensor of .* on meta"),
        "a function": (len, "a builtin_function_or_method"),
        "a masked array": (np.ma.ones(2), "a MaskedArray"),
    }
    for value, words in wrong.values():
        with pytest.raises(meron.ArgumentError, match=words):
            client_state.pack({"x": value})
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(meron.ArgumentError, match="holds itself"):
        client_state.pack({"x": circle})


HOSTILE: dict[str, Any] = {
    "a function": {"$enum": ["os", "system", "x"]},
    "a class that is no enum": {"$enum": ["subprocess", "Popen", "x"]},
    "a module that is not imported": {"$enum": ["antigravity", "X", "x"]},
    "a lazy attribute": {"$enum": ["meron.zero.config", "DeepSpeedConfig", "x"]},
    "no member": {"$enum": ["enum", "Enum", "mro"]},
    "a class that is no tuple": {"$namedtuple": [["subprocess", "Popen"], ["true"]]},
    "a tuple without fields": {"$namedtuple": [["builtins", "tuple"], [1]]},
    "fields that are missing": {"$namedtuple": [[__name__, "Point"], [1]]},
    "a dtype of objects": {"$numpy.dtype": "|O8"},
    "a dtype with fields": {"$numpy.dtype": "i4,O"},
    "a list as dtype": {"$numpy.dtype": [["a", "|O8"]]},
    "a scalar of objects": {"$numpy.scalar": ["|O8", "00" * 8]},
    "a scalar that is cut": {"$numpy.scalar": ["<f4", "00"]},
    "objects of an array": {"$array": ["|O8", [1], "client_state.0"]},
    "a large array": {"$array": ["<f4", [2**60], "client_state.0"]},
    "a negative shape": {"$array": ["<f4", [-1, -2], "client_state.0"]},
    "a large empty array": {"$array": ["<f4", [0, 2**80], "client_state.1"]},
    "elements without bytes": {"$array": ["<U0", [2**40], "client_state.1"]},
    "an array of floats": {"$array": ["<f4", [2], "floats"]},
    "bytes of floats": {"$bytes_of": "floats"},
    "an absent tensor": {"$bytes_of": "nope"},
    "a factory": {"$defaultdict": ["eval", []]},
    "a dtype": {"$torch.dtype": "load"},
    "a type": {"$numpy.type": "object_"},
    "a device": {"$torch.device": "; rm"},
    "a date": {"$date": [2026, 13, 1]},
    "no date": {"$datetime": 3},
    "a zone": {"$timezone": [[10**9, 0, 0]]},
    "an integer": {"$int": 5},
    "no bytes": {"$bytes": "xy"},
    "an unhashable member": {"$set": [[1]]},
    "no pairs": {"$Namespace": [1]},
    "a range of texts": {"$range": ["a"]},
    "an unknown object": {"$pickle": "gASV"},
    "a document within": {"$client_state": {}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_is_refused_before_and_when_it_is_read(name: str) -> None:
    tensors = {
        "client_state.0": torch.zeros(4, dtype=torch.uint8),
        "client_state.1": torch.zeros(0, dtype=torch.uint8),
        "floats": torch.zeros(2),
    }
    entries = {
        key: {"dtype": "F32" if key == "floats" else "U8", "shape": list(each.shape)}
        for key, each in tensors.items()
    }
    text = json.dumps({"$client_state": {"x": HOSTILE[name]}})
    with pytest.raises(meron.ParseError, match="client_state of the checkpoint cannot be read"):
        client_state.check(text, entries)
    with pytest.raises(meron.ParseError, match="client_state of the checkpoint cannot be read"):
        client_state.unpack(text, tensors)


def content(rng: random.Random, depth: int = 0) -> Any:
    """JSON that resembles what `pack` writes."""
    keys = [*LEAF_READERS, *CONTAINER_READERS, "$array", "$tensor_of", "$int", "$dict", "$float"]
    leaves: list[Any] = [
        *(None, True, -1, 2**70, 1.5, "", "x", "<f4", "|O8", "int", "os", "system", "Enum", "enum"),
        *("client_state.0", "00ff", "float32", "cpu", "nan"),
    ]
    chance = rng.random()
    if depth > 4 or chance < 0.35:
        return rng.choice(leaves)
    if chance < 0.65:
        return {rng.choice(keys): content(rng, depth + 1)}
    return [content(rng, depth + 1) for _ in range(rng.randrange(4))]


def test_any_text_gives_values_or_a_parse_error() -> None:
    rng = random.Random(7)
    tensors = {"client_state.0": torch.zeros(4, dtype=torch.uint8)}
    read = 0
    for _ in range(20_000):
        text = json.dumps({"$client_state": {"x": content(rng)}})
        try:
            client_state.unpack(text, tensors)
            read += 1
        except meron.ParseError:
            pass
    assert read > 1000


def test_damaged_texts_give_values_or_a_parse_error() -> None:
    rng = random.Random(3)
    text, tensors = client_state.pack(VALUES)
    for _ in range(300):
        place = rng.randrange(len(text))
        damaged = text[:place] + chr(rng.randrange(32, 127)) + text[place + 1 :]
        with contextlib.suppress(meron.ParseError):
            client_state.unpack(damaged, tensors)


def test_texts_of_older_checkpoints_are_read() -> None:
    text = json.dumps(
        {"a": {"$tuple": [1, {"$float": "inf"}]}, "t": {"$dict": [["$meron.tensor", "x"]]}}
    )
    state = client_state.unpack(text, {"x": torch.ones(2)})
    assert state["a"] == (1, math.inf) and torch.equal(state["t"], torch.ones(2))


@pytest.mark.ranks(1, 2)
def test_a_checkpoint_keeps_all_values(tmp_path: Any) -> None:
    engine = made()
    engine.save_checkpoint(tmp_path, client_state={**VALUES, "t": torch.arange(3)})
    found = engine.load_checkpoint(tmp_path)[1]
    assert torch.equal(found.pop("t"), torch.arange(3))
    assert same(found, VALUES)
    for wrong in (None, 3):
        with pytest.raises(meron.ArgumentError, match=r"save_dir is a .*, no path"):
            engine.save_checkpoint(wrong)
        with pytest.raises(meron.ArgumentError, match=r"load_dir is a .*, no path"):
            engine.load_checkpoint(wrong)
    engine.destroy()

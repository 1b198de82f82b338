# SPDX-License-Identifier: Apache-2.0
"""The values that cases write and expect, as arrays."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

import meron
from table import Malformed, Statement

Array = npt.NDArray[Any]


NUMBERS: dict[str, Any] = {"f64": np.float64, "i64": np.int64}  # of an all-reduce alone


class CheckFailed(Exception):
    """The library did what it should not."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


def check_equal(what: str, found: Any, expected: Any) -> None:
    check(found == expected, f"{what} is {found!r}, not {expected!r}")


def holds(text: str, part: str) -> bool:
    """Whether `text` holds `part`, without regard to blanks and underscores."""
    return squeezed(part) in squeezed(text)


def squeezed(text: str) -> str:
    return "".join(text.split()).replace("_", "")


def check_has(text: str, statement: Statement) -> None:
    for part in statement.list("has"):
        check(holds(text, part), f"{part!r} is not in: {text}")


def shape_of(text: str) -> tuple[int, ...]:
    return () if text == "scalar" else tuple(int(size) for size in text.split("x"))


class Place:
    """A rank of a world, which some values depend on."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank = rank
        self.world = world

    def values(self, text: str, count: int, offset: int = 0) -> npt.NDArray[np.float64]:
        """Elements `offset` to `offset + count` of the sum of terms that `text` is."""
        index = np.arange(offset, offset + count, dtype=np.int64)
        total = np.zeros(count)
        for term in text.split("+"):
            kind, colon, argument = term.partition(":")
            argument, _, factor = argument.partition("*")
            if not colon:
                raise Malformed(f"{text!r} are no values")
            total = total + self._term(kind, argument, index) * float(factor or 1)
        return total

    def _term(self, kind: str, argument: str, index: npt.NDArray[np.int64]) -> Any:
        if kind == "fill":
            return np.full(len(index), float(argument))
        seed = int(argument)
        if kind == "pattern":
            return pattern(index, seed)
        if kind == "rank":
            return pattern(index, seed + self.rank)
        if kind not in ("ranks", "mean"):
            raise Malformed(f"unknown values {kind!r}")
        total = sum(pattern(index, seed + rank) for rank in range(self.world))
        return total / self.world if kind == "mean" else total

    def array(self, text: str, dtype: str, shape: tuple[int, ...]) -> Array:
        """A whole tensor of the values, which are exact in `dtype`."""
        values = self.values(text, math.prod(shape)).reshape(shape)
        if dtype in NUMBERS:
            return values.astype(NUMBERS[dtype])
        array = meron.from_float32(values, dtype)
        exact = np.array_equal(meron.to_float32(array), values, equal_nan=True)
        if not exact:
            raise Malformed(f"{text} is not exact in {dtype}")
        return array

    def assign(self, view: Array, text: str, dtype: str, offset: int) -> None:
        """Writes the values into a view of elements from `offset` on."""
        values = self.values(text, view.size, offset).reshape(view.shape)
        view[...] = values if view.dtype == np.float32 else meron.from_float32(values, dtype)

    def check_data(self, statement: Statement, array: Array, offset: int = 0) -> None:
        """Holds elements from `offset` on against `is`, `crc` and `crcN`."""
        expected = statement.get("is")
        if expected is not None:
            wide = array if array.dtype.itemsize == 8 else meron.to_float32(array)
            found = wide.reshape(-1).astype(np.float64)
            wanted = self.values(expected, array.size, offset)
            equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
            within = float(statement.get("within") or 0)
            with np.errstate(invalid="ignore"):  # infinite values differ by NaN
                different = np.flatnonzero(~(equal | (np.abs(found - wanted) <= within)))
            if different.size:
                first = different[0]
                check_equal(f"element {offset + first}", found[first], wanted[first])
        for key in ("crc", f"crc{self.world}"):
            wanted_crc = statement.get(key)
            if wanted_crc is not None:
                check_equal("the CRC", f"{zlib.crc32(array.tobytes()):08x}", wanted_crc)


def pattern(index: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float64]:
    return ((7 * index + 13 * seed) % 61 - 30) / 8

# SPDX-License-Identifier: Apache-2.0
"""Flats: the memory of those params of a unit that have one dtype."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Union

from meron._native import call, lib, sized
from meron.dtypes import NAMES, NUMPY, DTypeName
from meron.param import Param


class Flat:
    """Params of a unit that have one dtype and are all trained or all frozen, one after another.

    `Unit.flats` lists them. A gather copies a flat into an array of yours at once:

        array = np.empty(flat.size, np.float32)
        with unit.gather(into={flat: array}) as full:
            full[weight]  # a part of `array`

    The layout depends only on the unit's params: it is the same on all ranks and under all plans.

    Attributes:
        name:   "flat 0 of layer", for messages.
        index:  in `Unit.flats`.
        dtype:  NumPy's type of its elements; of bf16, `meron.bfloat16`.
        dtype_name: "f32", "bf16" or "f16".
        frozen: True if its params are frozen.
        size:   elements, with the padding behind each param.
        shape:  (size,)
        ranges: for each of its params, the elements of the flat that are the param's, row-major.
    """

    __slots__ = (
        "_unit",
        "dtype",
        "dtype_name",
        "frozen",
        "index",
        "name",
        "ranges",
        "shape",
        "size",
    )

    def __init__(
        self, unit: Any, unit_name: str, index: int, ranges: Mapping[Param, range]
    ) -> None:
        info = sized("meron_flat_info")
        call(lib.meron_unit_flat, info, unit, index)
        self._unit = unit  # its handle
        self.name = f"flat {index} of {unit_name}"
        self.index = index
        self.dtype_name: DTypeName = NAMES[info.dtype]
        self.dtype = NUMPY[self.dtype_name]
        self.frozen = bool(info.frozen)
        self.size: int = info.elements
        self.shape: tuple[int, ...] = (self.size,)
        self.ranges = ranges

    def __repr__(self) -> str:
        return (
            f"<meron.Flat {self.name!r}: {self.dtype_name} {self.shape}, {len(self.ranges)} params>"
        )


# Arrays to gather into, by param, its name or flat. (A Mapping's keys are of one type alone.)
Destinations = Union[
    Mapping[Param, Any],
    Mapping[str, Any],
    Mapping[Flat, Any],
    Mapping["Param | Flat", Any],
    Mapping["Param | Flat | str", Any],
]


def flats_of(unit: Any, unit_name: str, params: Iterable[Param]) -> tuple[Flat, ...]:
    """The flats of a unit, given by its handle."""
    info = sized("meron_unit_info")
    call(lib.meron_unit_get_info, info, unit)
    ranges: list[dict[Param, range]] = [{} for _ in range(info.flats)]
    for param in params:
        place = param._info()
        ranges[place.flat][param] = range(place.flat_offset, place.flat_offset + param.size)
    return tuple(Flat(unit, unit_name, index, each) for index, each in enumerate(ranges))

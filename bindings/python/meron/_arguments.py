# SPDX-License-Identifier: Apache-2.0
"""Numbers, flags and shapes of the caller's, as the library takes them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from meron import errors

LIMIT = 1 << 31  # of ranks, and of kinds of passes


def as_flag(value: bool, name: str) -> bool:
    """A bool. TypeError for what is only true or false by its content, such as "no"."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is True or False, not {value!r}")
    return bool(value)


def as_shape(shape: SupportsIndex | Sequence[int]) -> tuple[int, ...]:
    """The sizes of a tensor; of one number, that of one dimension."""
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return tuple(map(operator.index, sizes))


def as_rank(value: int, name: str) -> int:
    """The number of a rank, which the library then compares with those of the group."""
    rank = operator.index(value)
    if not 0 <= rank < LIMIT:
        raise errors.argument(f"{name} {rank} is not a rank", name)
    return rank


def set_number(struct: Any, name: str, value: Any) -> None:
    """Sets a field of a struct. ArgumentError for a number that it cannot hold."""
    try:
        setattr(struct, name, value)
    except OverflowError:
        raise errors.argument(f"{name} is out of range: {value}", name) from None

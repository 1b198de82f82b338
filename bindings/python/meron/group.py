# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks, and collectives on NumPy arrays.

The ranks of a group begin their collectives on it in the same order; the library checks this on
every call, and ranks that diverge get a MismatchError that names both calls.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import numpy as np

from meron import errors
from meron._arguments import as_rank
from meron._base_context import BaseContext
from meron._methods import GroupMethods
from meron._native import NULL, Owner, call, ffi, lib, receive, text
from meron._values import REDUCE_OPS as OPERATIONS
from meron._values import ReduceOp
from meron.dtypes import NUMBERS, Array, code_of_array, require_writable
from meron.future import Future, begin

Number = TypeVar("Number", bound=np.generic)


def operation_code(op: ReduceOp) -> int:
    if not isinstance(op, str) or op not in OPERATIONS:
        raise errors.argument(f"unknown reduction {op!r}: {', '.join(OPERATIONS)} are known")
    return OPERATIONS[op]


class Group(GroupMethods, Owner):
    """Ranks that share something, in an order. Made by `Context.group`, or `Context.world`.

    Attributes:
        rank: this rank's place in the group.
        size: the number of ranks in it.
    """

    _release_function = lib.meron_group_release

    def __init__(self, context: BaseContext, making: Any, *arguments: Any) -> None:
        """Makes it by a function of the library, whose first parameter receives it."""
        self._context = context
        self._receive("meron_group *", making, *arguments)
        self.rank = self.size = -1
        if self._handle.id:  # this rank is in it
            self.rank = receive("int32_t *", lib.meron_group_rank, self._handle)
            self.size = receive("int32_t *", lib.meron_group_size, self._handle)

    def __repr__(self) -> str:
        return f"<meron.Group: rank {self.rank} of {self.size}>"

    def status(self) -> errors.Error | None:
        """None while the group is whole, else the error that broke it. Never blocks."""
        self._context._require_open()
        try:
            call(lib.meron_group_status, self._handle)
        except errors.GroupError as error:
            return error
        return None

    def abort(self, reason: str = "") -> None:
        """Breaks the group on every rank: what waits there gets an AbortedError with `reason`.

        At most 200 bytes of the reason are kept. Never blocks.
        """
        self._context._require_open()
        call(lib.meron_group_abort, self._handle, text(reason, "reason") if reason else NULL)

    def broadcast(self, array: Array, root: int = 0) -> Array:
        """Copies the root's array into those of the other ranks, in place; waits for it.

        Args:
            array: contiguous and writable, of any dtype without references to Python's objects, of
                equal size on all ranks.
            root: the group's rank whose values count.

        Returns:
            The same array. Errors as Future.wait, and ArgumentError.
        """
        self.broadcast_begin(array, root).wait()
        return array

    def broadcast_begin(self, array: Array, root: int = 0) -> Future:
        """Begins a broadcast; `array` is kept alive, and not to be touched, until it has ended."""
        require_writable(array, "array")
        data = ffi.cast("void *", array.ctypes.data)
        handle = self._for_call()
        return begin(
            self._context,
            lib.meron_broadcast_begin,
            handle,
            data,
            array.nbytes,
            as_rank(root, "root"),
            keep=array,
        )

    @overload
    def all_reduce(self, array: int, op: ReduceOp = "sum") -> int: ...

    @overload
    def all_reduce(self, array: float, op: ReduceOp = "sum") -> float: ...

    @overload
    def all_reduce(self, array: Number, op: ReduceOp = "sum") -> Number: ...

    @overload
    def all_reduce(self, array: Array, op: ReduceOp = "sum") -> Array: ...

    def all_reduce(self, array: Any, op: ReduceOp = "sum") -> Any:
        """Combines the arrays of all ranks element by element, in place; waits for it.

        A number, such as a loss, is combined as an array of one: the result is returned.

        Values are combined in the order of the ranks: every rank gets the same bits in every run.
        Sums of 16-bit elements are in f32. Made for small arrays such as losses, metrics and
        counts; gradients go by `Unit.reduce`.

        Args:
            array: contiguous and writable, of f32, bf16, f16, float64 or int64; or a number: an int
                is an int64, a float a float64, and one of NumPy has its own type. Dtype, size and
                op are equal on all ranks.
            op: "sum", "mean" (not of int64), "max" or "min"; the last two are NaN if a rank's value
                is.

        Returns:
            The same array, or a number of the same type. Errors as Future.wait, and ArgumentError;
            MismatchError names both calls of ranks that differ.
        """
        if isinstance(array, (int, float, np.generic)):
            return self._all_reduce_number(array, op)
        self.all_reduce_begin(array, op).wait()
        return array

    def _all_reduce_number(self, number: Any, op: ReduceOp) -> Any:
        try:
            array = np.array(number, np.int64 if isinstance(number, int) else None)
        except OverflowError:
            raise errors.argument(f"{number} does not fit 64 bits") from None
        self.all_reduce_begin(array, op).wait()
        return array[()] if isinstance(number, np.generic) else array.item()

    def all_reduce_begin(self, array: Array, op: ReduceOp = "sum") -> Future:
        """Begins an all-reduce; `array` is kept alive, and not to be touched, until its end."""
        require_writable(array, "array")
        code = code_of_array(array)
        if code is None:
            code = NUMBERS.get(array.dtype.str[1:])
        if code is None:
            raise errors.argument(
                f"all_reduce takes f32, bf16, f16, f64 and i64, not {array.dtype}",
                advice="Convert it, for example with array.astype(numpy.float64). Bits of bf16 are "
                "array.view(meron.bfloat16).",
            )
        data = ffi.cast("void *", array.ctypes.data)
        return begin(
            self._context,
            lib.meron_all_reduce_begin,
            self._for_call(),
            data,
            array.size,
            code,
            operation_code(op),
            keep=array,
        )

# SPDX-License-Identifier: Apache-2.0
"""Writing the values of params."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import numpy.typing as npt

from meron import errors
from meron._base_context import BaseContext
from meron._by_name import find, named_params
from meron._loans import Loans
from meron._native import DEFAULT_TIMEOUT, Owner, call, ffi, lib, new
from meron.dtypes import Array, as_source
from meron.param import Param
from meron.unit import Unit, unit_table


class Update(Owner):
    """Units opened for writing: `with ctx.update([unit]) as update: update.write(param, array)`.

    Collective over the units' group: every rank of it enters and leaves. Entering waits until all
    ranks have released the current version; leaving publishes this rank's writes as the next one.
    Elements that were not written keep their values.

    If the block ends by an exception, the exception is raised and nothing written in part is
    published: if this rank has written or viewed no param, its values are published unchanged, and
    the group is usable; otherwise the group breaks on every rank with AbortedError, which names
    this rank. To continue after errors of single calls, such as a wrong shape, catch them inside
    the block.

    Leaving raises StateError while an array that was derived from one of `view` is alive: nothing
    is published then, and the update stays open for `publish`. If it is dropped instead, it ends as
    by an exception.

    Ctrl-C while entering cancels the update, which breaks the group, because the peers continue it.
    """

    _release_function = lib.meron_future_release

    def __init__(self, context: BaseContext, units: Iterable[Unit]) -> None:
        self._context = context
        self._units = tuple(units)
        self._loans = Loans()
        self._entered = False  # within its block

    def __enter__(self) -> Update:
        """Begins the update and waits.

        Blocks on peers until all have released it, and releases the GIL.

        Raises:
            StateError: a unit is gathered on this rank, or being updated.
            DuplicateError, ArgumentError, GroupError.
        """
        return self._enter(call)

    def _enter(self, wait: Callable[..., Any]) -> Update:
        """As __enter__; `wait` calls the function that waits with its arguments."""
        if self._handle is not None:
            raise errors.StateError("this update is open already")
        self._context._require_open()
        self._context._raise_dropped()
        table, count = unit_table(self._units)
        try:
            self._receive("meron_future *", lib.meron_update_begin, table, count)
            wait(lib.meron_future_wait, self._handle, DEFAULT_TIMEOUT)
        except BaseException:
            self.__del__()
            raise
        self._entered = True
        return self

    def __repr__(self) -> str:
        state = "not open" if self._handle is None else "open"
        return f"<meron.Update of {len(self._units)} units, {state}>"

    def write(self, param: Param | str, value: npt.ArrayLike) -> None:
        """Writes this rank's part of a param from the whole tensor; every rank passes equal values.

        Args:
            param: of a unit of the update, or its name.
            value: of the param's shape; converted to its dtype, and kept as f32 too where there is
                an f32 master copy. Other numbers than f32, bf16 and f16 go by way of f32.

        Raises ArgumentError for another shape or a param of no unit of the update.
        Blocks while another thread begins an operation.
        """
        handle = self._open_handle()
        param = self._find(param)
        array, code = as_source(value, param.shape, param.name)
        data = ffi.cast("void *", array.ctypes.data)
        call(lib.meron_update_write, handle, param._handle, data, array.size, code)

    def view(self, param: Param | str) -> Array:
        """The elements of a param's `shard_range` as a flat, writable array of its dtype, in place.

        The array is read-only once the update is published, so a variable may keep it. Delete
        slices and reshapes of it before: see `publish`. Errors as write.
        """
        view = new("meron_view *")
        handle = self._open_handle()
        param = self._find(param)
        call(lib.meron_update_view, view, handle, param._handle)
        return self._loans.lend(view, (view.count,), param._keep(), f"update.view({param.name!r})")

    def publish(self) -> None:
        """Publishes this rank's writes and ends the update, as leaving the `with` block does.

        Raises StateError, and publishes nothing, while an array that was derived from one of
        `view` is alive: a slice or a reshape, or a tensor or buffer of one. Delete it, and call
        this again. StaleError if the update is not open. Never blocks.
        """
        handle = self._open_handle()
        self._loans.require_returned("the update cannot be published")
        self._loans.end()
        try:
            call(lib.meron_update_publish, handle)
        finally:
            self.__del__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered, self._entered = self._entered, False
        if kind is not None:
            # The error that is on its way is the one to raise, whatever releasing finds.
            self._loans.end()
            self.__del__()
            return
        if self._handle is None and entered:
            return  # published within the block
        self.publish()

    def _find(self, key: Param | str) -> Param:
        return find(key, lambda: named_params(self._units), self)

    def _open_handle(self) -> Any:
        if self._handle is None:
            raise errors.StaleError("this update is not open: use it inside its with block")
        self._context._require_open()
        return self._handle

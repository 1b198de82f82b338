# SPDX-License-Identifier: Apache-2.0
"""Writing the values of params."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any

import numpy.typing as npt

from meron import errors
from meron._base_context import BaseContext
from meron._memory import Loans, as_part
from meron._native import DEFAULT_TIMEOUT, Owner, call, ffi, lib, new, receive
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

    Ctrl-C while entering cancels the update, which breaks the group, because the peers continue it.
    """

    _release_function = lib.meron_future_release

    def __init__(self, context: BaseContext, units: Iterable[Unit]) -> None:
        self._context = context
        self._units = tuple(units)
        self._loans = Loans()

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
        table, count = unit_table(self._units)
        self._handle = receive("meron_future *", lib.meron_update_begin, table, count)
        try:
            wait(lib.meron_future_wait, self._handle, DEFAULT_TIMEOUT)
        except BaseException:
            self.__del__()
            raise
        return self

    def write(self, param: Param, value: npt.ArrayLike) -> None:
        """Writes this rank's part of `param` from the whole tensor; every rank passes equal values.

        Args:
            value: of the param's shape; converted to its dtype, and kept as f32 too where there is
                an f32 master copy. Other numbers than f32, bf16 and f16 go by way of f32.

        Raises ArgumentError for another shape or a param of no unit of the update.
        Blocks while another thread begins an operation.
        """
        handle = self._open_handle()
        array, code = as_source(value, param.shape, param.name)
        data = ffi.cast("void *", array.ctypes.data)
        call(lib.meron_update_write, handle, param._handle, data, array.size, code)

    def view(self, param: Param) -> Array:
        """The elements `param.owned` as a flat, writable array of the param's dtype, in place.

        Read-only once the update is published. Errors as write.
        """
        view = new("meron_view *")
        call(lib.meron_update_view, view, self._open_handle(), param._handle)
        return self._loans.add(as_part(view, self._context._require_open()))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            # The error that is on its way is the one to raise, whatever releasing finds.
            self._loans.end()
            self.__del__()
            return
        handle = self._open_handle()
        self._handle = None
        self._loans.end()
        call(lib.meron_update_publish, handle)

    def _open_handle(self) -> Any:
        if self._handle is None:
            raise errors.StaleError("this update is not open: use it inside its with block")
        self._context._require_open()
        return self._handle

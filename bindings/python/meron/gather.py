# SPDX-License-Identifier: Apache-2.0
"""Full tensors on demand.

`with unit.gather() as full:` is begin, wait and release, and takes about three microseconds when
the unit is full already, which is why this module counts its allocations: one for the handle, one
for the object, none for errors (slots for them are reused).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any

from meron import errors
from meron._base_context import BaseContext
from meron._by_name import ByName, HasParams, named_params
from meron._memory import as_array, byte_count
from meron._native import (
    DEFAULT_TIMEOUT,
    ERROR_OUT,
    NULL,
    TYPES,
    Shared,
    call,
    ffi,
    finalizer,
    initial,
    interrupts,
    lib,
    nanoseconds,
    new,
    nothing,
    receive,
    settle,
)
from meron.device import DeviceArray, Tier, device_array, stream_pointer, tier_code
from meron.dlpack import DLPackTensor
from meron.dtypes import Array, require_writable
from meron.flat import Flat
from meron.param import Param

GATHER_OUT = TYPES["meron_future *"]
gather_begin = lib.meron_gather_begin
gather_wait = lib.meron_future_wait
gather_poll = lib.meron_future_poll
gather_release = lib.meron_future_release

TYPE_NAMES = {"f32": "numpy.float32", "bf16": "meron.bfloat16", "f16": "numpy.float16"}

# Empty error slots, free for any thread to take (a list's pop and append are atomic).
spare_slots: list[Any] = []


def take_slot() -> Any:
    try:
        return spare_slots.pop()
    except IndexError:
        return new(ERROR_OUT)


class Gather(Shared, ByName[Array]):
    """Units on their way to full, then leased. Made by `Unit.gather` and `Context.gather`.

    A context manager: entering waits until the tensors are full, leaving releases them. In an event
    loop of asyncio, `await gather` waits.
    `gather[param]` is the whole tensor, and so is `gather["name"]`: a gather is a mapping of the
    names of its params to their tensors, so `dict(gather)` and `gather.items()` work.

    An array keeps the gather, and with it the lease, alive: without an explicit release the memory
    stays valid for as long as any array of it lives. After `release` (or the end of the `with`)
    `gather[param]` raises a StaleError; arrays taken before stay readable until the context is
    closed, but show whatever the memory holds by then: NumPy has no way to take an array back.

    If the context has a device, views are in its memory. `wait_stream` makes a stream wait for them
    without the host, and `release_on_stream` releases them when a stream is done with them.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_finalize",
        "_handle",
        "_into",
        "_ready",
        "_remote",
        "_units",
    )

    _handle: Any
    __del__: Any = finalizer("_finalize")

    def __init__(
        self,
        context: BaseContext,
        units: Sequence[HasParams],
        table: Any,
        into: Mapping[Param | Flat, Any] | None,
        tier: Tier = "device",
        stream: int = 0,
    ) -> None:
        """`table` has the handles of the units."""
        self._handle = None
        self._context = context
        self._units = units
        self._into = into
        self._ready = False
        self._remote = False  # where NumPy cannot read
        if context._lifetime is None:
            raise errors.ClosedError("the context was closed")
        if context._dropped:
            context._raise_dropped()
        if into is not None:
            options, _tables = destinations(context, into, stream)
        elif tier == "device":
            options, self._remote = NULL, context._remote
        else:
            options = initial("meron_gather_options")
            options.tier = tier_code(tier)
        out = new(GATHER_OUT)
        slot = take_slot()
        self._handle = out[0]  # before the call, as in Owner._receive
        self._finalize: Callable[[], Any] = partial(gather_release, self._handle, NULL)
        status = gather_begin(out, table, len(units), options, slot)
        if status < 0 or interrupts:
            settle(status, slot)
        spare_slots.append(slot)

    def __repr__(self) -> str:
        state = "released" if self._handle is None else "full" if self._ready else "under way"
        return f"<meron.Gather of {len(self)} params, {state}>"

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the tensors are full.

        Args:
            timeout: seconds; None waits until the operation's deadline.

        Returns:
            True when they are full, False when `timeout` passed first.

        Blocks on peers, and releases the GIL. Errors as Future.wait, and StaleError.
        """
        if self._ready and self._handle is not None:
            return True
        handle = self._handle
        if handle is None:
            raise released()
        slot = take_slot()
        status = gather_wait(
            handle, DEFAULT_TIMEOUT if timeout is None else nanoseconds(timeout), slot
        )
        if status or interrupts:
            settle(status, slot)
        spare_slots.append(slot)
        self._ready = not status
        return self._ready

    def __await__(self) -> Generator[Any, None, Gather]:
        """Waits in the running loop of asyncio, and returns the gather. Raises as `wait`."""
        from meron._awaiting import until  # asyncio takes longer to import than all of this package

        yield from until(self._context, self.done).__await__()
        return self

    def wait_stream(self, stream: int = 0, timeout: float | None = None) -> bool:
        """Makes a stream wait until the tensors are full on the device.

        Later work on the stream sees them. This does not wait for the device; for tensors on the
        host it is `wait`.

        Args:
            stream: its address (torch.cuda.Stream.cuda_stream); 0 is the device's default stream.
            timeout: seconds of waiting for peers; None waits until the operation's deadline.

        Returns:
            True when the stream waits, False when `timeout` passed first.

        Blocks on peers, and releases the GIL. Errors as `wait`.

        Raises:
            ArgumentError: the context has no device, or the stream is another one's.
            StateError: the stream is being captured into a graph.
            OutOfMemoryError (the device is full), DeviceError.
        """
        if self._handle is None:
            raise released()
        until = nanoseconds(timeout)
        return not call(lib.meron_gather_wait_stream, self._handle, stream_pointer(stream), until)

    def done(self) -> bool:
        """True if the tensors are full; never blocks on peers. Raises the gather's error."""
        if not self._ready or self._handle is None:
            if self._handle is None:
                raise released()
            self._ready = call(gather_poll, self._handle) == 0
        return self._ready

    def __getitem__(self, param: Param | str) -> Array:
        """The whole tensor of `param`, or of the param of that name, with its shape and dtype.

        A read-only view of the values' memory, without a copy: a write raises ValueError, under
        every plan. PyTorch ignores that, as do pointers and np.add.at: a write to
        torch.from_numpy(view) ends the process by a segmentation fault (torch.tensor(view) copies),
        and no rank sees it. With mode "copy" or `into`
        the array that the values were gathered into, or the part of a flat's array that is the
        param's. In a CUDA device's memory, whatever the
        type says, a DLPackTensor for `torch.from_dlpack` and its kin; NumPy cannot read there.

        Raises:
            StateError: it is not full yet. StaleError: it was released. ArgumentError: the param
            is not in this gather (also a KeyError for a name).
        """
        if not isinstance(param, Param):
            param = self._find(param)
        if self._into is not None and self._ready:
            array: Array = destination_of(param, self._into)
            return array
        if self._handle is None:
            raise released()
        view = new("meron_view *")
        call(lib.meron_gather_view, view, self._handle, param._handle)
        if self._remote:
            return DLPackTensor(self, param)  # type: ignore[return-value]
        self._settle()
        return as_array(view, param.shape, (self, *param._keep()))

    def dlpack(self, param: Param | str) -> DLPackTensor:
        """The whole tensor of `param` for `torch.from_dlpack`, `numpy.from_dlpack` and their kin.

        No copy is made. It is read-only; PyTorch ignores that, and a write to its tensor ends the
        process by a segmentation fault. A tensor that is made from it has a lease of its own, which
        ends when the tensor dies: until then the unit cannot be updated on this rank. It must not
        be read after the context was closed. On a CUDA device the consumer's stream waits for the
        values. Errors
        as gather[param]; UnsupportedError for mode "copy" and
        `into` (those arrays are NumPy's own: hand them over by their own `__dlpack__`).
        """
        if self._handle is None:
            raise released()
        return DLPackTensor(self, self._find(param))

    def release(self) -> None:
        """Gives the leases back; doing so twice is fine. Never blocks."""
        handle = self._handle
        if handle is not None:
            gather_release(handle, NULL)
            self._handle = None
            self._finalize = nothing

    def release_on_stream(self, stream: int = 0) -> None:
        """As `release`, but work queued on a stream so far may still use the views.

        Their memory on the device is released when that work is done. Tensors made by DLPack keep
        theirs. Doing so twice is fine. Never blocks. Raises as `wait_stream`; then nothing is
        released.

        Args:
            stream: as for `wait_stream`.
        """
        handle = self._handle
        if handle is not None:
            call(lib.meron_gather_release_on_stream, handle, stream_pointer(stream))
            self._handle = None
            self._finalize = nothing

    def __enter__(self) -> Gather:
        if not self._ready:
            self.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        handle = self._handle
        if handle is not None:
            gather_release(handle, NULL)
            self._handle = None
            self._finalize = nothing

    def _params_by_name(self) -> dict[str, Param]:
        if self._into is None:
            return named_params(self._units)
        params = (each.ranges if isinstance(each, Flat) else (each,) for each in self._into)
        return {param.name: param for group in params for param in group}

    def _full(self) -> Gather:
        """Waits; releases the leases if that fails, because the caller has no gather to release
        yet."""
        try:
            self.wait()
        except BaseException:
            self.release()
            raise
        return self

    def _pointer(self, param: Param) -> int:
        if self._handle is None:
            raise released()
        view = new("meron_view *")
        call(lib.meron_gather_view, view, self._handle, param._handle)
        return int(ffi.cast("uintptr_t", view.data))

    def _managed_tensor(self, param: Param) -> Any:
        if self._handle is None:
            raise released()
        managed = receive(
            "struct DLManagedTensorVersioned **",
            lib.meron_gather_dlpack,
            self._handle,
            param._handle,
        )
        self._settle()
        return managed

    def _settle(self) -> None:
        """Waits for a device whose memory is the host's, of a gather that is full but for it."""
        if not self._ready and self._context.device and not self._remote:
            self.wait()


def released() -> errors.StaleError:
    return errors.StaleError(
        "this gather was released",
        advice="Read its tensors before the end of the with block, or gather again.",
    )


def destination_of(param: Param, into: Mapping[Param | Flat, Any]) -> Any:
    """The array that a param was gathered into, or its part of the array of its flat."""
    if param in into:
        return into[param]
    for flat, array in into.items():
        if isinstance(flat, Flat) and param in flat.ranges:
            place = flat.ranges[param]
            if isinstance(array, DeviceArray):
                address = array.pointer + byte_count(flat.dtype_name, place.start)
                return DeviceArray(address, param.shape, param.dtype_name, keep=array)
            return array[place.start : place.stop].reshape(param.shape)
    raise errors.argument(f"{param.name} is not in this gather", subject=param.name)


def destinations(
    context: BaseContext, into: Mapping[Param | Flat, Any], stream: int
) -> tuple[Any, Any]:
    """Options for a gather into the caller's arrays, and the tables that they point to."""
    params, flats = [], []
    for wanted, array in into.items():
        address = checked_address(wanted, array, stream, context.device)
        item = {
            "data": ffi.cast("void *", address),
            "bytes": byte_count(wanted.dtype_name, wanted.size),
        }
        if isinstance(wanted, Flat):
            flats.append({"unit": wanted._unit, "flat": wanted.index, **item})
        else:
            params.append({"param": wanted._handle, **item})
    tables = new("meron_destination[]", params), new("meron_flat_destination[]", flats)
    options = initial("meron_gather_options")
    options.mode = lib.MERON_GATHER_INTO
    options.destinations, options.flats = tables
    options.destination_count, options.flat_count = len(params), len(flats)
    options.stream = stream_pointer(stream)
    return options, tables


def checked_address(wanted: Param | Flat, array: Any, stream: int, device: str) -> int:
    """The address of the array that a param or a flat is gathered into."""
    what = f"the destination of {wanted.name}"
    on_device = device_array(array, stream, what, device)
    if on_device is not None:
        if on_device.shape != wanted.shape or on_device.dtype_name != wanted.dtype_name:
            raise errors.argument(
                f"{wanted.name} is {wanted.dtype_name} of shape {wanted.shape}, "
                f"its destination {on_device.dtype_name} of shape {on_device.shape}",
                subject=wanted.name,
            )
        return on_device.pointer
    require_writable(array, what)
    if array.shape != wanted.shape or array.dtype != wanted.dtype:
        raise errors.argument(
            f"{wanted.name} is {wanted.dtype} of shape {wanted.shape}, "
            f"its destination {array.dtype} of shape {array.shape}",
            subject=wanted.name,
            advice=f"Make it by numpy.empty(shape, {TYPE_NAMES[wanted.dtype_name]}).",
        )
    return int(array.ctypes.data)

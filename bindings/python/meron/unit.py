# SPDX-License-Identifier: Apache-2.0
"""Units: params that are gathered and reduced together."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

import numpy as np
import numpy.typing as npt

from meron import errors
from meron._arguments import as_flag
from meron._base_context import BaseContext
from meron._by_name import ByName, find, named_params
from meron._loans import Loans, Shown
from meron._methods import UnitMethods
from meron._native import (
    NULL,
    Owner,
    call,
    ffi,
    initial,
    lib,
    new,
    receive,
    refuse_unknown,
    sized,
    text,
)
from meron._values import CODECS as CODECS_BY_NAME
from meron._values import UNIT_STATES, Codec, UnitState
from meron.device import Tier, device_array, stream_pointer
from meron.dlpack import ReducedTensor
from meron.dtypes import CODES, Array, as_source, require_shape
from meron.flat import Destinations, Flat, flats_of
from meron.future import Future
from meron.gather import Gather
from meron.group import operation_code
from meron.param import Param, handles_of

Mode = Literal["view", "copy"]
Gradients = Union[Mapping[Param, Any], Mapping[str, Any]]
STATES: dict[int, Any] = {code: name for name, code in UNIT_STATES.items()}
CODECS: dict[int, Any] = {code: name for name, code in CODECS_BY_NAME.items()}


class UnitInfo(NamedTuple):
    """Information about a unit on this rank."""

    state: UnitState  # "partitioned", "gathering", "available" or "updating"
    version: int  # of the values; 0 until the first update
    leases: int  # gathers and DLPack tensors that hold it
    reduced: bool  # a reduced gradient waits for an optimizer's step
    # How values and gradients travel between replicas: "none", "bf16", "int8" or "int4"; by the
    # plan's codec, or bf16 where its error was above the plan's limit.
    param_codec: Codec
    gradient_codec: Codec
    # Relative error of this rank's last encoding: |x - decoded x| / |x| in the 2-norm, of all
    # values and of the worst block. 0 before the first one, and without a codec; NaN or infinite if
    # values were.
    param_error: float
    param_worst_block: float
    gradient_error: float
    gradient_worst_block: float


class Unit(UnitMethods, Owner, ByName[Param]):
    """Params that are gathered and reduced together, such as a layer's. Made by `Context.unit`.

    A mapping of the names of its params to them: `unit["weight"]`.

    Attributes:
        name:   unique in the context.
        params: its params, in the order in which they were given.
        flats:  the memory of its params, by dtype: see Flat.
    """

    _release_function = lib.meron_unit_release
    __setattr__ = refuse_unknown
    name: str
    params: tuple[Param, ...]
    flats: tuple[Flat, ...]

    def __init__(self, context: BaseContext, name: str, params: Iterable[Param]) -> None:
        self._context = context
        self.name = name
        self.params = tuple(params)
        handles = new("meron_param[]", handles_of(self.params, Param))
        out = new("meron_unit[]", 1)
        c_name = text(name, "the name of a unit")
        self._array = out  # what a gather of this unit alone takes
        self._handle = out[0]  # before the call, as in _receive
        call(lib.meron_unit_create, out, context._handle, c_name, handles, len(self.params))
        self._named = named_params([self])
        self._loans = Loans()  # places for gradients, until they are reduced
        self._reduced = Loans()
        self._shown = Shown()
        for param in self.params:
            param._shown = self._shown
        self.flats = flats_of(self._handle, name, self.params)

    def __repr__(self) -> str:
        return f"<meron.Unit {self.name!r}: {len(self.params)} params>"

    def __getitem__(self, name: Param | str) -> Param:
        """The param of that name. ArgumentError, also a KeyError, if the unit has none."""
        return self._own(name)

    def info(self) -> UnitInfo:
        """Information about the unit on this rank. Never blocks."""
        self._context._require_open()
        info = sized("meron_unit_info")
        call(lib.meron_unit_get_info, info, self._handle)
        return UnitInfo(
            STATES[info.state],
            info.version,
            info.leases,
            bool(info.reduced),
            CODECS[info.param_codec],
            CODECS[info.gradient_codec],
            info.param_error,
            info.param_worst_block,
            info.gradient_error,
            info.gradient_worst_block,
        )

    def destroy(self) -> None:
        """Releases the memory and the names of the unit and its params.

        Collective over the unit's group: all ranks call it, and no rank creates units or groups
        meanwhile. The handles of the unit and its params become stale.

        Blocks until every rank has called it and no rank uses the unit, at most the deadline.
        Releases the GIL meanwhile.

        Raises:
            StateError: the unit is gathered, updated, reduced or stepped on this rank, or belongs
                to a schedule or an optimizer: release these first. An array shows its memory, also
                a read-only one of a gather that was released: delete it.
            UnsupportedError: it resides on devices that are joined.
            StaleError: it was destroyed before.
            GroupError: a rank did not call it in time, and is named.
        """
        self._context._require_open()
        self._require_unshown()
        call(lib.meron_unit_destroy, self._handle)
        self._loans.end()
        self._reduced.end()
        self._context._units.pop(self.name, None)
        for param in self.params:
            self._context._params.pop(param.name, None)

    # ---- Whole tensors -------------------------------------------------------------------------

    def gather(
        self,
        mode: Mode = "view",
        *,
        into: Destinations | None = None,
        tier: Tier = "device",
        stream: int = 0,
    ) -> Gather:
        """The unit's whole tensors: `with unit.gather() as full: full[param]`.

        Collective over the unit's group; the mode may differ between ranks.

        Args:
            mode: "view" for read-only arrays of the memory that the ranks share, without a copy;
                "copy" for writable arrays of this rank's own, which outlive the gather.
            into: for each param that is wanted, or its name, the array to gather it into:
                contiguous, writable, of the param's shape and dtype. On the context's device a
                tensor of a framework, or a DeviceArray. For a flat (see `flats`) one array of its
                shape and dtype: all its params are copied there at once, and its padding gets
                values without a meaning. A param is named alone or by its flat.
            tier: "device" for views in the memory of the context's device, where it has one;
                "host" for views in the host's.
            stream: arrays of `into` on the device are written after what was asked of this one so
                far: its address; 0 is the device's default stream.

        Blocks on peers until every owner has published, and releases the GIL.

        Raises:
            StateError: the unit is being updated on this rank.
            DuplicateError: a param is named alone and by its flat.
            OutOfMemoryError, ArgumentError, GroupError.
        """
        return self.gather_begin(mode, into=into, tier=tier, stream=stream)._full()

    def gather_begin(
        self,
        mode: Mode = "view",
        *,
        into: Destinations | None = None,
        tier: Tier = "device",
        stream: int = 0,
    ) -> Gather:
        """Begins a gather and returns at once; `Gather.wait`, or entering it, waits."""
        wanted = None
        if into is not None or mode != "view":
            wanted = chosen_destinations((self,), mode, into)
        return Gather(self._context, (self,), self._array, wanted, tier, stream)

    # ---- Gradients -----------------------------------------------------------------------------

    def gradient(self, param: Param | str, *, overwrite: bool = False) -> Array:
        """The place for the gradient of a param: a writable array of its shape, to be added to.

        It is zero when an accumulation starts; under a plan that keeps whole gradients it holds
        the sum of the micro-batches so far. The dtype is the plan's gradient dtype; by default
        whole gradients of a 16-bit param are float32 from the second micro-batch on. Peers read it
        in place, so nothing is copied. After `reduce` it is read-only, so a variable may keep it;
        what was derived from it (a slice, a reshape, a tensor of one) must be gone by then.

        Args:
            param: of this unit, or its name.
            overwrite: every element will be written, so skip the zeroing. The first call for the
                unit in a micro-batch counts.

        Blocks on peers that still read the last contents, at most until the deadline.

        Raises:
            StateError: the param is frozen or in no unit, or its gradient is reduced and not used.
            ArgumentError (also for a param of another unit), GroupError.
        """
        param = self._own(param)
        keep = param._keep()
        flags = lib.MERON_GRADIENT_OVERWRITE if overwrite else 0
        view = new("meron_view *")
        call(lib.meron_gradient_view, view, param._handle, flags)
        return self._loans.lend(view, param.shape, keep, f"unit.gradient({param.name!r})")

    def reduce(
        self,
        grads: Gradients | None = None,
        *,
        op: Literal["sum", "mean"] = "mean",
        boundary: bool = True,
        divisor: float = 1.0,
        stream: int = 0,
    ) -> None:
        """Reduces the gradients of one micro-batch, and waits for the end. Collective.

        Args:
            grads, op, boundary, divisor, stream: as in `reduce_begin`. After the call the caller
                may change the arrays of `grads`.

        Blocks on peers, and releases the GIL. Ctrl-C ends the wait, not the reduction:
        `Context.wait_reductions` continues to wait for it.

        Raises what `reduce_begin` and `Future.wait` raise.
        """
        self.reduce_begin(grads, op=op, boundary=boundary, divisor=divisor, stream=stream).wait()

    def reduce_begin(
        self,
        grads: Gradients | None = None,
        *,
        op: Literal["sum", "mean"] = "mean",
        boundary: bool = True,
        divisor: float = 1.0,
        stream: int = 0,
    ) -> Future:
        """Begins the reduction of the gradients of one micro-batch. Collective.

        Args:
            grads: None when they were written to `gradient(param)`; else an array per param, or
                per name of one, of the param's shape; a tensor of PyTorch is one too. Params
                without one count as zero. They are read during the call, but for those on the
                context's device (a framework's tensors, or DeviceArrays): these stay as they are
                until the reduction has ended; the future keeps them alive.
            op: "mean" over the ranks of the group, or "sum".
            boundary: False when more micro-batches follow before the optimizer's step. Under a plan
                that keeps whole gradients such a call only adds up: no communication.
            divisor: the sum is divided by this too, e.g. by the number of micro-batches.
            stream: gradients on the device are read after what was asked of this one so far: its
                address; 0 is the device's default stream.

        Returns:
            A future, which must have ended before the result is used. Its `wait` raises GroupError
            if a rank is dead, late or made another call.

        Blocks on peers, with `grads`, as `gradient` does.

        Raises:
            StateError: reduced already and not used, or all params are frozen; an array that was
            derived from one of `gradient` is alive, and could write while peers read.
            ArgumentError, DuplicateError, GroupError.
        """
        self._context._require_open()
        self._loans.require_returned(f"unit {self.name!r} cannot be reduced")
        options = initial("meron_reduce_options")
        options.op = operation_code(op)
        options.boundary = as_flag(boundary, "boundary")
        options.divisor = divisor
        options.stream = stream_pointer(stream)
        sources, count, arrays = NULL, 0, None
        if grads is not None:
            if not isinstance(grads, Mapping):
                raise TypeError(
                    "grads is a mapping of params, or their names, to arrays, not a "
                    f"{type(grads).__name__}"
                )
            named = {self._own(param): value for param, value in grads.items()}
            if len(named) < len(grads):
                raise errors.argument("grads has a param twice: by itself and by its name", "grads")
            sources, count, arrays = source_table(self._context, named, stream)
        future = Future(self._context, arrays if self._context.device else None)
        try:
            return future._begin(lib.meron_reduce_begin, self._handle, sources, count, options)
        finally:  # an interrupt behind the call does not end the reduction
            if future._has_begun():
                self._loans.end()
                self._reduced.end()

    def reduce_finish(self, *, op: Literal["sum", "mean"] = "mean", divisor: float = 1.0) -> None:
        """Ends an accumulation as `reduce_finish_begin` does, and waits for the end. Collective.

        Args:
            op, divisor: as in `reduce_begin`.

        Blocks on peers, and releases the GIL. Ctrl-C ends the wait, not the reduction:
        `Context.wait_reductions` continues to wait for it.

        Raises what `reduce_finish_begin` and `Future.wait` raise.
        """
        self.reduce_finish_begin(op=op, divisor=divisor).wait()

    def reduce_finish_begin(
        self, *, op: Literal["sum", "mean"] = "mean", divisor: float = 1.0
    ) -> Future:
        """Begins to end an accumulation whose micro-batches were all reduced with boundary=False.

        The result has the same bits as if the last of them had been the boundary. A rank without a
        gradient takes part with zeros. Collective.

        Args:
            op, divisor: as in `reduce_begin`.

        Returns:
            A future, which must have ended before the result is used.

        Blocks, under a plan that keeps whole gradients, as `gradient` does.

        Raises:
            StateError: a gradient was written and not reduced, reduced already and not used, or
            all params are frozen.
            ArgumentError, GroupError.
        """
        self._context._require_open()
        options = initial("meron_reduce_options")
        options.op = operation_code(op)
        options.divisor = divisor
        self._require_returned("reduced")
        future = Future(self._context)
        try:
            return future._begin(lib.meron_reduce_finish_begin, self._handle, options)
        finally:
            if future._has_begun():
                self._loans.end()
                self._reduced.end()

    def reduced(self, param: Param | str) -> npt.NDArray[Any]:
        """The reduced gradient of a param's `shard_range`, for your own optimizer, or to change it.

        A flat, writable float32 array, valid until the unit's next gradient or `discard`. A step of
        Meron's optimizer takes norm, clipping and overflows from what it finds there.

        Raises StateError when no reduction at a boundary has ended, ArgumentError for a param of
        another unit. Blocks while another thread begins an operation.
        """
        param = self._own(param)
        keep = param._keep()
        view = new("meron_view *")
        call(lib.meron_reduced_view, view, param._handle)
        return self._reduced.lend(view, (view.count,), keep, f"unit.reduced({param.name!r})")

    def reduced_dlpack(self, param: Param | str) -> ReducedTensor:
        """The same for `torch.from_dlpack`, `numpy.from_dlpack` and their kin: flat and writable.

        The gradient is lent while an array of it lives: `consume`, `discard`, `destroy` and a step
        of Meron's optimizer raise StateError until then. It needs DLPack 1.0, which NumPy has from
        2.1 on. Raises as `reduced`.
        """
        param = self._own(param)
        self.reduced(param)  # raises here, rather than in the consumer

        def lend() -> Any:
            self._context._require_open()
            return receive(
                "struct DLManagedTensorVersioned **", lib.meron_reduced_dlpack, param._handle
            )

        return ReducedTensor(lend, lambda: self.reduced(param), param)

    def discard(self) -> None:
        """Throws the reduced gradient away, with the codec's feedback.

        Before the accumulation boundary, it throws the accumulation away: then all ranks must do
        the same. After a step of your own optimizer, call `consume` instead. Blocks, if the codec
        has feedback, while a save copies it.
        """
        self._context._require_open()
        self._require_returned("discarded")
        call(lib.meron_reduce_discard, self._handle)
        self._loans.end()
        self._reduced.end()

    def consume(self) -> None:
        self._require_returned("consumed")
        super().consume()
        self._reduced.end()

    consume.__doc__ = UnitMethods.consume.__doc__

    # ---- Arrays of its memory ------------------------------------------------------------------

    def _params_by_name(self) -> dict[str, Param]:
        return self._named

    def _own(self, key: Param | str) -> Param:
        """The param that is meant. ArgumentError for one of another unit."""
        param = self._find(key)
        if param._shown not in (None, self._shown):
            raise errors.argument(
                f"{param.name} is in another unit than {self.name!r}", subject=param.name
            )
        return param

    def _require_returned(self, ended: str) -> None:
        wanted = f"the gradient of unit {self.name!r} cannot be {ended}"
        self._loans.require_returned(wanted)
        self._reduced.require_returned(wanted)

    def _require_unshown(self) -> None:
        arrays = self._shown.arrays()
        if arrays:
            raise errors.StateError(
                f"unit {self.name!r} cannot be destroyed: {arrays} array"
                f"{'' if arrays == 1 else 's'} of its memory "
                f"{'is' if arrays == 1 else 'are'} still alive",
                subject=self.name,
                advice="Before the call, delete the arrays of its gathers, updates and gradients, "
                "and what was made of them, or copy what you need.",
            )


def unit_table(units: Iterable[Unit]) -> tuple[Any, int]:
    """Units as the library takes them: an array of handles, and their number."""
    handles = handles_of(units, Unit)
    return new("meron_unit[]", handles) if handles else NULL, len(handles)


def source_table(
    context: BaseContext, grads: Mapping[Param, Any], stream: int
) -> tuple[Any, int, list[Any]]:
    """Gradients as the library takes them, their number, and the arrays that they point to."""
    table = new("meron_source[]", max(len(grads), 1))
    arrays: list[Any] = []
    for source, (param, value) in zip(table, grads.items()):
        source.param = param._handle
        on_device = device_array(value, stream, param.name, context.device)
        if on_device is not None:
            require_shape(on_device.shape, param.shape, param.name)
            arrays.append(on_device)
            source.data = ffi.cast("void *", on_device.pointer)
            source.count = on_device.size
            source.dtype = CODES[on_device.dtype_name]
            continue
        # (Infinite gradients are the optimizer's to report.)
        array, code = as_source(value, param.shape, param.name, exact_range=False)
        arrays.append(array)
        source.data = ffi.cast("void *", array.ctypes.data)
        source.count = array.size
        source.dtype = code
    return table, len(arrays), arrays


def chosen_destinations(
    units: Sequence[Unit], mode: str, into: Destinations | None
) -> dict[Param | Flat, Any] | None:
    """Destinations of a gather of `mode`: None for a view, new arrays for a copy."""
    if into is not None:
        if mode not in ("view", "into"):
            raise errors.argument(f"mode {mode!r} does not go with `into`")
        named = functools.partial(named_params, units)
        wanted = {
            key if isinstance(key, Flat) else find(key, named, "the gather"): array
            for key, array in into.items()
        }
        if len(wanted) < len(into):
            raise errors.argument("`into` has a param twice: by itself and by its name", "into")
        return wanted
    if mode == "copy":
        params = (param for unit in units for param in unit.params)
        return {param: np.empty(param.shape, param.dtype) for param in params}
    if mode != "view":
        raise errors.argument(
            f"unknown gather mode {mode!r}: view and copy are known, and `into` takes arrays"
        )
    return None

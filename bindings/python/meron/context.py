# SPDX-License-Identifier: Apache-2.0
"""The context: this rank's engine."""

from __future__ import annotations

import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, SupportsIndex

from meron._arguments import as_rank
from meron._lifetime import Lifetime
from meron._methods import ContextMethods
from meron._native import (
    IN_PROGRESS,
    NULL,
    call,
    lib,
    nanoseconds,
    new,
    receive,
    sized,
    string,
    take_json,
)
from meron._optimizing import Optimizing
from meron._saving import Saving
from meron.device import Tier
from meron.dtypes import DType
from meron.flat import Destinations
from meron.gather import Gather
from meron.group import Group
from meron.param import Param, register
from meron.plan import Plan, workload_of
from meron.schedule import Schedule
from meron.stats import Prediction, Stats
from meron.unit import Mode, Unit, chosen_destinations, unit_table
from meron.update import Update

logger = logging.getLogger("meron")


class Context(Saving, Optimizing, ContextMethods):
    """This rank's engine. Made by `meron.open`; a context manager that closes itself.

    Attributes:
        rank:       this rank, 0 to world_size - 1.
        world_size: the number of ranks.
        transport:  "self", "local", "shm", "cluster", "mpi", or the name of a custom one.
        world:      the group of all ranks.
        plan:       the plan that it was opened with.
        device:     what this rank computes on, as it was opened; "" is the host.
    """

    def __init__(self, lifetime: Lifetime, plan: Plan, device: str = "") -> None:
        super().__init__(lifetime, device)
        self.plan = plan
        # Bytes of gradients that meron.torch holds, now and at most.
        self._closing: Callable[[], Callable[[], None] | None] = lambda: None
        self._caller_gradients: Callable[[], Callable[[], tuple[int, int]] | None] = lambda: None
        handle = lifetime._handle
        self.rank: int = receive("int32_t *", lib.meron_context_rank, handle)
        self.world_size: int = receive("int32_t *", lib.meron_context_world_size, handle)
        self.transport: str = string(receive("const char **", lib.meron_context_transport, handle))
        self.world = Group(self, lib.meron_context_world, handle)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self.transport
        return f"<meron.Context: rank {self.rank} of {self.world_size}, {state}>"

    # ---- Life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the context; doing so twice is fine.

        Operations under way are cancelled, and everything made from the context raises errors from
        now on. Does not wait for peers; those that still need this rank get a PeerClosedError.

        NumPy arrays that still show the context's memory keep the library's side open until the
        last of them dies, so reading them never crashes. Tensors imported by DLPack cannot be
        tracked: do not read them any more.
        """
        closing = self._closing()
        if closing is not None and self._lifetime is not None:
            closing()
        for error in self._dropped.take_failures() if self._lifetime is not None else ():
            logger.error("%s", error)
        self._lifetime = None
        for watcher in tuple(self._watchers.values()):
            watcher.context_closed()

    def __enter__(self) -> Context:
        self._require_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the context.

        Without an exception it waits for the last save first, and raises its error, or that of an
        operation whose future was dropped, if no call has raised it yet.

        After an exception the arrays in its traceback may keep the library's side open for long:
        then the world is aborted, so that peers learn at once that this rank will not come.
        """
        lifetime = None if self._lifetime is None else weakref.ref(self._lifetime)
        if value is None and lifetime is not None:
            try:
                self._end_dropped()
            finally:
                self.close()
            return
        self.close()
        if value is not None and lifetime is not None and lifetime() is not None:
            reason = f"rank {self.rank} left its context by {type(value).__name__}: {value}"
            lib.meron_group_abort(self.world._handle, reason.encode("utf-8", "replace"), NULL)

    def _end_dropped(self) -> None:
        save = self._save()
        if save is not None:
            save.release()
        self._raise_dropped()
        self._dropped.raise_failure_of_save()

    # ---- Making things -------------------------------------------------------------------------

    def group(self, ranks: Iterable[int]) -> Group | None:
        """A group of some ranks; None on ranks outside of the list.

        Collective over the world: every rank calls it with the same list.

        Args:
            ranks: world ranks, each once, in the group's order.

        Raises ArgumentError for a rank beyond the world or twice.
        Blocks if this rank is 1,024 calls ahead of a peer.
        """
        table = new("int32_t[]", [as_rank(rank, "a group's rank") for rank in ranks])
        group = Group(self, lib.meron_group_create, self._handle, table, len(table))
        return group if group._handle.id else None

    def param(
        self,
        name: str,
        shape: SupportsIndex | Sequence[int],
        dtype: DType = "f32",
        *,
        frozen: bool = False,
        group: Group | None = None,
    ) -> Param:
        """Registers a param.

        Collective over its group: all ranks register the same params in the same order.

        Args:
            name: unique in the context, 1 to 512 bytes of UTF-8.
            shape: sizes, row-major, each 0 or more; () is a scalar.
            dtype: "f32", "bf16" or "f16", or NumPy's type for it.
            frozen: it gets no gradient and no optimizer state.
            group: the ranks that share it; None is the world.

        Raises ArgumentError, DuplicateError, MismatchError.
        Blocks if this rank is 1,024 calls ahead of a peer.
        """
        param = register(self, name, shape, dtype, frozen, group)
        self._params[param.name] = param
        return param

    def unit(self, name: str, params: Iterable[Param]) -> Unit:
        """Puts params together into a unit, and reserves the memory that the plan gives it here.

        The values are zero at first; `update` writes them. Collective over the params' group.

        Args:
            name: unique in the context, 1 to 512 bytes of UTF-8.
            params: of one group, none of them in a unit.

        Raises DuplicateError, OutOfMemoryError (with figures), ArgumentError, GroupError.
        Blocks if this rank is 1,024 calls ahead of a peer.
        """
        unit = Unit(self, name, params)
        self._units[unit.name] = unit
        return unit

    @property
    def params(self) -> dict[str, Param]:
        """The params by name. Those that nothing holds any more, and those of destroyed units, are
        left out."""
        return dict(self._params)

    @property
    def units(self) -> dict[str, Unit]:
        """The units by name, as `params`."""
        return dict(self._units)

    def gather(
        self,
        units: Iterable[Unit],
        mode: Mode = "view",
        *,
        into: Destinations | None = None,
        tier: Tier = "device",
        stream: int = 0,
    ) -> Gather:
        """Gathers several units as one operation; else as Unit.gather."""
        units = tuple(units)
        table, _ = unit_table(units)
        wanted = chosen_destinations(units, mode, into)
        return Gather(self, units, table, wanted, tier, stream)._full()

    def update(self, units: Iterable[Unit]) -> Update:
        """Opens units for writing: `with ctx.update([unit]) as update: ...`. See Update."""
        self._require_open()
        return Update(self, units)

    def schedule(
        self,
        units: Iterable[Unit],
        *,
        prefetch_elements: int | None = None,
        max_live_elements: int | None = None,
        max_reuse_elements: int | None = None,
        persist_elements: int | None = None,
        persist_total_elements: int | None = None,
        tier: Tier = "host",
        stream: int = 0,
    ) -> Schedule:
        """A schedule of some units: gathers ahead along the order of the pass before.

        Collective over the units' group: units and limits are equal on all ranks.

        Args:
            units: of one group; enter and leave take a unit's index.
            prefetch_elements: gathers are prefetched for the next uses within this many elements;
            None is 50,000,000, 0 disables the prefetch. max_live_elements: limit of prefetched and
            kept units, never of the unit in use; None is 1,000,000,000. max_reuse_elements: a unit
            whose next recorded use comes within this many elements of
                other units' uses is kept full; None is 1,000,000,000.
            persist_elements: a unit of at most this many elements stays full from its first use
                until `drop`; None is 100,000.
            persist_total_elements: of all such units together, in the order given; None has no
                limit.
            tier: where views are: "host", or "device" for the memory of the context's device,
                where it has one.
            stream: for views on the device, the address of the stream that waits for a unit that is
                entered, and behind whose work so far its memory goes back
                (torch.cuda.Stream.cuda_stream); 0 is the default stream. It lives as long as the
                schedule.

        Raises ArgumentError, DuplicateError, MismatchError.
        Blocks if this rank is 1,024 calls ahead of a peer.
        """
        self._require_open()
        return Schedule(
            self,
            units,
            tier,
            stream,
            prefetch_elements=prefetch_elements,
            max_live_elements=max_live_elements,
            max_reuse_elements=max_reuse_elements,
            persist_elements=persist_elements,
            persist_total_elements=persist_total_elements,
        )

    # ---- Waiting -------------------------------------------------------------------------------

    def wait_reductions(self, units: Iterable[Unit], timeout: float | None = None) -> bool:
        """Waits until what `reduce_begin` and `reduce_finish_begin` of the units began has ended.

        One call for many units, also for reductions without a future.

        Args:
            units: also of several groups; a unit with no reduction counts as done. timeout: seconds
            for all of them; None waits until each operation's own deadline.

        Returns:
            True if all have succeeded, False after `timeout`; they continue.

        Blocks as Future.wait. Raises as Future.wait; ArgumentError for no unit, HandleError for
        units of several contexts.
        """
        self._require_open()
        table, count = unit_table(units)
        return call(lib.meron_reduce_wait, table, count, nanoseconds(timeout)) != IN_PROGRESS

    def clip_gradients(self, units: Iterable[Unit], max_norm: float) -> float:
        """Scales the reduced gradients of units to at most a global norm; returns the norm before.

        For an optimizer of your own, as `torch.nn.utils.clip_grad_norm_`. The norm is exact: it has
        the same bits for every number of ranks and every plan, and norm and gradients have the bits
        with which an optimizer of Meron's with `max_norm` works. Collective over the units' group.

        Args:
            units: of one group, all with a reduced gradient. max_norm: 0 measures only.

        Blocks until every rank has called it, at most the deadline. Releases the GIL meanwhile.

        Raises:
            NonFiniteError: on all ranks if a gradient is NaN or infinite, with its param, element
                and rank. No gradient was changed: `Unit.discard` them.
            StateError: a unit is not reduced, or is in use by a step.
            ArgumentError, DuplicateError, GroupError.
        """
        self._require_open()
        self._raise_dropped()
        table, count = unit_table(units)
        norm: float = receive("double *", lib.meron_gradient_clip, table, count, max_norm)
        return norm

    # ---- Looking at it -------------------------------------------------------------------------

    def progress(self) -> None:
        """Advances every operation that can advance, without waiting.

        Waits do the same; a trainer that computes for long between begin and wait may call it in
        between. Computes, but never blocks on peers. Errors as Future.wait.
        """
        call(lib.meron_context_progress, self._handle)
        self._dropped.sweep()

    def stats(self) -> Stats:
        """The counters. Never blocks."""
        out = sized("meron_stats")
        call(lib.meron_context_stats, out, self._handle)
        counted = [each.name for each in dataclasses.fields(Stats) if not each.metadata]
        held = self._caller_gradients()
        return Stats(*(getattr(out, name) for name in counted), *(held() if held else ()))

    def predict(self, micro_batches: int = 1, *, gathers_per_micro_batch: int = 2) -> Prediction:
        """The plan's predictions for this rank and its current units.

        The counters of `stats` grow by exactly these bytes per step of that workload.
        """
        out = sized("meron_prediction")
        workload = workload_of(micro_batches, gathers_per_micro_batch)
        call(lib.meron_context_predict, out, self._handle, workload)
        return Prediction(*(getattr(out, each.name) for each in dataclasses.fields(Prediction)))

    def flight_record(self) -> dict[str, Any]:
        """The last operations of every rank, from the library's JSON. Works when broken, too."""
        record: dict[str, Any] = take_json(lib.meron_context_flight_record, self._handle)
        return record

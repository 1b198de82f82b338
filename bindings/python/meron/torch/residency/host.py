# SPDX-License-Identifier: Apache-2.0
"""Params that are used in host memory: the engine's schedule gathers them.

If ranks share memory, the unsharded tensors are copy-on-write mappings of that (copy_on_write.py),
at addresses that never change. Else they are tensors of torch's own, filled at each gather, whose
storages are emptied after use.
"""

from __future__ import annotations

import contextlib
import faulthandler
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

import meron
from meron import errors
from meron._native import DEFAULT_TIMEOUT, call, error_slot, free_slots, lib, new, settle
from meron.torch.gradients.reducer import GradientReducer
from meron.torch.guard import WRITE
from meron.torch.residency import Memory, Owner
from meron.torch.residency.copy_on_write import CopyOnWrite
from meron.torch.tensors import DTYPES, tensor_of
from meron.torch.torch_internals import address_of, without_transforms
from meron.torch.unit import ShardedUnit

schedule_enter = lib.meron_schedule_enter
schedule_leave = lib.meron_schedule_leave

View = Callable[[meron.Param], Any]  # the engine's meron_view of an unsharded tensor


def gather_view(gather: meron.Gather, handle: meron.Param) -> Any:
    view = new("meron_view *")
    call(lib.meron_gather_view, view, gather._handle, handle._handle)
    return view


class MappedMemory:
    """In memory that the ranks share."""

    def __init__(self, residency: HostResidency, unit: ShardedUnit) -> None:
        self.residency = residency
        self.unit = unit
        self.wholes: list[torch.Tensor] = []
        self.addresses: list[int] = []
        self.entered = False  # in the schedule
        self.ahead: Any = None
        self.lease: Any = None  # of the values that are kept

    def load(self, view: View) -> None:
        """`view` has the unsharded tensors, which are full now."""
        if not self.wholes:
            lifetime, copies = self.residency.owner.context._require_open(), self.residency.copies
            handles = self.unit.handles
            self.wholes = [tensor_of(view(h), h.shape, lifetime, copies) for h in handles]
            self.addresses = [*map(address_of, self.wholes)]

    def enter(self) -> None:
        # Runs for each use, so it makes few calls of Python.
        residency = self.residency
        if residency.schedule is None:
            residency.require()
        try:
            slot = free_slots.pop()
        except IndexError:
            slot = error_slot()
        status = schedule_enter(residency.handle, self.unit.index, DEFAULT_TIMEOUT, slot)
        if status:
            settle(status, slot)
        free_slots.append(slot)
        self.entered = True
        if self.ahead is not None:
            self.end_prefetch()
        if not self.wholes:
            self.load(residency.view)

    def resume(self) -> None:
        """They are there."""

    def leave(self) -> None:
        if self.entered:
            self.entered = False
            try:
                slot = free_slots.pop()
            except IndexError:
                slot = error_slot()
            status = schedule_leave(self.residency.handle, self.unit.index, slot)
            if status:
                settle(status, slot)
            free_slots.append(slot)

    def leave_to_leases(self) -> None:
        MappedMemory.leave(self)

    def abandon(self) -> None:
        self.entered = False

    def pin(self) -> meron.Gather:
        gather = self.unit.unit.gather()
        if self.unit.uses == 0:
            self.load(partial(gather_view, gather))
        return gather

    def unpin(self, lease: meron.Gather) -> None:
        lease.release()

    def prefetch(self) -> None:
        if self.unit.uses == 0 and self.ahead is None:
            self.ahead = self.unit.unit.gather_begin()

    def end_prefetch(self) -> None:
        if self.ahead is not None:
            self.ahead.release()
            self.ahead = None

    def keep_begin(self) -> None:
        if self.lease is None:
            self.lease = self.unit.unit.gather_begin()

    def keep(self) -> None:
        self.lease.wait()
        self.load(partial(gather_view, self.lease))

    def stop_keeping(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.release()

    def forget(self) -> None:
        self.wholes, self.addresses = [], []

    def leases(self) -> int:
        return self.unit.leases() + int(self.lease is not None)


class CopiedMemory(MappedMemory):
    """In torch's own storages, which stay the same objects: what is gathered is copied there, and
    released at once."""

    def load(self, view: View) -> None:
        handles = self.unit.handles
        with torch.no_grad(), torch.inference_mode(False), without_transforms():
            if not self.wholes:
                self.wholes = [
                    torch.empty(h.shape, dtype=DTYPES[h.dtype_name], device="cpu") for h in handles
                ]
            for handle, whole in zip(handles, self.wholes):
                whole.untyped_storage().resize_(handle.size * whole.dtype.itemsize)
                # By a detached alias: this is no change that autograd should count.
                whole.detach().copy_(tensor_of(view(handle), handle.shape, None))

    def enter(self) -> None:
        filled = not self.wholes  # by the first enter
        super().enter()
        if not filled:
            self.load(self.residency.view)
        super().leave()

    def leave(self) -> None:
        if not self.unit.stays:
            self.empty()

    def abandon(self) -> None:
        super().abandon()
        if self.unit.uses == 0:
            self.leave()

    def keep(self) -> None:
        super().keep()
        super().stop_keeping()

    def stop_keeping(self) -> None:
        super().stop_keeping()
        if self.unit.uses == 0:
            self.empty()

    def empty(self) -> None:
        for whole in self.wholes:
            whole.untyped_storage().resize_(0)


class HostResidency:
    """The engine's schedule over all units of a context gathers and releases them."""

    device = ""
    torch_device = torch.device("cpu")
    autograd_device: torch.device | None = None

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.schedule: meron.Schedule | None = None
        self.handle: Any = None  # of it
        # Through which params in use are seen, so that writes to them are found.
        self.copies: CopyOnWrite | None = None
        if owner.mapped:
            # If copy_on_write.py does not work here, a write to a param in use ends the process;
            # the report then names the line.
            with contextlib.suppress(OSError, ValueError, RuntimeError, AttributeError):
                # (What stderr may be that is no file.)
                if not faulthandler.is_enabled():
                    faulthandler.enable()
            self.copies = CopyOnWrite(owner.context.rank)

    def require(self) -> meron.Schedule:
        """A schedule over all units as they are. Collective where there is none."""
        if self.schedule is None:
            units = [unit.unit for unit in self.owner.units]
            limits: dict[str, Any] = self.owner.limits
            self.schedule = self.owner.context.schedule(units, **limits)
            self.handle = self.schedule._handle
        return self.schedule

    def view(self, handle: meron.Param) -> Any:
        """The unsharded tensor of a param whose unit is entered, as a meron_view."""
        view = new("meron_view *")
        call(lib.meron_schedule_view, view, self.handle, handle._handle)
        return view

    def memory(self, unit: ShardedUnit) -> Memory:
        return MappedMemory(self, unit) if self.owner.mapped else CopiedMemory(self, unit)

    def reducer(self, sharding: Any) -> GradientReducer:
        return GradientReducer(sharding)

    def begin(self, kind: int) -> None:
        self.require().start_pass(kind)

    def renew(self) -> None:
        self.schedule = None

    def drop(self, written: Iterable[ShardedUnit]) -> None:
        for unit in self.owner.units:
            if unit.memory.ahead is not None:
                unit.memory.end_prefetch()
        if self.schedule is not None:
            self.schedule.drop()

    def release(self) -> None:
        if self.schedule is not None:
            self.schedule.release()
            self.schedule = None

    def reset(self) -> None:
        if self.schedule is not None:
            self.schedule.reset()

    def forget_units(self) -> None:
        """The next pass makes another schedule."""

    def refuse_written(self) -> None:
        """StateError that names the params that were written to in use; the writes are undone."""
        ranges = self.copies.written() if self.copies is not None else []
        if not ranges:
            return
        names = [
            handle.name
            for unit in self.owner.units
            for begin, whole, handle in zip(unit.memory.addresses, unit.memory.wholes, unit.handles)
            if any(begin < last and first < begin + whole.nbytes for first, last in ranges)
        ]
        if names:
            more = f" and {len(names) - 3} others" if len(names) > 3 else ""
            shown = ", ".join(f"'{name}'" for name in names[:3])
            raise errors.StateError(
                f"{shown}{more}: written to while in use, on this rank alone. The write is "
                "undone; what was computed since is not: call zero_grad",
                subject=names[0],
                advice=WRITE,
            )

    def close(self) -> None:
        if self.copies is not None:
            self.copies.close()

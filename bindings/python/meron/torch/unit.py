# SPDX-License-Identifier: Apache-2.0
"""A unit: torch parameters that are gathered and reduced together.

Its params are in one of the phases below. Its memory (residency/) decides the place of their
unsharded values, and when to gather and release them.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from typing import Any

import torch

import meron
from meron import errors
from meron.torch.gradients.accumulation import ENDED, FINISHED, Accumulation
from meron.torch.guard import WRITE, plain
from meron.torch.param_data import ParamData
from meron.torch.sharded_context import ShardedContext
from meron.torch.tensors import DTYPES, placeholder
from meron.torch.torch_internals import address_of, version_of


class Phase(enum.IntEnum):
    """The tensors that the params point at, and the uses that their classes allow (guard.py)."""

    SHARDED = 0  # placeholders of their shapes, which refuse reads and writes
    IN_USE = 1  # unsharded tensors, as any: from the first use to the end of the last
    LENT = 2  # in use: memory of GatheredParameters' caller, which may be written
    # Under plans that do not shard params, and for small units of meron.zero, these are unsharded
    # between uses too, until they are written (decision 18).
    KEPT = 3  # unsharded tensors, which refuse writes
    KEPT_IN_USE = 4  # unsharded tensors, as any
    KEPT_LENT = 5  # as LENT


SHARDED, IN_USE, LENT, KEPT, KEPT_IN_USE, KEPT_LENT = Phase
TRANSITIONS: dict[str, dict[Phase, Phase]] = {
    "enter": {SHARDED: IN_USE, KEPT: KEPT_IN_USE},
    "leave": {IN_USE: SHARDED, KEPT_IN_USE: KEPT},
    "lend": {IN_USE: LENT, KEPT_IN_USE: KEPT_LENT},
    "take back": {LENT: IN_USE, KEPT_LENT: KEPT_IN_USE},
    "reveal": {SHARDED: KEPT, IN_USE: KEPT_IN_USE, LENT: KEPT_LENT},
    "conceal": {KEPT: SHARDED, KEPT_IN_USE: IN_USE, KEPT_LENT: LENT},
}
ENTER, LEAVE, LEND, TAKE_BACK, REVEAL, CONCEAL = TRANSITIONS.values()


class ShardedUnit:
    """Attributes that others read:

    params:    the torch parameters; `handles` are the engine's, in the same order
    gradients: of the trainable params
    uses:      how often it is in use now
    pinned:    what `pin` holds until `unpin`, or None
    retained:  what `retain` holds until `release`, or None
    """

    def __init__(
        self,
        sharding: ShardedContext,
        name: str,
        params: list[torch.nn.Parameter],
        names: list[str],
        handles: list[meron.Param],
        unit: meron.Unit,
    ) -> None:
        self.sharding = sharding
        self.name = name
        self.names = names
        self.handles = handles
        self.unit = unit
        self.index = -1  # in the sharding
        self.phase = SHARDED
        self.uses = 0
        self.pinned: Any = None
        self.retained: Any = None
        # Numbers of uses (Passes.clock): the first in the present pass that autograd records; the
        # first that it does not; and, where that is the only such one, of what follows it.
        self.graded = self.ungraded = self.until = -1
        self.frozen = [i for i, handle in enumerate(handles) if handle.frozen]
        self.partly_frozen = bool(self.frozen)
        # f32 values of this rank's parts where the model's own were wider than what is gathered.
        self.masters: dict[int, torch.Tensor] = {}
        # Of params that are on the device meta still, by index: the dtype that the model gave them.
        self.unmade = {i: param.dtype for i, param in enumerate(params) if param.is_meta}
        self.built = [param.dtype for param in params]  # the dtypes that the model was built with
        # True if state_dict() has only the values that this rank has, as under DeepSpeed's names.
        self.local_state = False
        self.entries: dict[int, torch.Tensor] = {}  # memory of its entries without values, by index
        self.optimizer: Callable[[], Any] | None = None  # a weak reference: the engine's, if any
        # A weak reference to the module that it was made for. `lost`: no module has its params.
        self.owner: weakref.ref[torch.nn.Module] | None = None
        self.lost = False
        place = sharding.torch_device
        empties = [placeholder(h.shape, DTYPES[h.dtype_name], place) for h in handles]
        for param, empty in zip(params, empties):
            param.grad = None
            if param.is_meta:
                fresh = torch.nn.Parameter(empty.data, param.requires_grad)
                torch.utils.swap_tensors(param, fresh)
        self.data = ParamData(params, empties)
        self.data.hide()
        self.memory = sharding.residency.memory(self)
        self.gradients = Accumulation(params, handles)
        self.trainable = self.gradients.trainable

    def __repr__(self) -> str:
        return f"<meron.torch unit {self.name!r}: {len(self.params)} params>"

    @property
    def params(self) -> list[torch.nn.Parameter]:
        return self.data.params

    @property
    def stays(self) -> bool:
        """True if its params are unsharded out of use too."""
        return self.phase in CONCEAL

    @property
    def replaced(self) -> bool:
        """True if modules have other params in the places of all of its own."""
        return all(hasattr(param, "_meron_replaced") for param in self.params)

    def shard_range(self, i: int) -> range:
        return self.handles[i].shard_range

    # ---- Uses ----------------------------------------------------------------------------------

    def enter(self) -> None:
        """The params are unsharded from now on. Counted; blocks on peers."""
        if self.uses == 0:
            memory, data = self.memory, self.data
            if self.phase is KEPT:
                memory.resume()
                data.unguard()
            else:
                memory.enter()
                data.show(memory.wholes)
            if not memory.addresses:
                data.count_writes()
            self.phase = ENTER[self.phase]
        self.uses += 1

    def leave(self) -> None:
        """Ends one use. Never blocks."""
        self.uses -= 1
        if self.uses == 0:
            self.phase = phase = LEAVE[self.phase]
            if phase is KEPT:
                self.data.guard()
            else:
                self.data.hide()
            self.memory.leave()
        elif self.uses == self.leases():
            self.memory.leave_to_leases()

    def pin(self) -> None:
        """Makes the params unsharded until `unpin`, beside the schedule. Collective; blocks."""
        if self.pinned is None:
            self.require_values()
            self.sharding.finish_step()
            lease = self.memory.pin()
            if self.uses == 0:
                self.show()
                self.phase = ENTER[self.phase]
            self.pinned = lease
            self.uses += 1

    def unpin(self) -> None:
        if self.pinned is not None:
            lease, self.pinned = self.pinned, None
            try:
                self.check_data()
            finally:
                self.leave()
                self.memory.unpin(lease)

    def retain(self) -> None:
        """Keeps the params unsharded, which are in use, until `release`. Collective; blocks."""
        if self.retained is None:
            self.retained = self.memory.pin()
            self.uses += 1

    def release(self) -> None:
        """Ends `retain`. Never blocks."""
        if self.retained is not None:
            lease, self.retained = self.retained, None
            self.leave()
            self.memory.unpin(lease)

    def leases(self) -> int:
        """Number of uses beside the schedule."""
        return int(self.pinned is not None) + int(self.retained is not None)

    def lend(self, copies: list[torch.Tensor]) -> None:
        """Points the params, which are in use, at memory of the caller's."""
        self.phase = LEND[self.phase]
        for param, copy in zip(self.params, copies):
            param.data = copy

    def take_back(self) -> None:
        """Ends `lend`."""
        for param, whole in zip(self.params, self.memory.wholes):
            param.data = whole
        self.phase = TAKE_BACK[self.phase]
        self.data.count_writes()  # those to the copies were meant

    def recover(self) -> None:
        """After an exception: no use is left but those of `pin` and `retain`."""
        kept = self.leases()
        if self.uses > kept:
            self.uses = kept
            if not kept:
                self.phase = LEAVE[self.phase]
                self.hide()
            self.memory.abandon()

    def show(self) -> None:
        """Points the params at the unsharded tensors."""
        self.data.show(self.memory.wholes)
        if not self.memory.addresses:
            self.data.count_writes()

    def hide(self) -> None:
        """The params are out of use."""
        if self.phase is KEPT:
            self.data.guard()
        else:
            self.data.hide()

    # ---- Values between uses -------------------------------------------------------------------

    def reveal(self) -> None:
        """After memory.keep_begin: makes the params unsharded until `conceal`. Blocks on peers
        until all have published."""
        self.memory.keep()
        if self.uses == 0:
            self.show()
        self.phase = REVEAL[self.phase]
        if self.uses == 0:
            self.hide()

    def conceal(self) -> None:
        """Before values are written."""
        if self.phase in CONCEAL:
            self.phase = CONCEAL[self.phase]
            if self.uses == 0:
                self.data.unguard()
                self.data.hide()
        self.memory.stop_keeping()

    # ---- Mistakes ------------------------------------------------------------------------------

    def check_data(self) -> None:
        """StateError for a param that was written to, or whose `.data` was replaced, in use."""
        memory = self.memory
        known = memory.addresses
        if not known:  # the memory is torch's own, and writable
            if self.phase in TAKE_BACK:
                return
            known = [*map(address_of, memory.wholes)]
            versions = [*map(version_of, self.params)]
            if versions != self.data.versions:
                changed = [now != then for now, then in zip(versions, self.data.versions)]
                name = self.handles[changed.index(True)].name
                raise errors.StateError(
                    f"'{name}' is sharded: it was written to while it was in use; the values are "
                    "discarded",
                    subject=name,
                    advice=WRITE,
                )
        if [*map(address_of, self.data.params)] == known or self.phase in TAKE_BACK:
            return
        for param, whole, handle in zip(self.params, memory.wholes, self.handles):
            if address_of(param) != address_of(whole):
                param.data = whole
                raise errors.StateError(
                    f"'{handle.name}' is sharded: param.data was replaced while it was in use; the "
                    "values are discarded",
                    subject=handle.name,
                    advice=WRITE,
                )

    def set_gradient(self, i: int, value: torch.Tensor | None) -> None:
        """Drops the gradient of a param that the user sets to None. StateError for another value
        that would be added to what the engine has, or ignored."""
        own = self.gradients
        if value is None:
            self.sharding.reducer.drop(self, (i,))
        elif i in own.seen or i in own.dropped or own.phase in (ENDED, FINISHED):
            name = self.handles[i].name
            raise errors.StateError(
                f"'{name}' is sharded and had its backward: what is written to param.grad now "
                "would not replace its gradient",
                subject=name,
                advice="Call meron.torch.set_full_grad(param, value) on all ranks, or write to "
                "param.grad before the first backward of a step.",
            )

    def check(self) -> None:
        """StateError for a param that has no values yet, and for one that was frozen when it was
        sharded and is not any more."""
        self.require_values()
        if not self.frozen:
            return
        with plain():
            thawed = next((i for i in self.frozen if self.params[i].requires_grad), None)
        if thawed is not None:
            name = self.handles[thawed].name
            raise errors.StateError(
                f"{name} was frozen when it was sharded, and requires gradients now",
                subject=name,
                advice="Set requires_grad before sharding. A param that is frozen later may be "
                "trainable then.",
            )

    def takes_writes(self) -> bool:
        """True if its params show their values out of use, and these may be written now."""
        return self.phase is KEPT and self.sharding.takes_writes(self)

    def publish(self, values: dict[int, torch.Tensor]) -> None:
        """Makes values that this rank has written those of all ranks. Collective."""
        self.sharding.publish(self, values)

    def require_values(self) -> None:
        """StateError for a param that was sharded with init="defer" and not loaded yet."""
        if self.unmade:
            name = self.handles[next(iter(self.unmade))].name
            raise errors.StateError(
                f"{name} has no values yet: it was sharded with init='defer'",
                subject=name,
                advice="Call meron.torch.load_pretrained or meron.torch.load first.",
            )

    # ---- Its end -------------------------------------------------------------------------------

    def release_params(self) -> None:
        """Holds its params no more."""
        self.data.hold([], [])
        self.gradients.release_params()

    def take_again(
        self, params: list[torch.nn.Parameter], kinds: list[type[torch.nn.Parameter]]
    ) -> None:
        """Holds them again."""
        self.data.hold(params, kinds)
        self.gradients.hold(params)

    def end(self) -> None:
        """The engine's unit was destroyed."""
        self.forget_memory()
        self.release_params()
        self.masters = {}
        self.owner = None

    def forget_memory(self) -> None:
        """Shows no memory of the engine's any more."""
        self.data.unguard()
        self.hide()
        self.data.forget()
        self.memory.forget()

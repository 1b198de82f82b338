# SPDX-License-Identifier: Apache-2.0
"""A unit: torch parameters that are gathered and reduced together.

Which tensor a parameter of the model points at (`param.data`), and its class (guard.py):

    in use       the unsharded tensor. If ranks share memory, it is in a copy-on-write mapping of
                 that (copy_on_write.py), at an address that never changes. Else, and on a device
                 (device_unit.py), it is a tensor of torch's, filled at each gather, whose storage
                 is emptied after use
    out of use   under plans that shard params a placeholder of its shape, whose class refuses reads
                 and writes of values; under those that do not, the unsharded tensor, whose class
                 refuses writes (decision 18)

The Parameter object itself stays the same for life, so optimizers, hooks and ties that hold it stay
right. Autograd saves Parameters by reference and views of them (a transposed weight, say) by
storage: both still mean the unsharded tensor when backward has gathered the unit again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

import meron
from meron import errors
from meron._native import call, lib, new
from meron.torch.gradients.sources import sources_of
from meron.torch.guard import WRITE, plain, sharded_class, unsharded_class
from meron.torch.residency.host import HostSchedule
from meron.torch.sharded_context import ShardedContext
from meron.torch.tensors import DTYPES, placeholder, tensor_of
from meron.torch.torch_internals import address_of, version_of, without_transforms


class ShardedUnit:
    """Attributes that others read:

    params:     the torch parameters; `handles` are the engine's, in the same order
    trainable:  those of them that get gradients, by index; `wanted` is how many
    uses:       how often it is in use now
    stays:      whether its params are unsharded out of use too, until they are written
    """

    def __init__(
        self,
        sharding: ShardedContext,
        schedule: HostSchedule,
        name: str,
        params: list[torch.nn.Parameter],
        names: list[str],
        handles: list[meron.Param],
        unit: meron.Unit,
    ) -> None:
        self.sharding = sharding
        self.schedule = schedule
        self.mapped = sharding.mapped
        self.name = name
        self.params = params
        self.names = names
        self.handles = handles
        self.unit = unit
        self.index = -1  # in the sharding
        self.uses = 0
        # Numbers of uses (Sharding.clock): the first in the present pass that autograd records; the
        # first that it does not; and, where that is the only such one, of what follows it.
        self.graded = self.ungraded = self.until = -1
        self.scheduled = False  # whether the schedule knows of the use
        self.trainable = [i for i, handle in enumerate(handles) if not handle.frozen]
        self.wanted = len(self.trainable)
        self.frozen = [i for i, handle in enumerate(handles) if handle.frozen]
        self.partly_frozen = bool(self.frozen)
        place = sharding.torch_device
        self.placeholders = [placeholder(h.shape, DTYPES[h.dtype], place) for h in handles]
        self.wholes: list[torch.Tensor] = []
        self.addresses: list[int] = []  # of them, where they do not move
        # Counts of in-place changes, by which a write to memory of torch's own is seen.
        self.versions: list[int] = []
        self.lent = False  # params point at memory of the caller's (GatheredParameters)
        self.stays = False
        self.lease: Any = None  # of the unsharded values, while they stay
        # Each param with its unsharded tensor, once and as long as that stays at one address; with
        # its placeholder; and with its classes. What uses need in every pass.
        self.shown: list[tuple[torch.nn.Parameter, torch.Tensor, Any]] = []
        self.hidden: list[tuple[torch.nn.Parameter, torch.Tensor, Any]] = []
        self.readable: list[tuple[torch.nn.Parameter, Any, Any]] = []
        # f32 values of this rank's parts where the model's own were wider than what is gathered.
        self.masters: dict[int, torch.Tensor] = {}
        # Which params have brought a gradient in the present backward pass.
        self.arrived: set[int] = set()
        # Of params that are on the device meta still, by index: the dtype that the model gave them.
        self.unmade: dict[int, torch.dtype] = {}
        self.built = [param.dtype for param in params]  # the dtypes that the model was built with
        self.optimizer: Callable[[], Any] | None = None  # a weak reference: the engine's, if any
        # A weak reference to the module that it was made for; and whether no one has its params.
        self.owner: weakref.ref[torch.nn.Module] | None = None
        self.lost = False
        self.pinned: Any = None
        self.ahead: Any = None
        # Those that have brought one since the last step; of all ranks once it is `finished`.
        self.seen: set[int] = set()
        self.sources: Any = None  # for the reducer
        self.watches: list[Any] = []  # handles of its hooks on the params
        self.given = False  # in the present backward pass, to the engine
        self.begun = False  # the engine accumulates, be it nothing; equal on all ranks
        self.gradient_bytes = sum(
            h.size * DTYPES[h.dtype].itemsize for h in handles if not h.frozen
        )
        self.waits = False  # its gradients are complete, and not given yet
        self.ended = False  # the accumulation, by what was given
        # Whether a pass has brought gradients again after all of them; and whether a step has shown
        # of all ranks that none does. Until then nothing given ends an accumulation, because what
        # comes again would come too late.
        self.again = False
        self.settled = False
        self.finished = False  # its gradients: complete, and waiting for a step
        self.divisor = 1.0  # of the sum of its gradients, beside the number of ranks
        for i, (param, empty) in enumerate(zip(params, self.placeholders)):
            param.grad = None
            if param.is_meta:
                self.unmade[i] = param.dtype
                fresh = torch.nn.Parameter(empty.data, param.requires_grad)
                torch.utils.swap_tensors(param, fresh)
        self.name_classes([type(param) for param in params])
        self.hide()

    def __repr__(self) -> str:
        return f"<meron.torch unit {self.name!r}: {len(self.params)} params>"

    def name_classes(self, kinds: list[type[torch.nn.Parameter]]) -> None:
        """What the params are in use."""
        self.kinds = kinds
        self.shown = [(param, w, kind) for param, w, kind in zip(self.params, self.wholes, kinds)]
        classes = map(sharded_class, kinds)
        self.hidden = list(zip(self.params, self.placeholders, classes))
        self.readable = list(zip(self.params, kinds, map(unsharded_class, kinds)))

    # ---- Values --------------------------------------------------------------------------------

    def enter(self) -> None:
        """The params are whole from now on. Counted; blocks on peers."""
        if self.uses == 0:
            if self.stays:
                for param, kind, _ in self.readable:
                    param.__class__ = kind
                if not self.addresses:
                    self.count_writes()
            else:
                schedule = self.schedule
                schedule.enter(self.index)
                self.scheduled = True
                if self.ahead is not None:
                    self.end_prefetch()
                if self.shown and self.mapped:
                    for param, whole, kind in self.shown:
                        param.__class__ = kind
                        param.data = whole
                else:
                    self.show(schedule.view)
                    if not self.mapped:  # it was copied
                        self.scheduled = False
                        schedule.leave(self.index)
        self.uses += 1

    def leave(self) -> None:
        """Ends one use. Never blocks."""
        self.uses -= 1
        if self.uses == 0:
            self.hide()
            if self.scheduled:
                self.scheduled = False
                self.schedule.leave(self.index)

    def pin(self) -> None:
        """Makes the params whole until `unpin`, beside the schedule. Collective; blocks."""
        if self.pinned is not None:
            return
        self.require_values()
        gather = self.unit.gather()
        if self.uses == 0:
            self.show(lambda handle: gather_view(gather, handle))
        self.pinned = gather
        self.uses += 1

    def unpin(self) -> None:
        if self.pinned is not None:
            gather, self.pinned = self.pinned, None
            try:
                self.check_data()
            finally:
                self.leave()
                gather.release()

    def prefetch(self) -> None:
        """Begins to gather. Collective."""
        if self.uses == 0 and self.ahead is None:
            self.ahead = self.unit.gather_begin()

    def end_prefetch(self) -> None:
        if self.ahead is not None:
            self.ahead.release()
            self.ahead = None

    def show(self, view: Callable[[meron.Param], Any]) -> None:
        """Points the params at unsharded tensors; `view` gives the engine's, which are full now."""
        if not self.mapped:
            self._fill(view)
        elif not self.wholes:
            lifetime, copies = self.sharding.context._require_open(), self.sharding.copies
            self.wholes = [tensor_of(view(h), h.shape, lifetime, copies) for h in self.handles]
            self.addresses = [*map(address_of, self.wholes)]
        self._point()

    def _point(self) -> None:
        if not self.shown:
            self.shown = list(zip(self.params, self.wholes, self.kinds))
        for param, whole, kind in self.shown:
            param.__class__ = kind
            param.data = whole
        if not self.addresses:
            self.count_writes()

    def count_writes(self) -> None:
        """In-place changes of its params, which are in use, until now are accepted."""
        self.versions = [*map(version_of, self.params)]

    def _fill(self, view: Callable[[meron.Param], Any]) -> None:
        """Copies what was gathered into torch's own storage, which stays the same object."""
        with torch.no_grad(), torch.inference_mode(False), without_transforms():
            if not self.wholes:
                self.wholes = [
                    torch.empty(h.shape, dtype=DTYPES[h.dtype], device="cpu") for h in self.handles
                ]
            for handle, whole in zip(self.handles, self.wholes):
                whole.untyped_storage().resize_(handle.size * whole.dtype.itemsize)
                # By a detached alias: this is no change that autograd should count.
                whole.detach().copy_(tensor_of(view(handle), handle.shape, None))

    def hide(self) -> None:
        """The params are out of use."""
        if self.stays:
            for param, _, guarded in self.readable:
                param.__class__ = guarded
            return
        for param, empty, guarded in self.hidden:
            param.data = empty
            param.__class__ = guarded
        if not self.mapped:
            self._empty_storage()

    def _empty_storage(self) -> None:
        for whole in self.wholes:
            whole.untyped_storage().resize_(0)

    def unguard(self) -> None:
        """Before Meron points params that are out of use at other memory; `hide` ends it."""
        for param, kind, _ in self.readable:
            param.__class__ = kind

    # ---- Values between uses -------------------------------------------------------------------

    def reveal_begin(self) -> None:
        """Begins to make the params unsharded until `conceal`. Collective."""
        if self.lease is None:
            self.lease = self.unit.gather_begin()

    def reveal(self) -> None:
        """Blocks on peers until all have published."""
        lease = self.lease
        lease.wait()
        if self.uses == 0 or not self.mapped:
            self.show(lambda handle: gather_view(lease, handle))
        self.stays = True
        if self.uses == 0:
            self.hide()
        if not self.mapped:  # it was copied
            self.lease = None
            lease.release()

    def conceal(self) -> None:
        """Before values are written."""
        lease, self.lease = self.lease, None
        if self.stays:
            self.stays = False
            if self.uses == 0:
                self.unguard()
                self.hide()
        if lease is not None:
            lease.release()

    # ---- Mistakes ------------------------------------------------------------------------------

    def check_data(self) -> None:
        """StateError for a param that was written to, or whose `.data` was replaced, in use."""
        if self.lent:
            return
        known = self.addresses
        if not known:  # the memory is torch's own, and writable
            known = [*map(address_of, self.wholes)]
            versions = [*map(version_of, self.params)]
            if versions != self.versions:
                changed = [now != then for now, then in zip(versions, self.versions)].index(True)
                name = self.handles[changed].name
                raise errors.StateError(
                    f"'{name}' is sharded: it was written to while it was in use; the values are "
                    "discarded",
                    subject=name,
                    advice=WRITE,
                )
        if [*map(address_of, self.params)] == known:
            return
        for param, whole, handle in zip(self.params, self.wholes, self.handles):
            if address_of(param) != address_of(whole):
                param.data = whole
                raise errors.StateError(
                    f"'{handle.name}' is sharded: param.data was replaced while it was in use; the "
                    "values are discarded",
                    subject=handle.name,
                    advice=WRITE,
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
                advice="Set requires_grad before sharding; what is to be frozen later may be "
                "trainable then.",
            )

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

    def let_go(self) -> None:
        """Holds its params no more."""
        self.params = []
        self.name_classes([])
        if self.sources is not None:
            self.sources = self.sources._replace(places=[])

    def take_again(
        self, params: list[torch.nn.Parameter], kinds: list[type[torch.nn.Parameter]]
    ) -> None:
        """Holds them again."""
        self.params = params
        self.name_classes(kinds)
        self.sources = sources_of(params, self.handles, self.trainable)

    def end(self) -> None:
        """The engine's unit was destroyed."""
        self.forget_memory()
        self.let_go()
        self.masters = {}
        self.owner = None

    def forget_memory(self) -> None:
        """Shows no memory of the engine's any more."""
        self.unguard()
        self.hide()
        self.shown = []
        self.wholes = []
        self.addresses = []

    # ---- Parts ---------------------------------------------------------------------------------

    def owned(self, i: int) -> range:
        return self.handles[i].owned


def gather_view(gather: meron.Gather, handle: meron.Param) -> Any:
    view = new("meron_view *")
    call(lib.meron_gather_view, view, gather._handle, handle._handle)
    return view

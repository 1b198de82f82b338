# SPDX-License-Identifier: Apache-2.0
"""A unit: torch parameters that are gathered and reduced together.

Which tensor a parameter of the model points at (`param.data`):

    not in use      a placeholder of its shape: NaN, no memory, not writable
    in use          the whole tensor. Where ranks share memory that is the engine's own mapping, at
                    an address that never changes; else, and on a device (device_unit.py), a tensor
                    of torch's, filled at each gather, whose storage is emptied after use

The Parameter object itself stays the same for life, so optimizers, hooks and ties that hold it stay
right. Autograd saves Parameters by reference and views of them (a transposed weight, say) by
storage: both still mean the whole tensor when backward has gathered the unit again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

import meron
from meron import errors
from meron._native import call, lib, new
from meron.torch.tensors import DTYPES, placeholder, tensor_of, without_transforms

if TYPE_CHECKING:
    from meron.torch.sharding import Sharding


SET_WHOLE = (
    "Use meron.torch.set_full_param(param, value), load_state_dict, or "
    "meron.zero.GatheredParameters with modifier_rank."
)


class ShardedUnit:
    """Attributes that others read:

    params:     the torch parameters; `handles` are the engine's, in the same order
    trainable:  those of them that get gradients, by index; `wanted` is how many
    uses:       how often it is in use now
    """

    def __init__(
        self,
        sharding: Sharding,
        name: str,
        params: list[torch.nn.Parameter],
        names: list[str],
        handles: list[meron.Param],
        unit: meron.Unit,
    ) -> None:
        self.sharding = sharding
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
        # Each param with its whole tensor, once and as long as that stays at one address; and with
        # its placeholder. What the params' hooks need in every pass.
        self.shown: list[tuple[torch.nn.Parameter, torch.Tensor]] = []
        self.hidden = list(zip(params, self.placeholders))
        on_host = place.type == "cpu"  # elsewhere the host would have to wait to look
        self.lone = [i for i, handle in enumerate(handles) if handle.size == 1 and on_host]
        # f32 values of this rank's parts where the model's own were wider than what is gathered.
        self.masters: dict[int, torch.Tensor] = {}
        # Which params have brought a gradient in the present backward pass.
        self.arrived: set[int] = set()
        # Of params that are on the device meta still, by index: the dtype that the model gave them.
        self.unmade: dict[int, torch.dtype] = {}
        self.optimizer: Callable[[], Any] | None = None  # a weak reference: the engine's, if any
        self.pinned: Any = None
        self.ahead: Any = None
        # Those that have brought one since the last step; of all ranks once it is `finished`.
        self.seen: set[int] = set()
        self.sources: Any = None  # for the reducer
        self.given = False  # in the present backward pass, to the engine
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
        # Counts of in-place changes, by which a write to a placeholder is seen.
        self.versions: list[int] = []
        for i, (param, empty) in enumerate(zip(params, self.placeholders)):
            param.grad = None
            if param.is_meta:
                self.unmade[i] = param.dtype
                # By .data, for a version of its own: placeholders may be shared.
                fresh = torch.nn.Parameter(empty.data, param.requires_grad)
                torch.utils.swap_tensors(param, fresh)
            else:
                param.data = empty
        self.accept_writes()

    def __repr__(self) -> str:
        return f"<meron.torch unit {self.name!r}: {len(self.params)} params>"

    # ---- Values --------------------------------------------------------------------------------

    def enter(self) -> None:
        """The params are whole from now on. Counted; blocks on peers."""
        if self.uses == 0:
            sharding = self.sharding
            sharding.enter_unit(self.index)
            self.scheduled = True
            if self.ahead is not None:
                self.end_prefetch()
            if self.shown:
                for param, whole in self.shown:
                    param.data = whole
            else:
                self.show(sharding.schedule_view)
                if not sharding.mapped:
                    self._leave_schedule()
        self.uses += 1

    def leave(self) -> None:
        """Ends one use. Never blocks."""
        self.uses -= 1
        if self.uses == 0:
            self.hide()
            if self.scheduled:
                self._leave_schedule()

    def _leave_schedule(self) -> None:
        self.scheduled = False
        self.sharding.leave_unit(self.index)

    def pin(self) -> None:
        """Makes the params whole until `unpin`, beside the schedule. Collective; blocks."""
        if self.pinned is not None:
            return
        gather = self.unit.gather()
        if self.uses == 0:
            self.show(lambda handle: gather_view(gather, handle))
        self.pinned = gather
        self.uses += 1

    def unpin(self) -> None:
        if self.pinned is not None:
            gather, self.pinned = self.pinned, None
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
        """Points the params at whole tensors; `view` gives the engine's, which are full now."""
        if not self.sharding.mapped:
            self._fill(view)
        elif not self.wholes:
            lifetime = self.sharding.context._require_open()
            self.wholes = [tensor_of(view(h), h.shape, lifetime) for h in self.handles]
            self.shown = list(zip(self.params, self.wholes))
        for param, whole in zip(self.params, self.wholes):
            param.data = whole

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
        for param, empty in self.hidden:
            param.data = empty
        if not self.shown:
            for whole in self.wholes:
                whole.untyped_storage().resize_(0)

    def accept_writes(self) -> None:
        """In-place changes of its params until now were meant, and have been dealt with."""
        self.versions = [param._version for param in self.params]

    def check(self) -> None:
        """StateError for what was done to a param out of use and could have no effect."""
        written = None
        if self.uses == 0:
            versions = [param._version for param in self.params]
            if versions != self.versions:
                written = [now != then for now, then in zip(versions, self.versions)].index(True)
            for i in self.lone:  # by way of .data, which changes no version
                if not self.placeholders[i].isnan():
                    self.placeholders[i].fill_(math.nan)
                    written = i
        if written is not None:
            name = self.handles[written].name
            self.accept_writes()
            raise errors.StateError(
                f"{name} was written to while it was sharded: the values were not kept",
                subject=name,
                advice=SET_WHOLE,
            )
        for i in self.frozen:
            if self.params[i].requires_grad:
                name = self.handles[i].name
                raise errors.StateError(
                    f"{name} was frozen when it was sharded, and requires gradients now",
                    subject=name,
                    advice="Set requires_grad before sharding; what is to be frozen later may be "
                    "trainable then.",
                )

    # ---- Parts ---------------------------------------------------------------------------------

    def owned(self, i: int) -> range:
        return self.handles[i].owned


def gather_view(gather: meron.Gather, handle: meron.Param) -> Any:
    view = new("meron_view *")
    call(lib.meron_gather_view, view, gather._handle, handle._handle)
    return view

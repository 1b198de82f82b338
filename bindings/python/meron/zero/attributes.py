# SPDX-License-Identifier: Apache-2.0
"""Attributes of a sharded param under DeepSpeed's names: `ds_id`, `ds_shape`, `ds_status`, ..."""

from __future__ import annotations

import enum
import functools
import itertools
import sys
from collections.abc import Iterable
from typing import Any

import torch

from meron import errors
from meron.torch.guard import MAKE_PARAMETER, UnshardedAlias, alias, copied
from meron.torch.sharding import placed, sharding_with, unit_of
from meron.torch.unit import ShardedUnit
from meron.torch.values.full import exact_param
from meron.torch.values.state import local_param
from meron.zero.coalesced import AllGatherCoalescedHandle
from meron.zero.comm import refuse_async
from meron.zero.gathered import close_params, is_open, open_params
from meron.zero.safe import local_master

ids = itertools.count()


class ZeroParamStatus(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class LocalPart(UnshardedAlias):
    """A copy of a rank's shard of a param, to which nothing can be written."""

    advice = "Use meron.zero.safe_set_local_fp32_param(param, value) on all ranks."


class ZeroParameter(torch.nn.Parameter):
    """A sharded param; the Parameter of the model becomes one in place.

    Unlike DeepSpeed's it keeps its shape while it is sharded: `param.shape == param.ds_shape`.
    """

    ds_id: int

    def detach(self) -> torch.Tensor:
        """As torch's. `torch.nn.Parameter(param)` calls it and requires this class: it gets a copy,
        as the memory of `param` is not the caller's. The copy is not sharded."""
        value = super().detach()
        if sys._getframe(1).f_code is not MAKE_PARAMETER:
            return value
        return value.clone().as_subclass(type(self))

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Parameter:
        """A whole copy that is not sharded. Collective at stage 3."""
        return whole_copy(self)

    @property
    def ds_shape(self) -> torch.Size:
        """The shape of the unsharded tensor."""
        return self.shape

    @property
    def ds_numel(self) -> int:
        """Elements of the unsharded tensor."""
        return self.numel()

    @property
    def ds_status(self) -> ZeroParamStatus:
        unit, _ = place_of(self, "ds_status")
        if unit.uses or unit.stays:
            return ZeroParamStatus.AVAILABLE
        if unit.memory.ahead is not None or unit.unit.info().state == "gathering":
            return ZeroParamStatus.INFLIGHT
        return ZeroParamStatus.NOT_AVAILABLE

    @property
    def ds_persist(self) -> bool:
        """True if it stays unsharded between uses, so that its values can be read at any time."""
        unit, _ = place_of(self, "ds_persist")
        return unit.stays or unit in sharding_with(unit).persistent

    @property
    def ds_tensor(self) -> torch.Tensor:
        """A copy of this rank's shard, flat, without padding. To be read: writing to it raises
        StateError, as safe_set_local_fp32_param(param, value) is the way to write.

        Local while the param is gathered, or if an optimizer holds it; else collective.
        """
        unit, i = place_of(self, "ds_tensor")
        shard_range = unit.shard_range(i)
        if unit.uses:
            value = self.detach().reshape(-1)[shard_range.start : shard_range.stop].clone()
        else:
            part = local_master(self)
            value = local_param(self) if part is None else part.detach().to(self.dtype, copy=True)
        return alias(value, self, LocalPart)

    @property
    def ds_active_sub_modules(self) -> set[int]:
        """The modules that use the param now: empty while it is not gathered. A copy."""
        unit, _ = place_of(self, "ds_active_sub_modules")
        return {unit.index} if unit.uses else set()

    def partition_numel(self) -> int:
        """Elements of this rank's shard. Local."""
        unit, i = placed(self)
        return len(unit.shard_range(i))

    def ds_summary(self, slice_shape: Any = None, use_debug_name: bool = False) -> dict[str, Any]:
        """All of it as a dict, for messages. Local."""
        unit, i = placed(self)
        return {
            "id": f"{unit.name}.{unit.names[i]}" if use_debug_name else self.ds_id,
            "status": self.ds_status.name,
            "numel": self.numel(),
            "ds_numel": self.ds_numel,
            "shape": tuple(self.shape),
            "ds_shape": tuple(self.ds_shape),
            "requires_grad": self.requires_grad,
            "persist": self.ds_persist,
            "ds_tensor.shape": (len(unit.shard_range(i)),),
        }

    def all_gather(
        self,
        param_list: Iterable[torch.nn.Parameter] | None = None,
        async_op: bool = False,
        hierarchy: int = 0,
    ) -> None:
        """Gathers this param, or a list, writable until `partition`. Collective.

        Args:
            async_op: not supported yet; the params are gathered on return.
            hierarchy: without effect, as for `partition`: it indents DeepSpeed's messages.
        """
        refuse_async(async_op, "all_gather")
        open_params([self] if param_list is None else list(param_list))

    def all_gather_coalesced(
        self,
        params: Iterable[torch.nn.Parameter],
        safe_mode: bool = False,
        quantize: bool = False,
    ) -> AllGatherCoalescedHandle:
        """Begins to gather params, whose `wait()` makes them unsharded until `partition`.
        Collective: all ranks pass the same params, in any order.

        Args:
            safe_mode: without effect: ranks that gather other units get a MismatchError in any
                case.
            quantize: refused: what is gathered is quantized by the plan.

        Raises StateError for a param that is gathered already.
        """
        if quantize:
            raise errors.UnsupportedError(
                "all_gather_coalesced(quantize=True): a gather uses the codec of the plan",
                subject="quantize",
                advice="Set zero_quantized_weights in the config.",
            )
        return AllGatherCoalescedHandle(params)

    def partition(
        self,
        param_list: Iterable[torch.nn.Parameter] | None = None,
        hierarchy: int = 0,
        has_been_updated: bool = False,
    ) -> None:
        """Ends `all_gather`. Collective.

        Args:
            hierarchy: without effect.
            has_been_updated: every rank writes its shard from its values; else changes are dropped,
                with a warning.
        """
        close_params([self] if param_list is None else list(param_list), has_been_updated)


def place_of(param: ZeroParameter, attribute: str) -> tuple[ShardedUnit, int]:
    """The unit and index of a param; AttributeError if it is a copy, which is not sharded."""
    place = unit_of(param)
    if place is None:
        raise AttributeError(f"this param is not sharded, and has no {attribute}")
    return place


def whole_copy(param: torch.nn.Parameter) -> torch.nn.Parameter:
    """A copy of a param that is whole and not sharded. Local if this rank has all values, as below
    stage 3 or within GatheredParameters; collective otherwise."""
    place = unit_of(param)
    if place is None:
        return torch.nn.Parameter(param.detach().clone(), param.requires_grad)
    unit = place[0]
    if is_open(place) or (not unit.sharding.coded and (unit.stays or unit.uses)):
        return copied(param)  # type: ignore[return-value]
    return torch.nn.Parameter(exact_param(param).to(param.device), param.requires_grad)


@functools.cache
def zero_class(kind: type[torch.nn.Parameter]) -> type[torch.nn.Parameter]:
    """ZeroParameter, and what a class of params has beside."""
    if kind is torch.nn.Parameter:
        return ZeroParameter
    return type(f"Zero{kind.__name__}", (ZeroParameter, kind), {})


def name_params(unit: ShardedUnit) -> None:
    """Gives a new unit and its params what DeepSpeed's names mean."""
    unit.local_state = True
    before = unit.data.kinds
    kinds = [kind if issubclass(kind, ZeroParameter) else zero_class(kind) for kind in before]
    unit.data.unguard()
    unit.data.hold(unit.params, kinds)
    for param, kind in zip(unit.params, kinds):
        param.__class__ = kind
        param.ds_id = next(ids)  # type: ignore[attr-defined]
    unit.hide()

# SPDX-License-Identifier: Apache-2.0
"""What runs around a sharded module's forward and backward.

    forward    enter the unit, run, leave it
    backward   enter at the first gradient of an output; leave when all the unit's own params have
               got theirs, else when the backward ends

A trainable param gets its gradient when every use of it has gone backward. Frozen ones say nothing:
where a unit has some, the gradients of all inputs must be complete, too.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from meron import errors
from meron.torch.sharding import Sharding, current_graph_task, unit_of
from meron.torch.tensors import map_tensors, tensors_in
from meron.torch.unit import ShardedUnit

grad_enabled = torch.is_grad_enabled


def refuse_copy(_self: Any, _protocol: Any) -> Any:
    """In place of __reduce_ex__, by which objects are copied and pickled."""
    raise errors.StateError(
        "a sharded module cannot be copied or pickled: this rank has parts of its params",
        advice="Save or copy model.state_dict(), which holds whole tensors (on all ranks), or copy "
        "the model before sharding it.",
    )


class Use:
    """One forward of a module with gradients: what its backward needs to know."""

    __slots__ = ("inputs", "inputs_left", "scope", "units")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.units: list[ShardedUnit] = []  # entered by its backward
        self.inputs = 0  # that require gradients
        self.inputs_left = 0

    def begin(self, gradient: torch.Tensor) -> None:
        """The gradient of an output has come."""
        if self.units:
            return
        self.inputs_left = self.inputs
        sharding = self.scope.sharding
        sharding.begin_backward()
        sharding.uses.append(self)
        for unit in self.scope.units:
            unit.enter()
            self.units.append(unit)

    def input_done(self, gradient: torch.Tensor) -> None:
        """The gradient of an input is complete."""
        self.inputs_left -= 1
        if self.inputs_left == 0 and self.units:
            self.end_if_done()

    def end_if_done(self) -> None:
        for unit in self.units:
            if not unit.backward_done():
                return
        self.scope.sharding.uses.remove(self)
        self.end()

    def end(self) -> None:
        units, self.units = self.units, []
        for unit in units:
            unit.leave()


class Scope:
    """A sharded module: its unit, and units of others whose params it uses too."""

    def __init__(
        self,
        sharding: Sharding,
        module: torch.nn.Module,
        units: list[ShardedUnit],
        reshard_after_forward: bool,
        input_dtype: torch.dtype | None,
    ) -> None:
        self.sharding = sharding
        self.module = module
        self.units = units
        self.reshard_after_forward = reshard_after_forward
        self.input_dtype = input_dtype
        self.stack: list[tuple[Use | None, list[ShardedUnit]]] = []  # of forwards under way
        self.handles = [
            module.register_forward_pre_hook(self.before, prepend=True, with_kwargs=True),
            module.register_forward_hook(self.after, always_call=True),
        ]

    def before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        sharding = self.sharding
        if current_graph_task() != -1:
            sharding.begin_backward()  # recomputation
        elif not sharding.active:
            sharding.begin_pass(module)
        use = Use(self) if grad_enabled() else None
        entered: list[ShardedUnit] = []
        self.stack.append((use, entered))
        sharding.active.append(self)
        for unit in self.units:
            unit.enter()
            entered.append(unit)
            sharding.entered[unit] = None
        if use is not None and any(unit.partly_frozen for unit in self.units):
            for tensor in tensors_in((args, kwargs) if kwargs else args):
                if tensor.requires_grad:
                    use.inputs += 1
                    handle = tensor.register_hook(use.input_done)
                    if tensor.is_leaf:
                        sharding.temporary.append(handle)
        if self.input_dtype is not None:
            cast = functools.partial(cast_floating, dtype=self.input_dtype)
            return map_tensors(args, cast), map_tensors(kwargs, cast)
        return None

    def after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        """Also called when the forward raised; `output` is None then."""
        if not self.stack:
            return  # the pass could not begin
        use, entered = self.stack.pop()
        sharding = self.sharding
        if sharding.active and sharding.active[-1] is self:
            sharding.active.pop()
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                if use is not None:
                    handle = tensor.register_hook(use.begin)
                    if tensor.is_leaf:
                        sharding.temporary.append(handle)
                place = unit_of(tensor)
                if place is not None and sharding.active:  # a param was returned
                    sharding.active[-1].use_of_other(place[0])
        if use is not None and not self.reshard_after_forward and not sharding.in_backward:
            sharding.kept.extend(entered)  # until the backward has ended
        else:
            for unit in entered:
                unit.leave()

    def use_of_other(self, unit: ShardedUnit) -> None:
        """A param of another module's unit is used in this forward: from now on always."""
        _, units = self.stack[-1]
        unit.enter()
        self.sharding.entered[unit] = None
        units.append(unit)
        if unit not in self.units:
            self.units.append(unit)

    __reduce_ex__ = refuse_copy

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def cast_floating(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


class Parameters(dict[str, Any]):
    """A module's own params by name, in place of the plain dict of torch.nn.Module.

    Sees params that are used outside of a forward of their owner, as `head.weight` in a parent's
    forward or of a module that is never called itself: their unit then belongs to the innermost
    sharded module that runs.
    """

    __slots__ = ("sharding",)

    def __init__(self, params: dict[str, Any], sharding: Sharding) -> None:
        super().__init__(params)
        self.sharding = sharding

    def __getitem__(self, name: str) -> Any:
        param = dict.__getitem__(self, name)
        place = getattr(param, "_meron", None)
        if place is not None and place[0].uses == 0:
            self.sharding.use_outside(place[0])
        return param

    __reduce_ex__ = refuse_copy

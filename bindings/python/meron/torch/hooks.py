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
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._dynamo.eval_frame import set_eval_frame

from meron import errors
from meron.torch.sharding import Sharding, current_graph_task, unit_of
from meron.torch.tensors import map_tensors, tensors_in
from meron.torch.unit import ShardedUnit

grad_enabled = torch.is_grad_enabled
# It is meant to end here (Scope.run).
warnings.filterwarnings("ignore", r"Dynamo does not know how to trace the builtin .*set_eval_frame")


def refuse_copy(_self: Any, _protocol: Any) -> Any:
    """In place of __reduce_ex__, by which objects are copied and pickled."""
    raise errors.StateError(
        "a sharded module cannot be copied or pickled: this rank has parts of its params",
        advice="Save or copy model.state_dict(), which holds whole tensors (on all ranks), or copy "
        "the model before sharding it.",
    )


class Use:
    """One forward of a sharded module; with gradients, its backward too."""

    __slots__ = ("entered", "inputs", "inputs_left", "scope", "units")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.entered: list[ShardedUnit] = []  # by its forward
        self.units: Sequence[ShardedUnit] = ()  # entered by its backward
        self.inputs = 0  # that require gradients
        self.inputs_left = 0

    def use_of_other(self, unit: ShardedUnit) -> None:
        """A param of another module's unit is used in this forward: from now on always."""
        scope = self.scope
        unit.enter()
        scope.sharding.entered[unit] = None
        self.entered.append(unit)
        if unit not in scope.units:
            scope.units.append(unit)

    def begin(self, _gradients: Any) -> None:
        """The gradient of an output has come."""
        if self.units:
            return
        self.inputs_left = self.inputs
        scope = self.scope
        sharding = scope.sharding
        if not sharding.in_backward:
            sharding.begin_backward()
        sharding.uses.append(self)
        self.units = entered = []
        for unit in scope.units:
            unit.enter()
            entered.append(unit)

    def input_done(self, gradient: torch.Tensor) -> None:
        """The gradient of an input is complete."""
        self.inputs_left -= 1
        if self.inputs_left == 0 and self.units:
            self.end_if_done()

    def end_if_done(self) -> None:
        for unit in self.units:
            if not (unit.given or len(unit.arrived) == unit.wanted):
                return  # a gradient of its params is still to come, as far as one can know
        self.scope.sharding.uses.remove(self)
        self.end()

    def end(self) -> None:
        units, self.units = self.units, ()
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
        # In place of hooks, which torch.nn.Module calls in a slower way; and it lies around the
        # hooks of others, which so see whole params.
        self.call = module._call_impl
        module.__dict__["_call_impl"] = self.run

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward with its hooks, between the begin and the end of a use.

        Not for torch.compile, which could not know when params are whole: eager, with all within.
        """
        compiler = set_eval_frame(None)
        try:
            return self._run(args, kwargs)
        finally:
            set_eval_frame(compiler)

    run._torchdynamo_disable = True  # type: ignore[attr-defined]

    def _run(self, args: Any, kwargs: Any) -> Any:
        sharding = self.sharding
        active = sharding.active
        if current_graph_task() != -1:
            sharding.begin_backward()  # recomputation
        elif not active:
            sharding.begin_pass(self.module)
        use = Use(self)
        active.append(use)
        entered = use.entered
        graded = grad_enabled()
        kept = False
        # Params that are whole are plain attributes meanwhile, which Python finds at once, where
        # torch.nn.Module asks its dicts one by one.
        attributes, own = self.module.__dict__, self.module._parameters
        try:
            for unit in self.units:
                unit.enter()
                entered.append(unit)
                sharding.entered[unit] = None
                if unit.partly_frozen and graded:
                    self.watch_inputs(use, (args, kwargs))
            if self.input_dtype is not None:
                cast = functools.partial(cast_floating, dtype=self.input_dtype)
                args, kwargs = map_tensors(args, cast), map_tensors(kwargs, cast)
            for name, param in own.items():
                place = getattr(param, "_meron", None)
                if place is not None and place[0].uses:
                    attributes[name] = param
            output = self.call(*args, **kwargs)
            if type(output) is torch.Tensor and graded and output.grad_fn is not None:
                hook_gradient(output, use.begin)
            else:
                self.watch_outputs(use, output, graded)
            kept = graded and not self.reshard_after_forward and not sharding.in_backward
            return output
        finally:
            for name in own:
                attributes.pop(name, None)
            while active and active.pop() is not use:
                pass
            if kept:
                sharding.kept.extend(entered)  # until the backward has ended
            else:
                for unit in entered:
                    unit.leave()

    def watch_inputs(self, use: Use, inputs: Any) -> None:
        if use.inputs:
            return  # for another unit of the module
        for tensor in tensors_in(inputs):
            if tensor.requires_grad:
                use.inputs += 1
                handle = tensor.register_hook(use.input_done)
                if tensor.is_leaf:
                    self.sharding.temporary.append(handle)

    def watch_outputs(self, use: Use, output: Any, graded: bool) -> None:
        for tensor in tensors_in(output):
            if not tensor.requires_grad:
                continue
            if graded and tensor.is_leaf:
                self.sharding.temporary.append(tensor.register_hook(use.begin))
            elif graded:
                hook_gradient(tensor, use.begin)
            place = unit_of(tensor)
            if place is not None and len(self.sharding.active) > 1:  # a param was returned
                self.sharding.active[-2].use_of_other(place[0])

    __reduce_ex__ = refuse_copy

    def remove(self) -> None:
        del self.module.__dict__["_call_impl"]


def hook_gradient(tensor: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> None:
    """register_hook of a tensor that is no leaf, at half its price: without a handle."""
    node: Any = tensor.grad_fn
    if tensor._backward_hooks is None and type(tensor) is torch.Tensor:
        tensor._backward_hooks = OrderedDict(((-1, hook),))  # handles count from 0
        node._register_hook_dict(tensor)
    else:
        tensor.register_hook(hook)


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

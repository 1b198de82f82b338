# SPDX-License-Identifier: Apache-2.0
"""The code that runs around a sharded module's forward and backward.

    forward    enter the unit, run, leave it
    backward   enter at the first gradient of an output; leave when all the unit's own params have
               their gradients, or when the backward of an earlier use begins

A trainable param gets its gradient when the backward of every use of it has ended. A frozen or
unused one gets none. So a second sign counts, too: autograd runs the nodes of a graph from the
newest to the oldest. When the gradient of an output arrives, every use whose forward began after
that output was made has ended its backward.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from meron.torch import registry
from meron.torch.parameters import refuse_copy
from meron.torch.passes import Use
from meron.torch.sharding import Sharding, unit_of
from meron.torch.tensors import map_tensors, tensors_in
from meron.torch.torch_internals import (
    CALL,
    COMPILED,
    call_of,
    current_graph_task,
    hook_gradient,
    node_of,
    not_compiled,
    own_params,
    set_eval_frame,
)
from meron.torch.tracing import refuse_capture, refuse_script, refuse_tracing, warn_of_graphs
from meron.torch.unit import ShardedUnit

grad_enabled = torch.is_grad_enabled
# It is meant to end here (Scope.run).
warnings.filterwarnings("ignore", r"Dynamo does not know how to trace the builtin .*set_eval_frame")


class Scope:
    """A sharded module: its unit, and units of others whose params it uses too.

    suspended: its params are unsharded for now by others than this (unit.pin), so that forwards
        without gradients need nothing of the engine's
    """

    suspended = False

    def __init__(
        self,
        sharding: Sharding,
        module: torch.nn.Module,
        units: list[ShardedUnit],
        reshard_after_forward: bool,
        input_dtype: torch.dtype | None,
    ) -> None:
        self.sharding = sharding
        self.passes = sharding.passes
        self.autograd_device = sharding.residency.autograd_device
        self.on_cuda = sharding.torch_device.type == "cuda"
        self.looked_for_graphs = False
        self.module = module
        self.units = units
        self.reshard_after_forward = reshard_after_forward
        self.input_dtype = input_dtype
        # The module's own sharded params: name, unit, and number in it. It does not hold them,
        # because a module may drop one.
        self.named: list[tuple[str, ShardedUnit, int]] = []
        # Replaces hooks, which torch.nn.Module calls in a slower way. It runs outside of the user's
        # hooks, so these see full params.
        self.call: Callable[..., Any] = call_of(module)
        # If module.compile() ran before the module was sharded, its result calls self.call, and
        # run() calls that result, with full params.
        attributes = module.__dict__
        self.compiled: Callable[..., Any] | None = attributes.pop(COMPILED, None)
        self.inlined: Callable[..., Any] | None = None  # as torch.compile takes it
        self.added: list[str] = []  # attributes of the module, by fsdp_names
        attributes[CALL] = self.run
        attributes["__prepare_scriptable__"] = refuse_script
        sharding.scopes.add(self)

    @not_compiled
    def run(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward with its hooks, between the begin and the end of a use.

        Not for torch.compile, which could not know when params are whole. It compiles what is
        within: a graph break around each sharded module.
        """
        compiler = set_eval_frame(None)  # a graph break: fullgraph=True is for modules within
        try:
            if self.on_cuda:
                refuse_capture(self.module)
            passes = self.passes
            active = passes.active
            if self.suspended and not (grad_enabled() or active or current_graph_task() != -1):
                return self.run_unsharded(args, kwargs)
            if current_graph_task() != -1:
                passes.begin_backward()  # recomputation
                if not active:
                    passes.recompute(self.units)
            elif not active:
                refuse_tracing(self.module)
                passes.start_pass(self.module)
            passes.clock = clock = passes.clock + 1
            use = Use(self, clock)
            active.append(use)
            entered = use.entered
            graded = grad_enabled()
            kept = False
            # Unsharded params are plain attributes meanwhile, which Python finds at once;
            # torch.nn.Module looks into its dicts one by one.
            attributes, own = self.module.__dict__, own_params(self.module)
            try:
                for unit in self.units:
                    unit.enter()
                    entered.append(unit)
                    if not graded or unit.graded < passes.since:
                        passes.record(unit, graded)
                if self.input_dtype is not None:
                    cast = functools.partial(cast_floating, dtype=self.input_dtype)
                    args, kwargs = map_tensors(args, cast), map_tensors(kwargs, cast)
                for name, unit, i in self.named or self.name_params(own):
                    if unit.uses and (param := own.get(name)) is unit.data.params[i]:
                        attributes[name] = param
                if compiler is None and self.compiled is None:
                    output = self.call(*args, **kwargs)
                else:
                    output = self.call_compiled(compiler, args, kwargs)
                use.last = passes.clock + 1
                node = node_of(output) if graded and type(output) is torch.Tensor else None
                if node is not None:
                    hook_gradient(output, node, use)
                else:
                    self.watch_outputs(use, output, graded)
                for unit in entered:
                    unit.check_data()
                kept = graded and not self.reshard_after_forward and not passes.in_backward
                return output
            finally:
                for name in own:
                    attributes.pop(name, None)
                while active and active.pop() is not use:
                    pass
                if kept:
                    passes.kept.extend(entered)  # until the backward has ended
                else:
                    for unit in entered:
                        unit.leave()
                if not graded:
                    passes.end_ungraded(use)
                del use.entered  # the use lives as long as its graph
        finally:
            set_eval_frame(compiler)

    def forget_replaced(self) -> None:
        """Uses units no more that have no param in the module and its parts, as others took their
        places."""
        if any(unit.replaced for unit in self.units):
            places = map(unit_of, self.module.parameters())
            present = {place[0] for place in places if place is not None}
            self.units = [unit for unit in self.units if unit in present or not unit.replaced]

    def name_params(self, own: dict[str, Any]) -> list[tuple[str, ShardedUnit, int]]:
        """Sets `named` to what is true now."""
        places = [(name, unit_of(param)) for name, param in own.items()]
        self.named = [(name, *place) for name, place in places if place is not None]
        return self.named

    def run_unsharded(self, args: Any, kwargs: Any) -> Any:
        """The module's forward without gradients, while its params are unsharded in any case."""
        if self.input_dtype is not None:
            cast = functools.partial(cast_floating, dtype=self.input_dtype)
            args, kwargs = map_tensors(args, cast), map_tensors(kwargs, cast)
        call = self.call if self.compiled is None else self.compiled
        return call(*args, **kwargs)

    def call_compiled(self, compiler: Any, args: Any, kwargs: Any) -> Any:
        """The module's forward with its hooks, as torch.compile has it, by the compiler that is
        active or by the module's own."""
        if self.on_cuda and not self.looked_for_graphs:
            self.looked_for_graphs = True
            warn_of_graphs(self.module, compiler if self.compiled is None else self.compiled)
        if self.compiled is not None:
            return self.compiled(*args, **kwargs)
        if self.inlined is None:
            self.inlined = inlined(self.call, type(self.module))
        set_eval_frame(compiler)
        try:
            return self.inlined(*args, **kwargs)
        finally:
            set_eval_frame(None)

    def watch_outputs(self, use: Use, output: Any, graded: bool) -> None:
        for tensor in tensors_in(output):
            if not tensor.requires_grad:
                continue
            if graded and tensor.is_leaf:
                self.passes.temporary.append(tensor.register_hook(use.begin_at_leaf))
            elif graded:
                hook_gradient(tensor, node_of(tensor), use)
            place = unit_of(tensor)
            if place is not None and len(self.passes.active) > 1:  # a param was returned
                self.passes.active[-2].use_of_other(place[0])

    __reduce_ex__ = refuse_copy

    def remove(self) -> None:
        del self.module.__dict__[CALL], self.module.__dict__["__prepare_scriptable__"]
        for name in self.added:
            self.module.__dict__.pop(name, None)
        if self.compiled is not None:
            self.module.__dict__[COMPILED] = self.compiled


def inlined(call: Callable[..., Any], kind: type) -> Callable[..., Any]:
    """A function that calls `call`. torch.compile needs one that torch does not define.

    Modules of one class have one code object: compiled code is kept, and counted, by that.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    code = forward.__code__.replace(co_name=kind.__name__)
    forward.__code__ = registry.compiled_codes.setdefault(kind, code)
    return forward


def cast_floating(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor

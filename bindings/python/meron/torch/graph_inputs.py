# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.grad and backward(inputs=...), which take params only as places in the graph.

They read no values of these, so they work on params that are out of use. The backward itself runs
outside of `plain()`, as it may call the user's hooks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from meron.torch.torch_internals import plain

GRAD, BACKWARD = torch.autograd.grad, torch.autograd.backward


def differentiate(function: Any, args: Any, kwargs: Any, guarded: Any) -> Any:
    """Calls one of them, as PyTorch's dispatch passes its arguments, with places in the graph for
    tensors of the class `guarded`."""
    if function is GRAD:
        outputs, inputs = args
    else:
        (outputs,), inputs = args, kwargs.pop("inputs", None)
    edges = edges_of(inputs, guarded)
    if edges is None or any(isinstance(each, guarded) for each in outputs):
        with plain():  # for torch's error; or the outputs are params themselves
            return function(outputs, **kwargs, inputs=inputs)
    if function is BACKWARD:
        return function(outputs, **kwargs, inputs=edges)
    zeros = kwargs.pop("materialize_grads", False)  # which torch refuses for such places
    kwargs["allow_unused"] = zeros or kwargs.get("allow_unused", False)
    found = function(outputs, edges, **kwargs)
    if not zeros:
        return found
    create = kwargs.get("create_graph", False)
    return tuple(
        torch.zeros_like(of, requires_grad=create) if each is None else each
        for each, of in zip(found, inputs)
    )


def edges_of(inputs: Any, guarded: Any) -> tuple[Any, ...] | None:
    """The inputs, with places for guarded tensors; None if one of them has no gradient."""
    if inputs is None:
        return None
    with plain():
        if any(isinstance(each, guarded) and not each.requires_grad for each in inputs):
            return None
        return tuple(
            get_gradient_edge(each) if isinstance(each, guarded) else each for each in inputs
        )

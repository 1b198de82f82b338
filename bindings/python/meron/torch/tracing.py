# SPDX-License-Identifier: Apache-2.0
"""Refuses code that records a module's operations rather than running them. Params are gathered
around each use, so a recording would keep those of one moment, or none.

torch.compile is allowed: it compiles the code within a sharded module (hooks.py). But CUDA graphs
keep addresses, and each gather may place params elsewhere.
"""

from __future__ import annotations

import warnings
from typing import Any, NoReturn

import torch

from meron import errors
from meron.torch.torch_internals import dispatch_mode, dispatch_modes, tracing_state

# Of torch.export and make_fx, and of tensors without values.
RECORDING = {"ProxyTorchDispatchMode", "FakeTensorMode", "FunctionalTensorMode"}


def refuse_tracing(module: torch.nn.Module) -> None:
    """StateError in torch.jit.trace, torch.export, make_fx, and under a FakeTensorMode."""
    if tracing_state() is not None:
        refuse(type(module).__name__, "torch.jit.trace")
    for place in range(dispatch_modes()):
        name = type(dispatch_mode(place)).__name__
        if name in RECORDING:
            refuse(type(module).__name__, f"torch.export or another tracer ({name})")


def refuse_capture(module: torch.nn.Module) -> None:
    """StateError while the current CUDA stream is captured into a graph."""
    if not torch.cuda.is_current_stream_capturing():
        return
    raise errors.StateError(
        f"{type(module).__name__} is sharded, and cannot be captured into a CUDA graph: a replay "
        "would read its params where they were during the capture",
        operation="forward",
        advice="Run it without a graph. A module outside of the sharded ones can be captured.",
    )


def warn_of_graphs(module: torch.nn.Module, compiler: Any) -> None:
    """Warns if torch.compile replays CUDA graphs of a sharded module."""
    if replays_graphs(compiler):
        warnings.warn(
            f"torch.compile with CUDA graphs (mode='reduce-overhead' or 'max-autotune') records "
            f"the graphs of {type(module).__name__} again and again, because gathers move its "
            "params. Use mode='default' or 'max-autotune-no-cudagraphs'",
            stacklevel=3,
        )


def replays_graphs(compiler: Any) -> bool:
    """True if the result of torch.compile, or the active compiler, uses CUDA graphs."""
    while compiler is not None:
        config = getattr(compiler, "get_compiler_config", None)
        if config is not None:
            return bool((config() or {}).get("triton.cudagraphs"))
        compiler = getattr(compiler, "_torchdynamo_orig_backend", None)
    return False


def refuse_script(*_args: Any) -> NoReturn:
    """A sharded module's __prepare_scriptable__, which torch.jit.script calls."""
    refuse("a module", "torch.jit.script")


def refuse(module: str, by: str) -> NoReturn:
    raise errors.StateError(
        f"{module} is sharded, and cannot be recorded by {by}: its params are gathered around each "
        "use",
        advice="Record the model before it is sharded, or another one that has loaded "
        "model.state_dict(). torch.compile works on sharded modules.",
    )

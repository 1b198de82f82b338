# SPDX-License-Identifier: Apache-2.0
"""What records a module's operations rather than running them has no place for params that are
gathered around each use: it would keep those of one moment, or none. It is refused.

torch.compile is no such thing: it compiles what is within a sharded module (hooks.py).
"""

from __future__ import annotations

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

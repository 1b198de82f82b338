# SPDX-License-Identifier: Apache-2.0
"""Meron: parameters, gradients and optimizer states partitioned over ranks, whole on demand.

    import meron, numpy as np

    with meron.open() as ctx:                       # `meron run -n 2 python fit.py`: two ranks
        weight = ctx.param("weight", (1024, 1024))
        unit = ctx.unit("layer", [weight])
        with ctx.update([unit]) as update:          # every rank writes its part
            update.write(weight, np.ones(weight.shape))
        with unit.gather() as full:                 # the whole tensor, without a copy
            print(full[weight].sum())               # or full["weight"]

Calls that can wait give the GIL up and end on Ctrl-C. Objects may be used from any thread. Errors
are subclasses of `meron.Error`.
"""

from __future__ import annotations

from meron import io
from meron._library import LoadError
from meron._native import library_path, status_name
from meron._opening import open
from meron._values import SaveProgress, ScheduleInfo
from meron.checkpoint import (
    Checkpoint,
    CheckpointTensor,
    list_checkpoints,
    open_checkpoint,
    remove_checkpoint,
    write_checkpoint,
)
from meron.context import Context
from meron.device import DeviceAllocator, DeviceArray
from meron.dlpack import DLPackTensor, ReducedTensor
from meron.dtypes import bfloat16, from_float32, to_float32
from meron.errors import (
    AbortedError,
    ArgumentError,
    AuthError,
    CallError,
    CancelledError,
    ClosedError,
    ContextError,
    CorruptError,
    DeadlineError,
    DeviceError,
    DuplicateError,
    Error,
    ForkedError,
    GroupError,
    HandleError,
    InputOutputError,
    InternalError,
    MismatchError,
    NonFiniteError,
    NoSpaceError,
    NotFoundError,
    OutOfMemoryError,
    ParseError,
    PeerClosedError,
    PeerDeadError,
    ResourceError,
    StaleError,
    StateError,
    UnsupportedError,
    VersionError,
)
from meron.flat import Flat
from meron.future import Future
from meron.gather import Gather
from meron.group import Group
from meron.optimizer import Optimizer, OptimizerGroup
from meron.param import Param
from meron.plan import Plan
from meron.schedule import Schedule
from meron.stats import Prediction, Stats
from meron.system import system_info, version
from meron.transport import CustomTransport
from meron.unit import Unit, UnitInfo
from meron.update import Update
from meron.waiting import wait_any

__version__ = version


__all__ = [
    "AbortedError",
    "ArgumentError",
    "AuthError",
    "CallError",
    "CancelledError",
    "Checkpoint",
    "CheckpointTensor",
    "ClosedError",
    "Context",
    "ContextError",
    "CorruptError",
    "CustomTransport",
    "DLPackTensor",
    "DeadlineError",
    "DeviceAllocator",
    "DeviceArray",
    "DeviceError",
    "DuplicateError",
    "Error",
    "Flat",
    "ForkedError",
    "Future",
    "Gather",
    "Group",
    "GroupError",
    "HandleError",
    "InputOutputError",
    "InternalError",
    "LoadError",
    "MismatchError",
    "NoSpaceError",
    "NonFiniteError",
    "NotFoundError",
    "Optimizer",
    "OptimizerGroup",
    "OutOfMemoryError",
    "Param",
    "ParseError",
    "PeerClosedError",
    "PeerDeadError",
    "Plan",
    "Prediction",
    "ReducedTensor",
    "ResourceError",
    "SaveProgress",
    "Schedule",
    "ScheduleInfo",
    "StaleError",
    "StateError",
    "Stats",
    "Unit",
    "UnitInfo",
    "UnsupportedError",
    "Update",
    "VersionError",
    "bfloat16",
    "from_float32",
    "io",
    "library_path",
    "list_checkpoints",
    "open",
    "open_checkpoint",
    "remove_checkpoint",
    "status_name",
    "system_info",
    "to_float32",
    "version",
    "wait_any",
    "write_checkpoint",
]


def __dir__() -> list[str]:
    """Public names, without those of modules."""
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__version__"])

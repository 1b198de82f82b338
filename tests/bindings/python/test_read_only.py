# SPDX-License-Identifier: Apache-2.0
"""Ways around the read-only flag of an array: none changes a value, under any plan."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ranks

import meron

with contextlib.suppress(ImportError):
    import torch  # noqa: F401  so that ranks begin with it

SIZE = 4096
PLANS = ["zero0", "zero1", "zero2", "zero3"]

Array = Any
Way = Callable[[Array, Any], Any]  # of a view, and of a tensor of PyTorch over the same memory


def setitem(view: Array, _tensor: Any) -> None:
    view[0] = 7


def flags(view: Array, _tensor: Any) -> None:
    view.flags.writeable = True
    view[0] = 7


def add_at(view: Array, _tensor: Any) -> None:
    np.add.at(view, [0], 6)  # NumPy does not look at the flag here


class Interface:
    """The memory of an array as one that may be written."""

    def __init__(self, view: Array) -> None:
        given = view.__array_interface__
        self.__array_interface__ = {**given, "data": (given["data"][0], False)}


def interface(view: Array, _tensor: Any) -> None:
    np.asarray(Interface(view))[0] = 7


def base_interface(view: Array, _tensor: Any) -> None:
    base = view.base
    while isinstance(base, np.ndarray):
        base = base.base
    np.asarray(Interface(base))[0] = 7


def pointer(view: Array, _tensor: Any) -> None:
    view.ctypes.data_as(ctypes.POINTER(ctypes.c_float))[0] = 7


def array_of_a_pointer(view: Array, _tensor: Any) -> None:
    start = view.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    np.ctypeslib.as_array(start, view.shape)[0] = 7


def memset(view: Array, _tensor: Any) -> None:
    ctypes.memset(view.ctypes.data, 0, view.nbytes)


def cffi_cast(view: Array, _tensor: Any) -> None:
    from cffi import FFI

    FFI().cast("float *", view.ctypes.data)[0] = 7


def cffi_buffer(view: Array, _tensor: Any) -> None:
    from cffi import FFI

    ffi = FFI()
    ffi.cast("float *", ffi.from_buffer(view))[0] = 7


def of_torch(make: Callable[[Any, Array, Any], Any]) -> Way:
    def write(view: Array, tensor: Any) -> None:
        import torch

        made = make(torch, view, tensor)
        with torch.no_grad():
            made[0] = 7

    return write


def torch_init(view: Array, _tensor: Any) -> None:
    import torch

    torch.nn.init.zeros_(torch.nn.Parameter(torch.from_numpy(view)))


def torch_optimizer(view: Array, _tensor: Any) -> None:
    import torch

    param = torch.nn.Parameter(torch.from_numpy(view))
    param.grad = torch.ones_like(param)
    torch.optim.SGD([param], lr=1.0).step()


WAYS: dict[str, Way] = {
    "setitem": setitem,
    "flags": flags,
    "add_at": add_at,
    "interface": interface,
    "base_interface": base_interface,
    "pointer": pointer,
    "array_of_a_pointer": array_of_a_pointer,
    "memset": memset,
    "cffi_cast": cffi_cast,
    "cffi_buffer": cffi_buffer,
    "torch_from_numpy": of_torch(lambda torch, view, _tensor: torch.from_numpy(view)),
    "torch_as_tensor": of_torch(lambda torch, view, _tensor: torch.as_tensor(view)),
    "torch_asarray": of_torch(lambda torch, view, _tensor: torch.asarray(view)),
    "torch_frombuffer": of_torch(
        lambda torch, view, _tensor: torch.frombuffer(view, dtype=torch.float32)
    ),
    "torch_dlpack": of_torch(lambda _torch, _view, tensor: tensor),
    "torch_dlpack_of_the_array": of_torch(lambda torch, view, _tensor: torch.from_dlpack(view)),
    "torch_init": torch_init,
    "torch_optimizer": torch_optimizer,
}


def attempt(way: Way, view: Array, tensor: Any) -> int:
    """The exit code of a child of this process that writes. It shares the memory of the values."""
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        try:
            way(view, tensor)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def unit_of_ones(context: meron.Context) -> meron.Unit:
    unit = context.unit("u", [context.param("w", (SIZE,))])
    with context.update([unit]) as update:
        update.write(unit.params[0], np.ones(SIZE, np.float32))
    return unit


def expect_ones(context: meron.Context, unit: meron.Unit, tried: str) -> None:
    context.world.barrier()
    with unit.gather() as full:
        assert (full[unit.params[0]] == 1).all(), tried
        context.world.barrier()


@pytest.mark.filterwarnings("ignore:.*not writable")
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.ranks(1, 2)
def test_no_way_changes_a_gathered_value(plan: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with meron.open(plan=plan) as context:
        unit = unit_of_ones(context)
        (param,) = unit.params
        ends = {}
        for name, way in WAYS.items():
            with unit.gather() as full:
                if context.rank == 0:
                    tensor = torch.from_dlpack(full.dlpack(param))
                    ends[name] = attempt(way, full[param], tensor)
                    del tensor
            expect_ones(context, unit, name)
        died = [name for name, end in ends.items() if end == -signal.SIGSEGV]
        raised = [name for name, end in ends.items() if end == 1]
        assert sorted(died + raised) == sorted(ends), ends
        if context.rank == 0:
            assert raised == ["setitem", "flags"]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.ranks(1, 2)
def test_no_way_changes_a_master_that_is_the_param(plan: str) -> None:
    with meron.open(plan=plan) as context:
        unit = unit_of_ones(context)
        (param,) = unit.params
        optimizer = context.sgd([unit], 0.1)
        for name in ("setitem", "interface", "pointer", "memset", "cffi_buffer", "add_at"):
            if context.rank == 0:
                ended = attempt(WAYS[name], optimizer.state(param, "master"), None)
                assert ended == (1 if name == "setitem" else -signal.SIGSEGV), name
            expect_ones(context, unit, name)


@pytest.mark.parametrize("plan", ["zero1", "zero3"])
@pytest.mark.ranks(1, 2)
def test_io_refuses_memory_that_cannot_be_written(plan: str, tmp_path: Any) -> None:
    """A read into a tensor over a gathered view is an error, and the process lives."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with meron.open(plan=plan) as context:
        unit = unit_of_ones(context)
        (param,) = unit.params
        file = tmp_path / f"zeros{context.rank}"
        file.write_bytes(bytes(4 * SIZE))
        with unit.gather() as full, meron.io.IO() as io:
            tensor = torch.from_numpy(full[param])
            with pytest.raises(meron.Error, match="EFAULT"):
                io.read(file, tensor.numpy())
            del tensor
        expect_ones(context, unit, "io")


WRITES = """
import meron, numpy, torch
with meron.open(plan="zero1") as context:
    unit = context.unit("u", [context.param("w", (4096,))])
    with unit.gather() as full:
        torch.from_numpy(full[unit.params[0]])[0] = 7
"""


def test_a_write_of_torch_ends_the_rank() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    done = ranks.launch(2, source=WRITES)
    assert "was killed by SIGSEGV" in done.stderr, done.stderr

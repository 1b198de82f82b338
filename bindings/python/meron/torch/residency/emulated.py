# SPDX-License-Identifier: Apache-2.0
"""Memory of the emulated device, from its module. On a real device, torch's own is used."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import torch

from meron import errors
from meron._memory import Memory
from meron._native import NULL, ffi, new

# The beginning of the structs of meron/backend.h.
ffi.cdef(
    """
    typedef struct {
      uint32_t struct_size, reserved_0;
      int32_t (*count)(int32_t *, void *);
      int32_t (*open)(void **, int32_t, void *);
      void (*close)(void *);
      int32_t (*describe)(void *, void *, void *);
      int32_t (*allocate)(void **, void *, uint64_t, void *, void *);
      int32_t (*release)(void *, void *, void *, void *);
    } meron_python_device_table;
    typedef struct {
      uint32_t struct_size, abi, version, reserved_0;
      const char *name, *summary;
      const meron_python_device_table *device;
    } meron_python_backend;
    int32_t meron_backend_query(uint32_t, meron_python_backend *, void *);
    """
)
ABI = 1


@functools.cache
def device() -> tuple[Any, Any, Any]:
    """The module's functions, its device 0, and the module; all stay as long as the process.

    The engine has loaded the module: its name finds that one.
    """
    module = ffi.dlopen("libmeron_emulated.so")
    backend = ffi.new("meron_python_backend *")
    backend.struct_size = ffi.sizeof("meron_python_backend")
    out = new("void **")
    status = module.meron_backend_query(ABI, backend, NULL)
    if status == 0:
        status = backend.device.open(out, 0, NULL)
    if status != 0:
        raise errors.make(status, "the emulated device cannot be opened by meron.torch")
    return backend.device, out[0], module


class Block:
    """Memory of the device, released when this object dies; it begins with garbage.

    address: of its first byte.
    """

    def __init__(self, size: int) -> None:
        table, handle, _ = device()
        out = new("void **")
        status = table.allocate(out, handle, max(size, 1), NULL, NULL)
        if status != 0:
            raise errors.make(status, f"the emulated device has no {size} bytes")
        self._release = functools.partial(table.release, handle, out[0], NULL, NULL)
        self.address = int(ffi.cast("uintptr_t", out[0]))

    def tensor(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        """The memory as a tensor, which keeps it."""
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return torch.empty(shape, dtype=dtype, device="cpu")
        memory = np.asarray(Memory(self.address, (size,), "|u1", True, self))
        return torch.from_numpy(memory).view(dtype).view(shape)

    def __del__(self) -> None:
        release = getattr(self, "_release", None)
        if release is not None:
            release()

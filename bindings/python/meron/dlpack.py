# SPDX-License-Identifier: Apache-2.0
"""Tensors for other frameworks, by the DLPack protocol (version 1, CPU memory)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from meron._native import ffi

if TYPE_CHECKING:
    from meron.gather import Gather
    from meron.param import Param

NAME = b"dltensor_versioned"
CPU = (1, 0)  # kDLCPU, device 0

# The first members of DLPack's struct, up to the deleter: a tensor that nobody took is given back.
ffi.cdef(
    """
    typedef struct meron_python_managed {
      uint32_t major, minor;
      void *manager_ctx;
      void (*deleter)(struct meron_python_managed *);
    } meron_python_managed;
    """
)

python = ctypes.pythonapi
Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Destructor)(
    ("PyCapsule_New", python)
)
# The destructor's capsule is past its last reference: it is only ever a bare address here.
capsule_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", python)
)
capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", python)
)


def give_back(
    capsule: int,
    is_valid: Any = capsule_is_valid,
    pointer: Any = capsule_pointer,
    cast: Any = ffi.cast,
    name: bytes = NAME,
) -> None:
    """Frees the tensor of a capsule that dies; one that was consumed has another name by then."""
    if is_valid(capsule, name):
        managed = cast("meron_python_managed *", pointer(capsule, name))
        if managed.deleter:
            managed.deleter(managed)


destructor = Destructor(give_back)
# Capsules may die after this module: what they call must not.
python.Py_IncRef(ctypes.py_object(destructor))


class DLPackTensor:
    """A tensor of a gather for any `from_dlpack`; every such call makes a tensor of its own."""

    __slots__ = ("_gather", "_param")

    def __init__(self, gather: Gather, param: Param) -> None:
        self._gather = gather
        self._param = param

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule with a DLManagedTensorVersioned, read-only.

        Raises:
            BufferError: the consumer knows only DLPack before 1.0, which cannot say that memory is
            read-only, or wants a copy or another device.
            StaleError: the gather was released.
        """
        if max_version is None or max_version[0] < 1:
            raise BufferError(
                "the tensor is read-only, which DLPack can say since version 1.0: "
                "the consumer must ask for that, as NumPy 2.1 and later do"
            )
        if stream is not None:
            raise BufferError("memory of the CPU has no streams: pass stream=None")
        if copy:
            raise BufferError("no copy is made here: copy the imported tensor")
        if dl_device is not None and tuple(dl_device) != CPU:
            raise BufferError(f"the tensor is on the CPU, not on device {dl_device}")
        managed = self._gather._managed_tensor(self._param)
        address = int(ffi.cast("uintptr_t", managed))
        return new_capsule(address, NAME, destructor)

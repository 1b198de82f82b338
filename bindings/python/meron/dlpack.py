# SPDX-License-Identifier: Apache-2.0
"""Tensors for other frameworks, by the DLPack protocol (version 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from meron._base_context import BaseContext
from meron._capsule import NAME, copied, destructor, new_capsule
from meron._native import ffi
from meron.dtypes import NUMPY, Array, DTypeName
from meron.param import Param

CPU = (1, 0)  # kDLCPU, device 0


class TensorSource(Protocol):
    """A gather, as its tensors use it."""

    _context: BaseContext
    _remote: bool

    def wait_stream(self, stream: int = 0, timeout: float | None = None) -> bool: ...

    def __getitem__(self, param: Param) -> Array: ...

    def _pointer(self, param: Param) -> int: ...

    def _managed_tensor(self, param: Param) -> Any: ...


class ReducedTensor:
    """This rank's part of a reduced gradient for any `from_dlpack`: writable, flat, of float32.

    Each call of `__dlpack__` lends the gradient anew.

    Attributes:
        shape: one size, that of `param.shard_range`.
        dtype: numpy.float32.
        dtype_name: "f32".
    """

    __slots__ = ("_lend", "_read", "dtype", "dtype_name", "shape")

    def __init__(self, lend: Callable[[], Any], read: Callable[[], Array], param: Param) -> None:
        self._lend = lend
        self._read = read
        self.shape: tuple[int, ...] = (len(param.shard_range),)
        self.dtype_name: DTypeName = "f32"
        self.dtype = NUMPY["f32"]

    def __repr__(self) -> str:
        return f"<meron.ReducedTensor: {self.dtype_name} {self.shape}>"

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
        """A capsule with a DLManagedTensorVersioned.

        Raises:
            BufferError: the consumer knows only DLPack before 1.0, or wants a stream or another
            device.
            StateError: the gradient is not reduced any more, or in use by a step.
        """
        if max_version is None or max_version[0] < 1:
            raise BufferError("DLPack 1.0 or later is needed, as NumPy 2.1 and later have it")
        if stream is not None:
            raise BufferError("memory of the CPU has no streams: pass stream=None")
        if dl_device is not None and tuple(dl_device) != CPU:
            raise BufferError(f"the tensor is on the CPU, not on device {dl_device}")
        if copy:
            return copied(self._read(), self.dtype_name)
        address = int(ffi.cast("uintptr_t", self._lend()))
        return new_capsule(address, NAME, destructor)


class DLPackTensor:
    """A tensor of a gather for any `from_dlpack`; every such call makes a tensor of its own.

    Attributes:
        shape: of the whole tensor; () is a scalar.
        dtype: NumPy's type of its elements; of bf16, `meron.bfloat16`.
        dtype_name: "f32", "bf16" or "f16".
    """

    __slots__ = ("_gather", "_param", "dtype", "dtype_name", "shape")

    def __init__(self, gather: TensorSource, param: Param) -> None:
        self._gather = gather
        self._param = param
        self.shape: tuple[int, ...] = param.shape
        self.dtype_name = param.dtype_name
        self.dtype = param.dtype

    def __repr__(self) -> str:
        return f"<meron.DLPackTensor of {self._param.name!r}: {self.dtype_name} {self.shape}>"

    @property
    def pointer(self) -> int:
        """The address of the first element, as long as the gather is held; errors as gather[param].

        On a CUDA device it is an address of the device, for work on a stream for which
        `Gather.wait_stream` was called. Read-only.
        """
        return self._gather._pointer(self._param)

    def __dlpack_device__(self) -> tuple[int, int]:
        if not self._gather._remote:
            return CPU
        context = self._gather._context
        if context._dlpack_device is None:  # "cuda" alone does not say which
            managed = ffi.cast("meron_python_managed *", self._gather._managed_tensor(self._param))
            context._dlpack_device = (managed.tensor.device_type, managed.tensor.device_id)
            managed.deleter(managed)
        return context._dlpack_device

    def __dlpack__(
        self,
        *,
        stream: Any | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule with a DLManagedTensorVersioned, read-only; writable with `copy`.

        Args:
            stream: of a CUDA device, the consumer's: it waits for the values. None and 1 are the
                default stream, 2 the thread's own. -1 waits for nothing: its work must have ended
                before the tensor dies.

        Raises:
            BufferError: the consumer knows only DLPack before 1.0, which cannot say that memory is
            read-only, or wants another device, or a copy in a CUDA device's memory.
            StaleError: the gather was released.
        """
        if max_version is None or max_version[0] < 1:
            raise BufferError(
                "the tensor is read-only, which DLPack can say since version 1.0: "
                "the consumer must ask for that, as NumPy 2.1 and later do"
            )
        remote = self._gather._remote
        if stream is not None and not remote:
            raise BufferError("memory of the CPU has no streams: pass stream=None")
        if copy and remote:
            raise BufferError("no copy is made on the device: copy the imported tensor")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            place = "on the CPU" if not remote else f"on device {self.__dlpack_device__()}"
            raise BufferError(f"the tensor is {place}, not on device {dl_device}")
        if copy:
            return copied(self._gather[self._param], self.dtype_name)
        if remote and stream != -1:
            self._gather.wait_stream(0 if stream in (None, 1) else stream)
        managed = self._gather._managed_tensor(self._param)
        address = int(ffi.cast("uintptr_t", managed))
        return new_capsule(address, NAME, destructor)

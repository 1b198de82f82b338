# SPDX-License-Identifier: Apache-2.0
"""A rank's device: memory of it that others own, and an allocator of the trainer's own."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex

from meron import errors
from meron._arguments import as_shape
from meron._capsule import CUDA, borrow
from meron._finalizers import called_back
from meron._native import ffi, initial, lib
from meron.dtypes import NUMPY, SIZES, DType, DTypeName, dtype_name

TIERS = {"device": lib.MERON_TIER_DEVICE, "host": lib.MERON_TIER_HOST}
Tier = Literal["device", "host"]
TYPESTR: dict[str, DTypeName] = {
    "<f4": "f32",
    "<f2": "f16",
}  # the interface of CUDA arrays cannot name bfloat16


class DeviceArray:
    """Dense, row-major memory of a context's device that Meron does not own.

    For `Unit.reduce` and for `into` of a gather, which take everything with
    `__cuda_array_interface__` or a CUDA tensor's `__dlpack__` (PyTorch's, CuPy's, JAX's) as it is.

    Attributes:
        pointer: the address of the first element. Nothing can check that it is valid.
        shape:   of the tensor; () is a scalar.
        dtype:   NumPy's type of its elements; of bf16, `meron.bfloat16`.
        dtype_name: "f32", "bf16" or "f16".
        keep:    what keeps the memory, or None.
    """

    __slots__ = ("dtype", "dtype_name", "keep", "pointer", "shape")

    def __init__(
        self,
        pointer: int,
        shape: SupportsIndex | Sequence[int],
        dtype: DType = "f32",
        *,
        keep: Any = None,
    ) -> None:
        self.pointer = pointer
        self.shape: tuple[int, ...] = as_shape(shape)
        self.dtype_name: DTypeName = dtype_name(dtype)
        self.dtype = NUMPY[self.dtype_name]
        self.keep = keep

    def __repr__(self) -> str:
        return f"<meron.DeviceArray at {self.pointer:#x}: {self.dtype_name} {self.shape}>"

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * int(SIZES[self.dtype_name])


def device_array(value: Any, stream: int, what: str, device: str) -> DeviceArray | None:
    """`value` as memory of the context's device; None where it is memory of the host.

    If the interface permits it, later work on `stream` is ordered after the owner's work. Raises
    ArgumentError for memory of a device if the context has none (`device` is empty).
    """
    if isinstance(value, DeviceArray):
        require_device(device, what)
        return value
    asked = getattr(value, "__dlpack_device__", None)
    if asked is not None:
        if int(asked()[0]) != CUDA:
            return None
        require_device(device, what)
        to = stream or 1  # 0 would be ambiguous there; 1 is the default stream
        try:
            capsule = value.__dlpack__(stream=to, max_version=(1, 0))
        except TypeError:  # from before version 1
            capsule = value.__dlpack__(stream=to)
        tensor = borrow(capsule, what)
        return DeviceArray(tensor.address, tensor.shape, tensor.dtype, keep=(capsule, value))
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    require_device(device, what)
    shape, dtype = tuple(interface["shape"]), TYPESTR.get(interface["typestr"])
    if dtype is None:
        raise errors.argument(f"{what}: elements of type {interface['typestr']}", subject=what)
    strides, step = interface.get("strides"), int(SIZES[dtype])
    for size, stride in zip(reversed(shape), reversed(strides or ())):
        if size != 1 and stride != step:
            raise errors.argument(f"{what} is not contiguous", subject=what)
        step *= size
    return DeviceArray(int(interface["data"][0]), shape, dtype, keep=value)


def require_device(device: str, what: str) -> None:
    if not device:
        raise errors.argument(
            f"{what}: this is memory of a device, and the context was opened without one",
            advice="Open it with device=..., or pass an array in the host's memory.",
        )


def stream_pointer(stream: int) -> Any:
    """A stream as the library takes it; 0 is the device's default stream."""
    if not isinstance(stream, int):
        raise TypeError(
            f"a stream is the number of its address (torch.cuda.Stream.cuda_stream), not {stream!r}"
        )
    if not 0 <= stream < 1 << 64:
        raise errors.argument(f"a stream is an address, 0 or more, not {stream}")
    return ffi.cast("void *", stream)


def tier_code(tier: Tier) -> int:
    if tier not in TIERS:
        raise errors.argument(f"unknown tier {tier!r}: device and host are known")
    return int(TIERS[tier])


class DeviceAllocator(abc.ABC):
    """The trainer's own allocator of a device's memory, such as the cache of a framework.

    Pass an instance as `meron.open(device=..., allocator=...)`; it is kept until the process ends,
    because tensors may outlive the context. Its methods are called on any thread that is inside a
    call. They may only look and release, as `meron.open` says of `log`, and must not wait for work
    of the device.
    Their exceptions go to sys.unraisablehook.
    """

    @abc.abstractmethod
    def allocate(self, size: int, stream: int) -> int | None:
        """The address of `size` bytes, aligned to 256, for later work on `stream`.

        Without memory, it returns None or raises: an OutOfMemoryError follows.
        """

    @abc.abstractmethod
    def release(self, pointer: int, size: int, stream: int) -> None:
        """Releases such memory; work queued on `stream` so far may still use it."""


# Callbacks of the library, also of closed contexts, because their tensors may still exist.
kept: list[tuple[Any, ...]] = []


def allocator_table(allocator: DeviceAllocator) -> Any:
    """The library's table for `allocator`."""
    if not isinstance(allocator, DeviceAllocator):
        raise TypeError(f"allocator must be a meron.DeviceAllocator, not {allocator!r}")

    def address(pointer: Any) -> int:
        return int(ffi.cast("uintptr_t", pointer))

    def allocate(_user: Any, size: int, stream: Any) -> Any:
        return ffi.cast("void *", allocator.allocate(size, address(stream)) or 0)

    def release(_user: Any, pointer: Any, size: int, stream: Any) -> None:
        allocator.release(address(pointer), size, address(stream))

    table = initial("meron_allocator")
    functions = (
        ffi.callback("meron_device_allocate_fn", called_back(allocate), error=ffi.NULL),
        ffi.callback("meron_device_release_fn", called_back(release)),
    )
    table.allocate, table.release = functions
    kept.append((table, *functions))
    return table

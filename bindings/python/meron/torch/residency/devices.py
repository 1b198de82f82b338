# SPDX-License-Identifier: Apache-2.0
"""A device as torch and the engine share it: streams, memory, and waits between streams.

    cuda[:N]   whole tensors are torch's own, in memory of its caching allocator; streams wait, and
               the host does not
    emulated   tensors of the CPU, beside memory of the emulated device: the host computes, and so
               it waits for the device before it reads

All that differs between kinds of device is here. resolve/device.py says which one a module gets.
"""

from __future__ import annotations

import abc
import ctypes
from typing import Any

import torch

import meron
from meron._native import DEFAULT_TIMEOUT, call, ffi, lib
from meron.torch.residency.emulated import Block


class TorchDevice(abc.ABC):
    """Attributes:

    name:         as meron.open takes it.
    torch_device: the device of params in use, and of `param.device` at any time.
    allocator:    the source of the engine's own memory of the device; None is its own pool.
    """

    name: str
    torch_device: torch.device
    allocator: meron.DeviceAllocator | None = None

    @abc.abstractmethod
    def stream(self) -> int:
        """The current stream, as the library takes it."""

    @abc.abstractmethod
    def landing(self, storage: torch.UntypedStorage) -> tuple[int, Any]:
        """The address to which a gather writes the content of `storage`, and an owner of it."""

    @abc.abstractmethod
    def land(self, gather: Any, storage: torch.UntypedStorage, keep: Any) -> None:
        """Work queued on the current stream from now on finds the gather's values in `storage`.

        Blocks on peers.
        """

    @abc.abstractmethod
    def gradient(self, grad: torch.Tensor) -> torch.Tensor:
        """A gradient as the engine takes it from the device: dense, row-major."""

    @abc.abstractmethod
    def follow(self, stream: int) -> None:
        """Work queued on the current stream from now on waits for the work on another stream."""

    @abc.abstractmethod
    def used_by(self, storage: torch.UntypedStorage, stream: int) -> None:
        """`storage` will be released soon. Work on `stream`, which did not allocate it, may still
        use it."""


class CudaDevice(TorchDevice):
    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.torch_device = torch.device("cuda", index)
        self.allocator = CachingAllocator(index)

    def stream(self) -> int:
        return int(torch.cuda.current_stream(self.torch_device).cuda_stream)

    def landing(self, storage: torch.UntypedStorage) -> tuple[int, Any]:
        return storage.data_ptr(), None

    def land(self, gather: Any, storage: torch.UntypedStorage, keep: Any) -> None:
        stream = ffi.cast("void *", self.stream())
        call(lib.meron_gather_wait_stream, gather, stream, DEFAULT_TIMEOUT)

    def gradient(self, grad: torch.Tensor) -> torch.Tensor:
        return (grad if grad.layout is torch.strided else grad.to_dense()).contiguous()

    def follow(self, stream: int) -> None:
        torch.cuda.current_stream(self.torch_device).wait_stream(self.stream_at(stream))

    def used_by(self, storage: torch.UntypedStorage, stream: int) -> None:
        memory = torch.empty(0, dtype=torch.uint8, device=self.torch_device).set_(storage)
        memory.record_stream(self.stream_at(stream))

    def stream_at(self, address: int) -> torch.cuda.Stream:
        """Torch's object for a stream; its class takes 0 for a new one."""
        if address == 0:
            return torch.cuda.default_stream(self.torch_device)
        return torch.cuda.ExternalStream(address, self.torch_device)


class EmulatedDevice(TorchDevice):
    def __init__(self) -> None:
        self.name = "emulated"
        self.torch_device = torch.device("cpu")

    def stream(self) -> int:
        return 0

    def landing(self, storage: torch.UntypedStorage) -> tuple[int, Any]:
        block = Block(storage.nbytes())
        return block.address, block

    def land(self, gather: Any, storage: torch.UntypedStorage, keep: Any) -> None:
        call(lib.meron_future_wait, gather, DEFAULT_TIMEOUT)
        ctypes.memmove(storage.data_ptr(), keep.address, storage.nbytes())

    def gradient(self, grad: torch.Tensor) -> torch.Tensor:
        dense = (grad if grad.layout is torch.strided else grad.to_dense()).contiguous()
        with torch.inference_mode(False), torch.no_grad():
            there = Block(dense.nbytes).tensor(dense.dtype, tuple(dense.shape))
            return there.copy_(dense)

    def follow(self, stream: int) -> None:
        """There is one, and the host waits for it."""

    def used_by(self, storage: torch.UntypedStorage, stream: int) -> None:
        """There is one, and the host waits for it."""


class CachingAllocator(meron.DeviceAllocator):
    """PyTorch's cache of a CUDA device's memory, so that its statistics count the engine's too."""

    def __init__(self, index: int) -> None:
        self.index = index

    def allocate(self, size: int, stream: int) -> int | None:
        try:
            return int(torch.cuda.caching_allocator_alloc(size, self.index, stream))
        except torch.OutOfMemoryError:
            return None  # which the engine tells, with figures

    def release(self, pointer: int, size: int, stream: int) -> None:
        torch.cuda.caching_allocator_delete(pointer)


def torch_device_of(name: str) -> TorchDevice | None:
    """How torch reaches the device of a context, by the name that it was opened with."""
    if not name:
        return None
    if name.startswith("cuda"):
        _, _, index = name.partition(":")
        return CudaDevice(int(index) if index else torch.cuda.current_device())
    return EmulatedDevice()

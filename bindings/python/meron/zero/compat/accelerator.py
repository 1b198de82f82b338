# SPDX-License-Identifier: Apache-2.0
"""deepspeed.accelerator: the device that this process computes on, under DeepSpeed's names."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, MutableMapping
from pathlib import Path
from typing import Any

import torch

from meron import errors
from meron.torch.torch_internals import call_once_cuda_is_there

KINDS = ("cpu", "cuda")


def tensor_type(name: str, dtype: torch.dtype) -> Any:
    """A property: the function that makes tensors of a dtype on this kind of device. On the CPU it
    is the class of torch."""

    def get(accelerator: Accelerator) -> Any:
        if accelerator.cuda:
            return functools.partial(torch.tensor, dtype=dtype, device="cuda")
        return getattr(torch, name)

    return property(get)


class Accelerator:
    """One kind of device: "cuda" (torch.cuda) or "cpu".

    Methods have DeepSpeed's names and the results of torch.cuda. On the CPU streams and events are
    None, and numbers of memory are this process's resident memory, in bytes.
    """

    def __init__(self, kind: str) -> None:
        self._name = kind
        self._communication_backend_name = "nccl" if kind == "cuda" else "gloo"
        self._peak = 0
        self._compile_backend = "inductor"

    @property
    def cuda(self) -> bool:
        return self._name == "cuda"

    # ---- Devices -------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """True if torch sees a device of this kind."""
        return not self.cuda or torch.cuda.is_available()

    def device_name(self, device_index: int | str | None = None) -> str:
        """ "cuda", "cuda:1" for an index; always "cpu" on the CPU."""
        if not self.cuda or device_index is None:
            return self._name
        return f"cuda:{device_index}"

    def device(self, device_index: int | None = None) -> Any:
        """A context within which a device is the current one."""
        return torch.cuda.device(device_index) if self.cuda else contextlib.nullcontext()

    def set_device(self, device_index: int) -> None:
        """Makes a device the current one; nothing on the CPU."""
        if self.cuda:
            torch.cuda.set_device(device_index)

    def current_device(self) -> int:
        """The index of the current device; 0 on the CPU."""
        return torch.cuda.current_device() if self.cuda else 0

    def current_device_name(self) -> str:
        """The current device as torch names it: "cuda:0" or "cpu"."""
        return f"cuda:{torch.cuda.current_device()}" if self.cuda else "cpu"

    def device_count(self) -> int:
        """Devices; on the CPU one."""
        return torch.cuda.device_count() if self.cuda else 1

    def synchronize(self, device_index: int | None = None) -> None:
        """Blocks until the device has done what it was given; nothing on the CPU."""
        if self.cuda:
            torch.cuda.synchronize(device_index)

    def communication_backend_name(self) -> str:
        """The backend of torch.distributed for this kind: "nccl" or "gloo"."""
        return self._communication_backend_name

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """True if a tensor is on a device of this kind."""
        return tensor.device.type == self._name

    def visible_devices_envs(self) -> list[str]:
        return ["CUDA_VISIBLE_DEVICES"]

    def is_synchronized_device(self) -> bool:
        """True if operations are complete when they return."""
        return not self.cuda

    use_host_timers = resolves_data_dependency = handles_memory_backpressure = (
        is_synchronized_device
    )

    # ---- Dtypes --------------------------------------------------------------------------------

    def is_bf16_supported(self) -> bool:
        """True if the device computes in bfloat16, as the CPU does."""
        return torch.cuda.is_bf16_supported() if self.cuda else True

    def is_fp16_supported(self) -> bool:
        """True: torch computes in float16 on both kinds."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Dtypes of params that this kind computes in."""
        dtypes = [torch.float32, torch.float16]
        return [*dtypes, torch.bfloat16] if self.is_bf16_supported() else dtypes

    def is_fp64_supported(self) -> bool:
        """True: torch computes in float64 on both kinds."""
        return True

    def is_triton_supported(self) -> bool:
        """True for CUDA devices of compute capability 8.0 and above."""
        return self.cuda and torch.cuda.get_device_capability()[0] >= 8

    BFloat16Tensor = tensor_type("BFloat16Tensor", torch.bfloat16)
    BoolTensor = tensor_type("BoolTensor", torch.bool)
    ByteTensor = tensor_type("ByteTensor", torch.uint8)
    CharTensor = tensor_type("CharTensor", torch.int8)
    DoubleTensor = tensor_type("DoubleTensor", torch.float64)
    FloatTensor = tensor_type("FloatTensor", torch.float32)
    HalfTensor = tensor_type("HalfTensor", torch.float16)
    IntTensor = tensor_type("IntTensor", torch.int32)
    LongTensor = tensor_type("LongTensor", torch.int64)
    ShortTensor = tensor_type("ShortTensor", torch.int16)

    # ---- Random numbers ------------------------------------------------------------------------

    def random(self) -> Any:
        """torch.cuda.random, or torch.random."""
        return torch.cuda.random if self.cuda else torch.random

    def manual_seed(self, seed: int) -> Any:
        return torch.cuda.manual_seed(seed) if self.cuda else torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> Any:
        return torch.cuda.manual_seed_all(seed) if self.cuda else torch.manual_seed(seed)

    def initial_seed(self) -> int:
        return int(torch.cuda.initial_seed() if self.cuda else torch.initial_seed())

    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        if not self.cuda:
            return torch.get_rng_state()
        return torch.cuda.get_rng_state("cuda" if device_index is None else device_index)

    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        if not self.cuda:
            torch.set_rng_state(new_state)
            return
        torch.cuda.set_rng_state(new_state, "cuda" if device_index is None else device_index)

    def default_generator(self, device_index: int = 0) -> torch.Generator:
        return torch.cuda.default_generators[device_index] if self.cuda else torch.default_generator

    # ---- Streams -------------------------------------------------------------------------------

    @property
    def Stream(self) -> Any:
        return torch.cuda.Stream if self.cuda else None

    @property
    def Event(self) -> Any:
        return torch.cuda.Event if self.cuda else None

    def stream(self, stream: Any) -> Any:
        return torch.cuda.stream(stream) if self.cuda else contextlib.nullcontext()

    def current_stream(self, device_index: int | None = None) -> Any:
        return torch.cuda.current_stream(device_index) if self.cuda else None

    def default_stream(self, device_index: int | None = None) -> Any:
        return torch.cuda.default_stream(device_index) if self.cuda else None

    def range_push(self, msg: str, domain: Any = None, category: Any = None) -> None:
        """Begins a range of NVTX; nothing on the CPU."""
        if self.cuda:
            torch.cuda.nvtx.range_push(msg)

    def range_pop(self, domain: Any = None) -> None:
        if self.cuda:
            torch.cuda.nvtx.range_pop()

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        return call_once_cuda_is_there(callback) if self.cuda else callback()

    def is_current_stream_capturing(self) -> bool:
        """True while a CUDA graph is captured."""
        return self.cuda and torch.cuda.is_current_stream_capturing()

    def create_graph(self) -> Any:
        """A CUDA graph; None on the CPU."""
        return torch.cuda.CUDAGraph() if self.cuda else None

    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Any:
        """A context that captures what runs on the device; nothing on the CPU."""
        return torch.cuda.graph(graph, pool, stream) if self.cuda else contextlib.nullcontext()

    def replay_graph(self, graph: Any) -> None:
        """Runs a graph again; nothing on the CPU."""
        if self.cuda:
            graph.replay()

    # ---- Memory, in bytes ----------------------------------------------------------------------

    def empty_cache(self) -> None:
        if self.cuda:
            torch.cuda.empty_cache()

    def memory_allocated(self, device_index: int | None = None) -> int:
        return torch.cuda.memory_allocated(device_index) if self.cuda else self._resident()

    memory_cached = memory_reserved = memory_allocated

    def max_memory_allocated(self, device_index: int | None = None) -> int:
        if self.cuda:
            return torch.cuda.max_memory_allocated(device_index)
        self._resident()
        return self._peak

    max_memory_cached = max_memory_reserved = max_memory_allocated

    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        if self.cuda:
            torch.cuda.reset_peak_memory_stats(device_index)
        self._peak = 0

    reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats

    def memory_stats(self, device_index: int | None = None) -> Any:
        return torch.cuda.memory_stats(device_index) if self.cuda else {}

    def total_memory(self, device_index: int | None = None) -> int:
        if self.cuda:
            return int(torch.cuda.get_device_properties(device_index or 0).total_memory)
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def available_memory(self, device_index: int | None = None) -> int:
        if self.cuda:
            return int(torch.cuda.mem_get_info(device_index)[0])
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")

    def _resident(self) -> int:
        resident = resident_bytes()
        self._peak = max(self._peak, resident)
        return resident

    def pin_memory(self, tensor: torch.Tensor, *_options: Any, **_named: Any) -> torch.Tensor:
        """A copy in pinned memory; the tensor itself on the CPU."""
        return tensor.pin_memory() if self.cuda else tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned() if self.cuda else False

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: Any = "cpu") -> torch.Tensor:
        """A tensor in pinned host memory; in ordinary memory on the CPU."""
        return torch.empty(*size, dtype=dtype, device=device, pin_memory=self.cuda)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: Any = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """As pin_empty, in the shape of a tensor."""
        return self.pin_empty(tensor.shape, dtype=dtype or tensor.dtype, device=device)

    # ---- Environment ---------------------------------------------------------------------------

    def export_envs(self) -> list[str]:
        """Prefixes of environment variables that ranks on other nodes need."""
        return ["NCCL"] if self.cuda else []

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Iterable[int]
    ) -> None:
        """Writes the devices that a process may use to its environment."""
        for name in self.visible_devices_envs():
            current_env[name] = ",".join(map(str, local_accelerator_ids))

    # ---- Operators -----------------------------------------------------------------------------

    def op_builder_dir(self) -> str:
        """The module that has the builders of operators."""
        return "deepspeed.ops.op_builder"

    def build_extension(self) -> Any:
        """torch's class that builds extensions."""
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    def get_compile_backend(self) -> str:
        """The backend for torch.compile: "inductor", or the one that was set."""
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        """Sets what get_compile_backend returns. Raises ArgumentError (a ValueError) for a name
        that torch.compile does not know."""
        known = torch.compiler.list_backends(exclude_tags=())
        if backend not in known:
            raise errors.argument(
                f"torch.compile has no backend {backend!r}",
                subject="backend",
                advice=f"Use one of {', '.join(known)}.",
            )
        self._compile_backend = backend

    def create_op_builder(self, class_name: str) -> Any:
        """An object of a class of deepspeed.ops.op_builder."""
        return self.get_op_builder(class_name)()

    def get_op_builder(self, class_name: str) -> Any:
        from meron.zero.compat import builders

        return getattr(builders, class_name)


def resident_bytes() -> int:
    """Memory of this process that resides in the host's memory."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def get_accelerator() -> Accelerator:
    """ "cuda" if torch sees a device, else "cpu"; DS_ACCELERATOR chooses one of them.

    Raises ArgumentError for another DS_ACCELERATOR, and for "cuda" where torch sees no device.
    """
    chosen = os.environ.get("DS_ACCELERATOR")
    if chosen is None:
        return Accelerator("cuda" if torch.cuda.is_available() else "cpu")
    if chosen not in KINDS or (chosen == "cuda" and not torch.cuda.is_available()):
        raise errors.argument(
            f"DS_ACCELERATOR={chosen!r}: Meron computes on cpu and cuda, and torch sees "
            f"{torch.cuda.device_count()} CUDA devices",
            subject="DS_ACCELERATOR",
            advice='Unset it, or set it to "cpu" or "cuda".',
        )
    return Accelerator(chosen)


def is_current_accelerator_supported() -> bool:
    return True


__all__ = ["Accelerator", "get_accelerator", "is_current_accelerator_supported"]

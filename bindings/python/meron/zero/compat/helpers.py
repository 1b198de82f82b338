# SPDX-License-Identifier: Apache-2.0
"""Small functions of deepspeed.runtime.utils, deepspeed.utils and deepspeed.checkpoint.utils."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import math
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from meron import errors
from meron.torch.tensors import map_tensors
from meron.zero.comm import known_rank
from meron.zero.compat.accelerator import get_accelerator, resident_bytes

logger = logging.getLogger("meron.zero")

# Names of this module that deepspeed.runtime.utils has.
RUNTIME_UTILS = (
    "DummyOptim",
    "call_to_str",
    "clip_grad_norm_",
    "copy_to_device",
    "empty_cache",
    "ensure_directory_exists",
    "get_global_norm",
    "get_only_unique_item",
    "has_inf_or_nan",
    "is_model_parallel_parameter",
    "mask_nan_or_inf_with_val_inplace",
    "memory_status",
    "move_to_device",
    "noop_context",
    "noop_decorator",
    "see_memory_usage",
    "set_random_seed",
)

Function = TypeVar("Function", bound=Callable[..., Any])


# ---- deepspeed.runtime.utils --------------------------------------------------------------------


def see_memory_usage(message: str, force: bool = False, ranks: list[int] | None = None) -> None:
    """If `force` is true, logs the memory of this process and of its device, at INFO. Local.

    Args:
        ranks: which ranks log; default is rank 0.
    """
    if not force or known_rank() not in ([0] if ranks is None else ranks):
        return
    gc.collect()
    device = get_accelerator()
    gib = 1 << 30
    parts = [f"host {resident_bytes() / gib:.2f} GiB"]
    if device.cuda:
        parts.append(f"device {device.memory_allocated() / gib:.2f} GiB")
        parts.append(f"at most {device.max_memory_allocated() / gib:.2f} GiB")
        parts.append(f"reserved {device.memory_reserved() / gib:.2f} GiB")
    logger.info("%s: %s", message, ", ".join(parts))


def clip_grad_norm_(
    parameters: Any, max_norm: float, norm_type: float = 2.0, mpu: Any = None
) -> torch.Tensor:
    """torch.nn.utils.clip_grad_norm_, which sees all ranks' gradients of sharded params. Returns
    the norm before. Collective for those.

    Args:
        mpu: without effect: the ranks are those that shard the params.
    """
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)


def get_global_norm(norm_list: Iterable[float]) -> float:
    """The L2 norm of values whose parts have these L2 norms."""
    return math.sqrt(sum(float(norm) ** 2 for norm in norm_list))


def empty_cache() -> None:
    """Returns torch's cached device memory to the driver."""
    get_accelerator().empty_cache()


def set_random_seed(seed: int) -> None:
    """Seeds Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def ensure_directory_exists(filename: str | os.PathLike[str]) -> None:
    """Makes the folder of a file."""
    Path(filename).parent.mkdir(parents=True, exist_ok=True)


def move_to_device(
    item: Any, device: Any, criterion_func: Callable[[torch.Tensor], bool] | None = None
) -> Any:
    """A nested value on a device, without the tensors for which criterion_func is False."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device) if criterion_func is None or criterion_func(tensor) else tensor

    return map_nested(item, moved)


def copy_to_device(item: Any, device: Any, criterion_func: Callable[[torch.Tensor], bool]) -> Any:
    """As move_to_device, with copies of the tensors that are on the device already."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, copy=True) if criterion_func(tensor) else tensor

    return map_nested(item, copied)


@contextlib.contextmanager
def noop_context(*_arguments: Any, **_named: Any) -> Iterator[None]:
    """A context that does nothing."""
    yield


def noop_decorator(func: Function) -> Function:
    """The function itself."""
    return func


class DummyOptim:
    """An object with the param groups of an optimizer: one, of all params."""

    def __init__(self, params: Any) -> None:
        self.param_groups = [{"params": params}]


def memory_status(msg: str, print_rank: int = -1, reset_max: bool = False) -> None:
    """As see_memory_usage with force=True. `reset_max` begins a new peak first.

    Args:
        print_rank: the rank that logs; -1 is all of them.
    """
    if reset_max:
        get_accelerator().reset_peak_memory_stats()
    see_memory_usage(msg, force=True, ranks=[known_rank() if print_rank == -1 else print_rank])


def call_to_str(base: str, *args: Any, **kwargs: Any) -> str:
    """A call as text: call_to_str("f", 1, x=2) is "f(1, x=2)"."""
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"{base}({', '.join(words)})"


def get_only_unique_item(items: Iterable[Any]) -> Any:
    """The one value that all items have. Raises ArgumentError if there is none, or several."""
    found = set(items)
    if len(found) != 1:
        raise errors.argument(f"the items have {len(found)} values, not one", subject="items")
    return found.pop()


def has_inf_or_nan(x: torch.Tensor) -> torch.Tensor:
    """A tensor of one bool: true if an element is NaN or infinite."""
    return ~x.isfinite().all()


def is_model_parallel_parameter(p: torch.Tensor) -> bool:
    """True if a script has marked a param as cut over ranks of tensor parallelism."""
    return any(bool(getattr(p, name, 0)) for name in ("model_parallel", "tensor_model_parallel"))


def mask_nan_or_inf_with_val_inplace(
    input: torch.Tensor, device: Any = None, val: float = -1.0
) -> None:
    """Replaces the elements of a tensor that are NaN or infinite."""
    input.masked_fill_(~input.isfinite(), val)


def ignore_params(param_list: Iterable[torch.Tensor]) -> None:
    """Nothing: all params are in every checkpoint, whole."""


def is_compile_supported() -> bool:
    """True if torch has torch.compile. (deepspeed.runtime.compiler)"""
    return hasattr(torch, "compile")


# ---- deepspeed.checkpoint.utils -----------------------------------------------------------------


def clone_tensors_for_torch_save(item: Any, device: Any = "cpu") -> Any:
    """A nested value with copies of its tensors on a device, each with memory of its own.

    torch.save writes the whole storage of a view; a copy's storage is its elements alone. Tensors
    that are the same memory (tied weights) stay so.
    """
    copies: dict[tuple[Any, ...], torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if place not in copies or not tensor.numel():
            copies[place] = tensor.detach().to(device, copy=True).contiguous()
        return copies[place]

    return map_nested(item, copied)


def map_nested(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """As map_tensors, also within dicts of other classes, such as OrderedDict."""
    if isinstance(value, dict):
        pairs = [(key, map_nested(item, function)) for key, item in value.items()]
        return type(value)(pairs)
    if type(value) in (list, tuple):
        return type(value)(map_nested(item, function) for item in value)
    return map_tensors(value, function)


# ---- deepspeed.utils ----------------------------------------------------------------------------


def instrument_w_nvtx(func: Function) -> Function:
    """A decorator: calls are ranges of NVTX, if the device is CUDA."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        device = get_accelerator()
        device.range_push(func.__qualname__)
        try:
            return func(*args, **kwargs)
        finally:
            device.range_pop()

    return call  # type: ignore[return-value]


class RepeatingLoader:
    """Batches of a loader without an end: after the last one it begins again."""

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self.data_iter = iter(loader)

    def __iter__(self) -> RepeatingLoader:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.data_iter)
        except StopIteration:
            self.data_iter = iter(self.loader)
            return next(self.data_iter)


class OnDevice:
    """Within it, tensors and modules are made on a device and in a dtype.

    with deepspeed.OnDevice(dtype=torch.bfloat16, device="meta"):
        model = Model()
    """

    def __init__(self, dtype: torch.dtype, device: Any = "meta", enabled: bool = True) -> None:
        self.dtype = dtype
        self.device = torch.device(device)
        self.enabled = enabled
        self.contexts = contextlib.ExitStack()

    def __enter__(self) -> OnDevice:
        if self.enabled:
            self.contexts.enter_context(self.device)
            self.contexts.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(self.dtype)
        return self

    def __exit__(self, *_failure: Any) -> None:
        self.contexts.close()


def parse_range_list(range_str: str) -> list[int]:
    """The numbers of a list such as "0,2-4". They ascend. Raises ArgumentError (a ValueError) for
    another text. (deepspeed.utils.numa)"""
    numbers: list[int] = []
    for item in range_str.split(","):
        first, dash, last = item.partition("-")
        ends = (first, last if dash else first)
        if not all(end.isdecimal() for end in ends):
            raise errors.argument(
                f"{range_str!r}: {item!r} is no number, and no range such as 3-5", "range_str"
            )
        begin, end = map(int, ends)
        if end < begin or (numbers and begin <= numbers[-1]):
            raise errors.argument(f"{range_str!r}: the numbers do not ascend", "range_str")
        numbers += range(begin, end + 1)
    return numbers


def recursive_getattr(model: Any, module_name: str) -> Any:
    """An attribute by its dotted name."""
    return functools.reduce(getattr, module_name.split("."), model)


def recursive_setattr(model: Any, module_name: str, module: Any) -> None:
    """Sets an attribute by its dotted name."""
    *path, name = module_name.split(".")
    setattr(functools.reduce(getattr, path, model), name, module)

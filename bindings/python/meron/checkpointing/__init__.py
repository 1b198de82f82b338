# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: a part of a model keeps its arguments only, and runs again in backward.

    import meron.checkpointing

    for block in model.blocks:
        x = meron.checkpointing.checkpoint(block, x)

For any torch model, sharded by Meron or not. Gradients have the bits of a run without it. The
names and flags are DeepSpeed's; `configure` sets the flags. docs/activation-checkpointing.md is the
guide.
"""

from __future__ import annotations

from meron import _needs_torch  # noqa: F401 - says so if PyTorch is missing

# isort: split
import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._dynamo.eval_frame import set_eval_frame

from meron.checkpointing.frame import Arguments, Frame, active
from meron.checkpointing.keeping import Keeper
from meron.checkpointing.profile import Profile
from meron.checkpointing.random_states import (
    CudaRNGStatesTracker,
    RNGStatesTracker,
    get_cuda_rng_tracker,
    reseed_model_parallel,
    seed_model_parallel,
)
from meron.checkpointing.settings import Settings, Source, settings_of

# It is meant to end here (checkpoint).
warnings.filterwarnings("ignore", r"Dynamo does not know how to trace the builtin .*set_eval_frame")


class State:
    """The configuration of this process."""

    def __init__(self) -> None:
        self.configured = False
        self.set(Settings())

    def set(self, settings: Settings) -> None:
        self.settings = settings
        self.keeper = Keeper(settings)
        self.profile = Profile()


state = State()


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls `function(*args, **kwargs)` and keeps its arguments, in place of what autograd saves
    within it. The backward calls it again.

    Arguments may be anything; tensors among them, also in nested tuples, lists and dicts, are kept
    as `configure` says. Those in other objects, and what the function refers to by itself, are kept
    alive. Dropout draws the same numbers again, and autocast is as it was. Without gradients
    (torch.no_grad) this only calls the function.

    The function must do the same both times, must not change its arguments in place, and must not
    depend on what changes until the backward. Checkpoints may be nested; the flags of `configure`
    hold for the outermost. One thread at a time runs a backward over a call.

    Returns:
        What the function returns.

    Raises:
        StateError: in the forward, more is kept than `num_checkpoints`; in the backward, the
        function did something else than before, or an argument was changed in place.
        MismatchError: with partition_activations, ranks of the model-parallel group have different
        activations. Exceptions of the function pass through.

    Blocks on the model-parallel group in the recomputation if activations are partitioned, and on
    devices with `synchronize` and `profile`.
    """
    if not torch.is_grad_enabled():
        return function(*args, **kwargs)
    # A graph break: code that a compiler makes of the function here would not be run by the
    # backward, and save other tensors. A function that was compiled by itself stays so.
    compiler = set_eval_frame(None)
    try:
        return begin(function, args, kwargs)
    finally:
        set_eval_frame(compiler)


checkpoint._torchdynamo_disable = True  # type: ignore[attr-defined]


def begin(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call that autograd records."""
    outermost = active.depth == 0
    settings = state.settings
    profile = state.profile if settings.profile else None
    arguments = Arguments(state.keeper if outermost else None, args, kwargs)
    frame = Frame(function, arguments, settings.synchronize and outermost, profile)
    timed: Any = contextlib.nullcontext()
    if profile is not None:
        timed = profile.forward(frame.synchronize)
    with timed:
        return frame.run(args, kwargs)


def non_reentrant_checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The same as `checkpoint`, which needs no reentrant backward (as DeepSpeed's does)."""
    return checkpoint(function, *args, **kwargs)


non_reentrant_checkpoint._torchdynamo_disable = True  # type: ignore[attr-defined]


def configure(
    mpu_: Any = None,
    deepspeed_config: Source = None,
    partition_activations: bool | None = None,
    contiguous_checkpointing: bool | None = None,
    num_checkpoints: int | None = None,
    checkpoint_in_cpu: bool | None = None,
    synchronize: bool | None = None,
    profile: bool | None = None,
) -> None:
    """Sets how activations are kept from now on. Earlier calls keep theirs unchanged.

    An argument that is not None takes precedence over the config. Without a config, None leaves a
    setting unchanged. Local.

    Args:
        mpu_: knows the model-parallel group, as Megatron-LM's mpu: get_tensor_model_parallel_group
            or get_model_parallel_group, and the same with _rank. None keeps the one of before.
        deepspeed_config: a dict, the path of a JSON file, or an object with an attribute
            activation_checkpointing (or activation_checkpointing_config).
        partition_activations: each rank of the model-parallel group keeps 1/N of each activation.
            Its ranks have the same activations and call `checkpoint` alike. Needs a group of
            several ranks to have an effect.
        contiguous_checkpointing: activations are copied into one buffer per argument and dtype.
        num_checkpoints: how many checkpoints that has room for. None: as many as the first pass
            has, which uses memory of its own.
        checkpoint_in_cpu: activations on a device are copied to pinned host memory meanwhile. No
            effect on those in host memory.
        synchronize: wait for the device where a function begins and ends. No effect on the host.
        profile: counts and times, which `profile_summary` returns and `reset` prints.

    Raises:
        ArgumentError: a value of the wrong type, an unknown key of the block
        activation_checkpointing, an mpu_ without a group. ParseError, OSError: the file.
    """
    explicit = {
        "partition_activations": partition_activations,
        "cpu_checkpointing": checkpoint_in_cpu,
        "contiguous_memory_optimization": contiguous_checkpointing,
        "number_checkpoints": num_checkpoints,
        "synchronize_checkpoint_boundary": synchronize,
        "profile": profile,
    }
    state.set(settings_of(mpu_, deepspeed_config, explicit, state.settings))
    state.configured = True


def is_configured() -> bool:
    """True if `configure` was called. `checkpoint` works without it, and keeps by reference."""
    return state.configured


def reset() -> None:
    """Frees the buffers of contiguous_checkpointing, and starts counts again; with `profile` rank 0
    prints them first. Local.

    For forwards that no backward follows. The configuration stays.
    """
    state.keeper.reset()
    if state.settings.profile:
        if not dist.is_initialized() or dist.get_rank() == 0:
            print(profile_summary(), flush=True)
        state.profile = Profile()


def profile_summary() -> Profile:
    """Counts, times and bytes since configure() or reset(), if `profile` is on. Print it, or read
    its attributes."""
    return state.profile


def partition_activations_in_checkpoint(partition_activation: bool) -> None:
    """configure(partition_activations=partition_activation)."""
    configure(partition_activations=partition_activation)


def set_num_layers(nlayers: int) -> None:
    """configure(num_checkpoints=nlayers)."""
    configure(num_checkpoints=nlayers)


def model_parallel_cuda_manual_seed(seed: int) -> None:
    """Seeds the default generator of the current device equally on all ranks, and the tracker's
    "model-parallel-rng" differently on each rank of the model-parallel group of `configure`.

    On a host without a GPU these are the CPU's. Local.
    """
    seed_model_parallel(seed, state.settings.model_parallel_rank())


def model_parallel_reconfigure_tp_seed(seed: int) -> None:
    """Seeds the tracker's "model-parallel-rng" anew, as model_parallel_cuda_manual_seed does.

    Raises ArgumentError if that was not called.
    """
    reseed_model_parallel(seed, state.settings.model_parallel_rank())


__all__ = [
    "CudaRNGStatesTracker",
    "Profile",
    "RNGStatesTracker",
    "checkpoint",
    "configure",
    "get_cuda_rng_tracker",
    "is_configured",
    "model_parallel_cuda_manual_seed",
    "model_parallel_reconfigure_tp_seed",
    "non_reentrant_checkpoint",
    "partition_activations_in_checkpoint",
    "profile_summary",
    "reset",
    "set_num_layers",
]

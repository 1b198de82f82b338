# SPDX-License-Identifier: Apache-2.0
"""The settings of configure(): its arguments, and a config's block `activation_checkpointing`."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Union

import torch.distributed as dist

from meron import errors
from meron._files import read_text

Source = Union[str, "os.PathLike[str]", "Mapping[str, Any]", Any]

BLOCK = "activation_checkpointing"

# Fields of Settings by the keys of the block.
KEYS = {
    "partition_activations": "partition",
    "cpu_checkpointing": "to_host",
    "contiguous_memory_optimization": "contiguous",
    "number_checkpoints": "count",
    "synchronize_checkpoint_boundary": "synchronize",
    "profile": "profile",
}

# Megatron-LM's names, the newer one first.
GROUP = ("get_tensor_model_parallel_group", "get_model_parallel_group")
RANK = ("get_tensor_model_parallel_rank", "get_model_parallel_rank")


@dataclass(frozen=True)
class Settings:
    """How to keep activations.

    mpu:          the caller's object that knows the model-parallel group, or None
    partition:    each rank of that group keeps a part of each activation
    to_host:      activations on a device are kept in pinned host memory
    contiguous:   activations are copied into one buffer per kind
    count:        checkpoints that such a buffer has room for; None: as many as the first pass has
    synchronize:  wait for the device where a checkpointed function begins and ends
    profile:      count and time forwards and recomputations
    """

    mpu: Any = None
    partition: bool = False
    to_host: bool = False
    contiguous: bool = False
    count: int | None = None
    synchronize: bool = False
    profile: bool = False

    def group(self) -> Any:
        """The model-parallel group of more than one rank, or None. StateError without
        torch.distributed."""
        if self.mpu is None:
            return None
        if not dist.is_initialized():
            raise errors.StateError(
                "partition_activations needs the model-parallel group, and torch.distributed is "
                "not initialised",
                subject="partition_activations",
                advice="Call torch.distributed.init_process_group first.",
            )
        group = method_of(self.mpu, GROUP)()  # None there is no group, and not that of all ranks
        return group if group is not None and dist.get_world_size(group) > 1 else None

    def model_parallel_rank(self) -> int:
        """This rank's place in the model-parallel group; 0 without one."""
        if self.mpu is None:
            return 0
        for name in RANK:
            if hasattr(self.mpu, name):
                return int(getattr(self.mpu, name)())
        group = method_of(self.mpu, GROUP)()
        return 0 if group is None else dist.get_rank(group)


def method_of(mpu: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if hasattr(mpu, name):
            return getattr(mpu, name)
    raise errors.argument(
        f"mpu_ is a {type(mpu).__name__} without {names[0]}()",
        subject="mpu_",
        advice=f"Give it one of {' and '.join(names)}, as Megatron-LM's mpu has.",
    )


def settings_of(
    mpu: Any, source: Source, explicit: Mapping[str, Any], before: Settings
) -> Settings:
    """The settings of a config, over which arguments that are not None take precedence. Settings in
    neither stay as before; with a config, they get the default."""
    values = block_of(source) if source is not None else {}
    values.update({key: value for key, value in explicit.items() if value is not None})
    chosen = {KEYS[key]: checked(key, value) for key, value in values.items()}
    base = Settings() if source is not None else before
    settings = replace(base, mpu=before.mpu if mpu is None else mpu, **chosen)
    if settings.partition and mpu is not None:
        method_of(mpu, GROUP)
    return settings


def checked(key: str, value: Any) -> Any:
    """ArgumentError for a value of the wrong type."""
    if key == "number_checkpoints":
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise errors.argument(
                f"number_checkpoints is {value!r}",
                subject=key,
                advice="Pass how often the model calls checkpoint() in one forward, or None.",
            )
        return value
    if not isinstance(value, bool):
        raise errors.argument(f"{key} is {value!r}", subject=key, advice="Pass True or False.")
    return value


def block_of(source: Source) -> dict[str, Any]:
    """The block of a config: a dict or a JSON file, or an object that has it as an attribute.
    "auto" and None mean the default."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        try:
            source = json.loads(read_text(name))
        except ValueError as error:
            raise errors.ParseError(
                f"{name}: no JSON: {error}", subject=name, advice="Pass a DeepSpeed config."
            ) from error
    if isinstance(source, Mapping):
        block = source.get(BLOCK, {})
    else:
        block = getattr(source, BLOCK, None)
        if block is None:
            block = getattr(source, f"{BLOCK}_config", None)
        if block is None:
            raise errors.argument(
                f"deepspeed_config is a {type(source).__name__} without {BLOCK}",
                subject="deepspeed_config",
                advice="Pass a dict, the path of a JSON file, or an object with that attribute.",
            )
    if isinstance(block, Mapping):
        for key in block:
            refuse_unknown(str(key))
        found = dict(block)
    else:
        found = {key: getattr(block, key) for key in KEYS if hasattr(block, key)}
    return {key: value for key, value in found.items() if value not in ("auto", None)}


def refuse_unknown(key: str) -> None:
    if key not in KEYS:
        close = difflib.get_close_matches(key, KEYS, 1, 0.4)
        raise errors.argument(
            f"{BLOCK} has no key {key!r}",
            subject=f"{BLOCK}.{key}",
            advice=f"Did you mean {close[0]!r}?" if close else f"Its keys are {', '.join(KEYS)}.",
        )

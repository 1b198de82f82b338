# SPDX-License-Identifier: Apache-2.0
"""The arguments of the strategies as a DeepSpeed config.

The names, their order and their defaults are those of Lightning's DeepSpeedStrategy.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Union

Source = Union[str, "os.PathLike[str]", Mapping[str, Any], None]

# The first one that is set names a JSON file.
ENVIRONMENT = ("MERON_CONFIG_PATH", "PL_DEEPSPEED_CONFIG_PATH")

# The registered names, and the arguments that each stands for.
OFFLOAD = {"offload_optimizer": True, "offload_parameters": True}
NVME = {device: "nvme" for device in ("remote_device", "offload_params_device")}
NVME["offload_optimizer_device"] = "nvme"
NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "meron": ("Meron, ZeRO stage 2", {}),
    "meron_stage_1": ("Meron, ZeRO stage 1: optimizer states are sharded", {"stage": 1}),
    "meron_stage_1_offload": (
        "Meron, ZeRO stage 1, optimizer states in host memory",
        {"stage": 1, "offload_optimizer": True},
    ),
    "meron_stage_2": ("Meron, ZeRO stage 2: gradients are sharded too", {"stage": 2}),
    "meron_stage_2_offload": (
        "Meron, ZeRO stage 2, optimizer states in host memory",
        {"stage": 2, "offload_optimizer": True},
    ),
    "meron_stage_3": ("Meron, ZeRO stage 3: parameters are sharded too", {"stage": 3}),
    "meron_stage_3_offload": (
        "Meron, ZeRO stage 3, states and parameters in host memory",
        {"stage": 3, **OFFLOAD},
    ),
    "meron_stage_3_offload_nvme": (
        "Meron, ZeRO stage 3, states and parameters on NVMe",
        {"stage": 3, **OFFLOAD, **NVME},
    ),
}

# Arguments that are keys of `zero_optimization` by the same name.
ZERO = (
    "stage",
    "contiguous_gradients",
    "overlap_comm",
    "allgather_partitions",
    "reduce_scatter",
    "allgather_bucket_size",
    "reduce_bucket_size",
    "sub_group_size",
)
AIO = ("block_size", "queue_depth", "single_submit", "overlap_events", "thread_count")
CHECKPOINTING = (
    "partition_activations",
    "cpu_checkpointing",
    "contiguous_memory_optimization",
    "synchronize_checkpoint_boundary",
)
# Arguments that count beside a config too.
SCALE = ("loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis", "min_loss_scale")

# All that `default_config` and the strategies read.
ARGUMENTS = frozenset(
    (*ZERO, *AIO, *CHECKPOINTING, *SCALE, "zero_optimization", "remote_device", "offload_optimizer")
) | {
    "offload_parameters", "offload_params_device", "nvme_path", "params_buffer_count",
    "params_buffer_size", "max_in_cpu", "offload_optimizer_device", "optimizer_buffer_count",
    "pin_memory", "zero_allow_untested_optimizer", "logging_batch_size_per_gpu", "config",
    "logging_level", "load_full_weights", "exclude_frozen_parameters", "leaf_modules",
    "save_distributed_checkpoint", "reshard_on_load",
}  # fmt: skip

Failure = Callable[[str], Exception]


def load_config(source: Source, missing: Failure, absent: Failure) -> dict[str, Any] | None:
    """A copy of the caller's config: the argument, else the file that the environment names.

    Args:
        missing: makes the exception for a path without a file; absent: for a file without a config.
    """
    if source is None:
        name = next((name for name in ENVIRONMENT if os.environ.get(name)), None)
        if name is None:
            return None
        source = os.environ[name]
    if isinstance(source, Mapping):
        return copy.deepcopy(dict(source))
    path = Path(source)
    if not path.is_file():
        raise missing(
            f"You passed in a path to a config but the path does not exist: {os.fspath(source)}"
        )
    try:
        table = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise absent(f"{path} holds no JSON: {error}") from error
    if not isinstance(table, dict):
        raise absent(f"{path} holds no JSON object: a config is one")
    return table


def default_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """The config that the arguments stand for, where the caller gives none."""
    config: dict[str, Any] = {"aio": {key: given[key] for key in AIO}}
    # Without any of them what the caller has set by meron.checkpointing.configure stays.
    if any(given[key] for key in CHECKPOINTING):
        config["activation_checkpointing"] = {key: given[key] for key in CHECKPOINTING}
    if given["zero_optimization"]:
        zero: dict[str, Any] = {key: given[key] for key in ZERO}
        if given["offload_optimizer"]:
            zero["offload_optimizer"] = {
                "device": given["offload_optimizer_device"],
                "nvme_path": given["nvme_path"],
                "buffer_count": given["optimizer_buffer_count"],
                "pin_memory": given["pin_memory"],
            }
        if given["offload_parameters"]:
            zero["offload_param"] = {
                "device": given["offload_params_device"],
                "nvme_path": given["nvme_path"],
                "buffer_count": given["params_buffer_count"],
                "buffer_size": given["params_buffer_size"],
                "max_in_cpu": given["max_in_cpu"],
                "pin_memory": given["pin_memory"],
            }
        config["zero_optimization"] = zero
        config["zero_allow_untested_optimizer"] = given["zero_allow_untested_optimizer"]
    if given["logging_batch_size_per_gpu"] not in ("auto", None):
        config["train_micro_batch_size_per_gpu"] = given["logging_batch_size_per_gpu"]
    return config


def add_leaves(config: dict[str, Any], leaves: Any) -> None:
    """`leaf_modules`, classes or names of classes, as the config has them."""
    names = [leaf if isinstance(leaf, str) else leaf.__name__ for leaf in leaves]
    if names:
        block = config.setdefault("zero_optimization", {}).setdefault("leaf_module", {})
        block["classes"] = [*block.get("classes", ()), *names]


def without(config: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """A config without the keys that were added to it; a key that has changed since stays."""
    return {k: v for k, v in config.items() if k not in added or added[k] != v}


def batch_size_of(loader: Any) -> int:
    """The batch size of a dataloader; 1 if it has none."""
    size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else 1


def without_optimizer(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config for a model that no optimizer of the config updates."""
    return {key: value for key, value in config.items() if key not in ("optimizer", "scheduler")}


def add_precision(config: dict[str, Any], precision: str, scale: Mapping[str, Any]) -> None:
    """The dtypes of a precision of Lightning, where the config does not say them.

    As under DeepSpeed both "*-mixed" and "*-true" compute in 16 bits and update f32 values.
    """
    if precision in ("16-mixed", "16-true"):
        config.setdefault("fp16", {"enabled": True, **{key: scale[key] for key in SCALE}})
    elif precision in ("bf16-mixed", "bf16-true") and "bfloat16" not in config:
        config.setdefault("bf16", {"enabled": True})
    if precision in ("16-true", "bf16-true"):
        types = config.setdefault("data_types", {})
        types.setdefault("buffer_dtype", "fp16" if precision == "16-true" else "bf16")


def check_several(config: Mapping[str, Any], failure: Failure) -> None:
    """Raises `failure` for a config that takes a single optimizer."""
    fp16 = config.get("fp16") or {}
    if fp16.get("enabled") and not fp16.get("loss_scale"):
        raise failure(
            "Several optimizers and the dynamic loss scale of fp16 exclude each other: a "
            "step of one would change the scale of the gradients that wait for another. "
            "Use precision='bf16-mixed', or pass the strategy a fixed loss_scale."
        )


def stage_of(config: Mapping[str, Any]) -> int:
    zero = config.get("zero_optimization")
    if isinstance(zero, Mapping):
        return int(zero.get("stage") or 0)
    return int(bool(zero))


def on_nvme(config: Mapping[str, Any]) -> bool:
    """True if states or params reside on a drive, which optimizers of torch do not know."""
    zero = config.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return False
    blocks = (zero.get("offload_optimizer"), zero.get("offload_param"))
    return any(isinstance(block, Mapping) and block.get("device") == "nvme" for block in blocks)


def add_trainer(
    config: dict[str, Any], trainer: Any, engine_counts: bool, failure: Failure
) -> None:
    """Adds a Trainer's arguments to the config. `failure` makes the exception for a conflict."""
    if engine_counts:
        config["gradient_accumulation_steps"] = trainer.accumulate_grad_batches
    else:
        config["managed_gradient_accumulation"] = False
        check_batch_size(config, trainer, failure)
    limit, clipping = config.get("gradient_clipping"), trainer.gradient_clip_val
    if limit not in (None, "auto") and clipping not in (None, limit):
        raise failure(
            f"gradient_clipping of the config is {limit}, gradient_clip_val of the Trainer "
            f"{clipping}. Leave one of them out."
        )
    if clipping is not None:
        config["gradient_clipping"] = 0.0  # Lightning's hook clips, on shards


def check_batch_size(config: dict[str, Any], trainer: Any, failure: Any) -> None:
    """Takes `train_batch_size` out, which counts Lightning's accumulation; checks that it fits."""
    batch = config.pop("train_batch_size", None)
    micro = config.get("train_micro_batch_size_per_gpu")
    if batch in (None, "auto") or micro in (None, "auto"):
        return
    steps, ranks = trainer.accumulate_grad_batches, trainer.world_size
    if batch != micro * steps * ranks:
        raise failure(
            f"train_batch_size {batch} of the config is not train_micro_batch_size_per_gpu {micro} "
            f"x accumulate_grad_batches {steps} x {ranks} ranks. Leave train_batch_size out."
        )

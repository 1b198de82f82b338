# SPDX-License-Identifier: Apache-2.0
"""Names of DeepSpeed that Meron does not have, with what to use instead.

Each exists, so that imports and isinstance() work. A call raises UnsupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from meron import errors

AUTO_TP = (
    "Shard with zero_optimization stage 3, or use torch's tensor parallelism "
    "(torch.distributed.tensor.parallel) below it."
)
SEQUENCE = "Use torch's context parallelism, or shorter sequences with activation checkpointing."
INFERENCE = (
    "Call engine(x) or model.generate with the engine of initialize at stage 3, or serve the "
    "saved weights with an inference server."
)
MIXTURE = (
    "Use a mixture of transformers (Mixtral, Qwen MoE) or your own modules: their experts are "
    "sharded as all params are, and set_z3_leaf_modules names their blocks."
)
PIPELINE = (
    "Shard the whole model with zero_optimization stage 3, or use torch.distributed.pipelining."
)
ONE_BIT = "Use Adam or AdamW, with zero_quantized_gradients to send fewer bytes."
LAMB = "Use AdamW of the config, or pass an elementwise optimizer to initialize."
COMPRESSION = "Quantise the saved weights with the tools of your inference server."
PROFILER = "Use torch.profiler, or torch.utils.flop_counter.FlopCounterMode."
HYBRID = "Generate with the engine of initialize within zero.unwrap_model_for_generation."
TIMERS = "Set wall_clock_breakdown in the config, or use torch.profiler."
LAUNCH = "Start `deepspeed`, or `python -m deepspeed.launcher.runner`, on each node."
LOADER = "Pass training_data to initialize, which returns a loader, or use torch's DataLoader."
UNIVERSAL = (
    "Checkpoints of Meron load at any number of ranks as they are; `python -m meron.convert` reads "
    "those of DeepSpeed."
)
KERNELS = "Use torch.nn.functional.scaled_dot_product_attention, or the model's own layers."

# By module of DeepSpeed: names of functions (lower case) and classes, and what to use instead.
NAMES: dict[str, dict[str, str]] = {
    "": {
        "init_inference": INFERENCE,
        "default_inference_config": INFERENCE,
        "tp_model_init": AUTO_TP,
        "set_autotp_mode": AUTO_TP,
        "InferenceEngine": INFERENCE,
        "DeepSpeedInferenceConfig": INFERENCE,
        "DeepSpeedHybridEngine": HYBRID,
        "PipelineEngine": PIPELINE,
        "PipelineModule": PIPELINE,
        "DeepSpeedTransformerLayer": KERNELS,
        "DeepSpeedTransformerConfig": KERNELS,
        "replace_transformer_layer": INFERENCE,
    },
    "pipe": {"PipelineModule": PIPELINE, "LayerSpec": PIPELINE, "TiedLayerSpec": PIPELINE},
    "runtime.pipe": {"PipelineModule": PIPELINE, "LayerSpec": PIPELINE, "TiedLayerSpec": PIPELINE},
    "runtime.pipe.engine": {"PipelineEngine": PIPELINE},
    "runtime.pipe.module": {
        "PipelineModule": PIPELINE,
        "LayerSpec": PIPELINE,
        "TiedLayerSpec": PIPELINE,
    },
    "runtime.hybrid_engine": {"DeepSpeedHybridEngine": HYBRID},
    "runtime.sequence_parallel": {},
    "runtime.sequence_parallel.ulysses_sp": {
        "UlyssesSPAttentionHF": SEQUENCE,
        "UlyssesSPDataLoaderAdapter": SEQUENCE,
        "SequenceTiledCompute": SEQUENCE,
        "TiledMLP": SEQUENCE,
    },
    "sequence": {},
    "sequence.layer": {"DistributedAttention": SEQUENCE},
    "runtime.fp16.onebit": {
        "OnebitAdam": ONE_BIT,
        "OnebitLamb": ONE_BIT,
        "ZeroOneAdam": ONE_BIT,
    },
    "moe": {},
    "moe.layer": {"MoE": MIXTURE},
    "moe.utils": {
        "has_moe_layers": MIXTURE,
        "is_moe_param": MIXTURE,
        "split_params_into_different_moe_groups_for_optimizer": MIXTURE,
    },
    "module_inject": {"replace_transformer_layer": INFERENCE, "set_autotp_mode": AUTO_TP},
    "module_inject.layers": {
        "GatherReplacedLayerParams": AUTO_TP,
        "LinearAllreduce": AUTO_TP,
        "LinearLayer": AUTO_TP,
    },
    "inference": {},
    "inference.engine": {"InferenceEngine": INFERENCE},
    "inference.config": {"DeepSpeedInferenceConfig": INFERENCE},
    "ops.lamb": {"FusedLamb": LAMB},
    "ops.transformer": {
        "DeepSpeedTransformerLayer": KERNELS,
        "DeepSpeedTransformerConfig": KERNELS,
    },
    "ops.sparse_attention": {"SparseSelfAttention": KERNELS},
    "compression": {},
    "compression.compress": {
        "init_compression": COMPRESSION,
        "redundancy_clean": COMPRESSION,
    },
    "profiling": {},
    "profiling.flops_profiler": {"FlopsProfiler": PROFILER, "get_model_profile": PROFILER},
    "utils.timer": {"SynchronizedWallClockTimer": TIMERS, "ThroughputTimer": TIMERS},
    "launcher.launch": {"main": LAUNCH},
    "checkpoint.ds_to_universal": {"main": UNIVERSAL},
    "runtime.fp16.unfused_optimizer": {"FP16_UnfusedOptimizer": LAMB},
}


def refuse(name: str, advice: str) -> NoReturn:
    raise errors.UnsupportedError(
        f"Meron does not have: deepspeed.{name}", subject=name.rpartition(".")[2], advice=advice
    )


def refusing(module: str, name: str, advice: str) -> Any:
    """A class or a function `name` whose calls raise UnsupportedError."""
    full = f"{module}.{name}" if module else name
    if name[0].isupper():
        return type(name, (Refused,), {"_name": full, "_advice": advice, "__module__": __name__})
    return refusing_function(full, advice)


def refusing_function(full: str, advice: str) -> Callable[..., NoReturn]:
    def call(*_arguments: Any, **_named: Any) -> NoReturn:
        refuse(full, advice)

    call.__name__ = call.__qualname__ = full.rpartition(".")[2]
    call.__doc__ = f"Raises UnsupportedError. {advice}"
    return call


class RefusedType(type):
    """Of classes that Meron does not have: their methods and attributes raise as calls do."""

    _name: str
    _advice: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refusing_function(f"{cls._name}.{name}", cls._advice)


class Refused(metaclass=RefusedType):
    """A class that Meron does not have. No object is one."""

    _name = "Refused"
    _advice = ""

    def __init__(self, *_arguments: Any, **_named: Any) -> None:
        refuse(self._name, self._advice)


def names_of(module: str) -> dict[str, Any]:
    """The names of a module of DeepSpeed that Meron does not support. Their calls raise."""
    return {name: refusing(module, name, advice) for name, advice in NAMES[module].items()}

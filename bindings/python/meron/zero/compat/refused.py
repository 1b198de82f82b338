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
MONITOR = "Name the monitors in the config: tensorboard, wandb, comet or csv_monitor."
PROFILER = "Use torch.profiler, or torch.utils.flop_counter.FlopCounterMode."
HYBRID = "Generate with the engine of initialize within zero.unwrap_model_for_generation."
TIMERS = "Set wall_clock_breakdown in the config, or use torch.profiler."
LAUNCH = "Start `deepspeed`, or `python -m deepspeed.launcher.runner`, on each node."
CORES = "Start `deepspeed` with --bind_cores_to_rank."
LOADER = "Pass training_data to initialize, which returns a loader, or use torch's DataLoader."
UNIVERSAL = (
    "Checkpoints of Meron load at any number of ranks as they are; `python -m meron.convert` reads "
    "those of DeepSpeed."
)
DEEP_COMPILE = "Call engine.compile(), which compiles each module that owns params."
EFFICIENCY = "Sort, cut or drop samples in your own Dataset or Sampler."
FAST_FILES = "Write by torch.save, or by meron.io.AsyncIOHandle."
LORA = "Use PEFT, whose adapters train under every stage."
TUNER = "Compare plans with `meron plan`."
SPARSE = "Use dense embeddings: their gradients are sharded as all others are."
STAGE_3 = "Call deepspeed.initialize with zero_optimization stage 3."
KERNELS = "Use torch.nn.functional.scaled_dot_product_attention, or the model's own layers."

PIPES = ("PipelineModule", "LayerSpec", "TiedLayerSpec")
SCHEDULES = (
    *("PipeSchedule", "TrainSchedule", "InferenceSchedule", "DataParallelSchedule"),
    "PipeInstruction",
)
GATES = ("MOELayer", "TopKGate", "top1gating", "top2gating", "topkgating")
SPARSITIES = (
    *("SparsityConfig", "DenseSparsityConfig", "FixedSparsityConfig", "VariableSparsityConfig"),
    *("BigBirdSparsityConfig", "BSLongformerSparsityConfig", "LocalSlidingWindowSparsityConfig"),
)
SPLITS = ("LinearAllreduce", "LinearLayer", "EmbeddingLayer", "Normalize", "set_autotp_mode")
SHARDS = ("set_num_kv_heads", "set_n_embd", "set_num_attention_heads", "set_tp_grain_size")
FAST_GEN = (
    *("InferenceEngineV2", "RaggedInferenceEngineConfig", "DeepSpeedTPConfig"),
    *("build_hf_engine", "build_engine_from_ds_checkpoint"),
)
INDEXED = (
    *("MMapIndexedDataset", "MMapIndexedDatasetBuilder", "IndexedDataset", "make_builder"),
    *("make_dataset", "find_fit_int_dtype"),
)
RANDOM_LTD = (
    *("convert_to_random_ltd", "save_without_random_ltd", "remove_random_ltd_state_dict"),
)
WRITERS = ("FastFileWriter", "FastFileWriterConfig", "MockFileWriter", "PyFileWriter")
NODE_RUNNERS = (
    *("MultiNodeRunner", "PDSHRunner", "OpenMPIRunner", "MPICHRunner", "IMPIRunner"),
    *("SlurmRunner", "MVAPICHRunner"),
)
RESHAPING = (
    *("DeepSpeedCheckpoint", "ZeROCheckpoint", "SubparamShape", "model_3d_desc"),
    *("get_model_3d_descriptor", "reshape_meg_2d_parallel", "merge_state"),
)


def with_advice(advice: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, advice)


# By module of DeepSpeed: names of functions (lower case) and classes, and what to use instead.
NAMES: dict[str, dict[str, str]] = {
    "": {
        **with_advice(INFERENCE, "init_inference", "default_inference_config", "InferenceEngine"),
        **with_advice(INFERENCE, "DeepSpeedInferenceConfig", "replace_transformer_layer"),
        **with_advice(AUTO_TP, "tp_model_init", "set_autotp_mode"),
        **with_advice(HYBRID, "DeepSpeedHybridEngine"),
        **with_advice(PIPELINE, "PipelineEngine", "PipelineModule"),
        **with_advice(KERNELS, "DeepSpeedTransformerLayer", "DeepSpeedTransformerConfig"),
    },
    "autotuning": with_advice(TUNER, "Autotuner"),
    "checkpoint": with_advice(UNIVERSAL, *RESHAPING),
    "checkpoint.deepspeed_checkpoint": with_advice(UNIVERSAL, "DeepSpeedCheckpoint"),
    "compile": {},
    "compile.passes": with_advice(DEEP_COMPILE, "run_opt_passes"),
    "compile.passes.zero3_compile": with_advice(DEEP_COMPILE, "add_z3_gather_release"),
    "compile.passes.prefetch": with_advice(DEEP_COMPILE, "schedule_prefetch"),
    "compile.passes.selective_gather": with_advice(DEEP_COMPILE, "selective_gather"),
    "compile.passes.offload_adam_states": with_advice(
        DEEP_COMPILE, "move_opt_states", "move_opt_states_sync", "offload_adam_states_for_init"
    ),
    "compression": with_advice(COMPRESSION, "init_compression", "redundancy_clean"),
    "compression.compress": with_advice(
        COMPRESSION, "init_compression", "redundancy_clean", "student_initialization"
    ),
    "compression.helper": with_advice(COMPRESSION, "convert_conv1d_to_linear"),
    "compression.scheduler": with_advice(COMPRESSION, "compression_scheduler"),
    "compression.basic_layer": with_advice(
        COMPRESSION, "LinearLayer_Compress", "Embedding_Compress", "QuantAct"
    ),
    "inference": with_advice(INFERENCE, *FAST_GEN),
    "inference.engine": with_advice(INFERENCE, "InferenceEngine"),
    "inference.config": with_advice(INFERENCE, "DeepSpeedInferenceConfig", "DeepSpeedTPConfig"),
    "inference.v2": with_advice(INFERENCE, *FAST_GEN),
    "inference.v2.ragged": with_advice(INFERENCE, "DSStateManagerConfig", "RaggedBatchWrapper"),
    "io": with_advice(FAST_FILES, *WRITERS),
    "io.fast_file_writer": with_advice(FAST_FILES, "FastFileWriter", "FastFileWriterConfig"),
    "launcher.launch": with_advice(LAUNCH, "main"),
    "launcher.multinode_runner": with_advice(LAUNCH, *NODE_RUNNERS),
    "linear": with_advice(
        LORA, "OptimizedLinear", "LoRAConfig", "QuantizationConfig", "Init", "init_lora"
    ),
    "linear.config": with_advice(LORA, "LoRAConfig", "QuantizationConfig"),
    "linear.optimized_linear": with_advice(LORA, "OptimizedLinear", "LoRAOptimizedLinear"),
    "linear.quantization": with_advice(LORA, "QuantizedLinear", "QuantizedParameter"),
    "model_implementations": with_advice(INFERENCE, "DeepSpeedTransformerInference"),
    "module_inject": {
        **with_advice(INFERENCE, "replace_transformer_layer", "HFBertLayerPolicy", "DSPolicy"),
        **with_advice(AUTO_TP, *SPLITS, "ReplaceWithTensorSlicing"),
    },
    "module_inject.auto_tp": with_advice(AUTO_TP, "AutoTP"),
    "module_inject.layers": with_advice(AUTO_TP, *SPLITS, "GatherReplacedLayerParams"),
    "module_inject.tp_shard": with_advice(AUTO_TP, *SHARDS),
    "moe": {},
    "moe.experts": with_advice(MIXTURE, "Experts"),
    "moe.layer": with_advice(MIXTURE, "MoE"),
    "moe.mappings": with_advice(MIXTURE, "gather_tokens", "drop_tokens"),
    "moe.sharded_moe": with_advice(MIXTURE, *GATES),
    "monitor.config": with_advice(MONITOR, "get_monitor_config", "DeepSpeedMonitorConfig"),
    "ops.deepspeed4science": with_advice(KERNELS, "DS4Sci_EvoformerAttention"),
    "ops.fp_quantizer": with_advice(COMPRESSION, "FP_Quantize"),
    "ops.lamb": with_advice(LAMB, "FusedLamb"),
    "ops.lamb.fused_lamb": with_advice(LAMB, "FusedLamb"),
    "ops.quantizer": with_advice(COMPRESSION, "ds_quantizer"),
    "ops.sparse_attention": with_advice(
        KERNELS, "SparseSelfAttention", "BertSparseSelfAttention", "MatMul", "Softmax", *SPARSITIES
    ),
    "ops.sparse_attention.sparsity_config": with_advice(KERNELS, *SPARSITIES),
    "ops.sparse_attention.sparse_self_attention": with_advice(KERNELS, "SparseSelfAttention"),
    "ops.transformer": with_advice(
        KERNELS, "DeepSpeedTransformerLayer", "DeepSpeedTransformerConfig"
    ),
    "ops.transformer.inference": with_advice(
        INFERENCE, "DeepSpeedTransformerInference", "DeepSpeedInferenceConfig"
    ),
    "ops.transformer.inference.config": with_advice(INFERENCE, "DeepSpeedInferenceConfig"),
    "ops.transformer.inference.diffusers_attention": with_advice(
        INFERENCE, "DeepSpeedDiffusersAttention"
    ),
    "pipe": with_advice(PIPELINE, *PIPES),
    "profiling": {},
    "profiling.flops_profiler": with_advice(PROFILER, "FlopsProfiler", "get_model_profile"),
    "profiling.flops_profiler.profiler": with_advice(
        PROFILER, "FlopsProfiler", "get_model_profile"
    ),
    "runtime.data_pipeline": {},
    "runtime.data_pipeline.curriculum_scheduler": with_advice(EFFICIENCY, "CurriculumScheduler"),
    "runtime.data_pipeline.data_routing": {},
    "runtime.data_pipeline.data_routing.basic_layer": with_advice(
        EFFICIENCY, "RandomLayerTokenDrop"
    ),
    "runtime.data_pipeline.data_routing.helper": with_advice(EFFICIENCY, *RANDOM_LTD),
    "runtime.data_pipeline.data_sampling": {},
    "runtime.data_pipeline.data_sampling.data_analyzer": with_advice(
        EFFICIENCY, "DataAnalyzer", "DistributedDataAnalyzer"
    ),
    "runtime.data_pipeline.data_sampling.data_sampler": with_advice(
        EFFICIENCY, "DeepSpeedDataSampler"
    ),
    "runtime.data_pipeline.data_sampling.indexed_dataset": with_advice(EFFICIENCY, *INDEXED),
    "runtime.data_pipeline.data_sampling.variable_batch_size_and_lr": with_advice(
        EFFICIENCY,
        "batch_by_seqlens",
        "get_dataloader_and_lr_scheduler_for_variable_batch_size_deepspeed",
    ),
    "runtime.eigenvalue": with_advice(COMPRESSION, "Eigenvalue"),
    "runtime.fp16.onebit": with_advice(ONE_BIT, "OnebitAdam", "OnebitLamb", "ZeroOneAdam"),
    "runtime.fp16.unfused_optimizer": with_advice(LAMB, "FP16_UnfusedOptimizer"),
    "runtime.hybrid_engine": with_advice(HYBRID, "DeepSpeedHybridEngine"),
    "runtime.pipe": with_advice(PIPELINE, *PIPES),
    "runtime.pipe.engine": with_advice(PIPELINE, "PipelineEngine"),
    "runtime.pipe.module": with_advice(PIPELINE, *PIPES),
    "runtime.pipe.p2p": with_advice(PIPELINE, "send", "recv", "can_send_recv"),
    "runtime.pipe.schedule": with_advice(PIPELINE, *SCHEDULES),
    "runtime.progressive_layer_drop": with_advice(EFFICIENCY, "ProgressiveLayerDrop"),
    "runtime.sequence_parallel": {},
    "runtime.sequence_parallel.ulysses_sp": with_advice(
        SEQUENCE,
        "UlyssesSPAttentionHF",
        "UlyssesSPDataLoaderAdapter",
        "SequenceTiledCompute",
        "TiledMLP",
    ),
    "runtime.sparse_tensor": with_advice(SPARSE, "SparseTensor"),
    "runtime.state_dict_factory": with_advice(UNIVERSAL, "SDLoaderFactory"),
    "runtime.zero": with_advice(STAGE_3, "DeepSpeedZeRoOffload"),
    "runtime.zero.parameter_offload": with_advice(STAGE_3, "DeepSpeedZeRoOffload"),
    "sequence": {},
    "sequence.layer": with_advice(SEQUENCE, "DistributedAttention"),
    "utils.numa": with_advice(CORES, "get_numactl_cmd", "get_numa_cores"),
    "utils.timer": with_advice(TIMERS, "SynchronizedWallClockTimer", "ThroughputTimer"),
}

PAGE = "docs/integrations.md lists what Meron does not have."


def refuse(name: str, advice: str) -> NoReturn:
    raise errors.UnsupportedError(
        f"Meron does not have: deepspeed.{name}",
        subject=name.rpartition(".")[2],
        advice=f"{advice} {PAGE}",
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

# SPDX-License-Identifier: Apache-2.0
"""Every name that libraries and scripts read of DeepSpeed exists, name by name: modules, engine,
optimizer, params. Names of features that Meron does not have refuse calls in words."""

from __future__ import annotations

import importlib
import tempfile

import deepspeed
import torch
from refusals import check_fails

import meron

# By module: names that libraries and scripts use, besides those in names.py.
NAMES = {
    "": "initialize init_distributed DeepSpeedEngine DeepSpeedConfig __version__ "
    "add_config_arguments comm zero checkpointing get_accelerator log_dist logger OnDevice",
    "checkpoint": "DeepSpeedCheckpoint UNIVERSAL_CHECKPOINT_INFO get_model_ckpt_name_for_rank",
    "checkpoint.constants": "UNIVERSAL_CHECKPOINT_INFO PARAM_SHAPES DS_VERSION",
    "checkpoint.ds_to_universal": "main",
    "comm.comm": "init_distributed mpi_discovery P2POp ProcessGroup log_summary",
    "comm.reduce_op": "ReduceOp",
    "compile.passes": "zero3_compile prefetch selective_gather offload_adam_states",
    "compression.compress": "init_compression redundancy_clean",
    "inference": "RaggedInferenceEngineConfig DeepSpeedTPConfig",
    "io": "FastFileWriter FastFileWriterConfig MockFileWriter PyFileWriter",
    "moe.utils": "has_moe_layers is_moe_param is_moe_param_group configure_moe_param_groups "
    "split_params_into_different_moe_groups_for_optimizer",
    "ops": "__compatible_ops__",
    "ops.sparse_attention": "SparseSelfAttention FixedSparsityConfig VariableSparsityConfig",
    "runtime.data_pipeline.curriculum_scheduler": "CurriculumScheduler",
    "runtime.pipe.topology": "ProcessTopology PipeDataParallelTopology PipelineParallelGrid "
    "PipeModelDataParallelTopology",
    "runtime.zero.utils": "is_zero_param ZeRORuntimeException",
    "utils.torch": "required_torch_version",
    "utils.zero_to_torch": "main convert_zero_checkpoint_to_state_dict",
    "checkpointing": "configure checkpoint non_reentrant_checkpoint is_configured reset "
    "get_cuda_rng_tracker model_parallel_cuda_manual_seed",
    "elasticity": "compute_elastic_config elasticity_enabled ElasticityError",
    "env_report": "main cli_main",
    "git_version_info": "version git_hash git_branch",
    "launcher.runner": "main DEEPSPEED_ENVIRONMENT_NAME fetch_hostfile parse_resource_filter "
    "parse_inclusion_exclusion EXPORT_ENVS DLTS_HOSTFILE",
    "launcher.launch": "main",
    "ops.adam": "DeepSpeedCPUAdam FusedAdam",
    "ops.aio": "AsyncIOBuilder",
    "profiling.flops_profiler": "get_model_profile FlopsProfiler",
    "runtime.activation_checkpointing.checkpointing": "checkpoint configure",
    "runtime.bf16_optimizer": "BF16_Optimizer",
    "runtime.compiler": "is_compile_supported",
    "runtime.config": "DeepSpeedConfig DeepSpeedConfigError",
    "runtime.dataloader": "RepeatingLoader DeepSpeedDataLoader",
    "runtime.fp16.fused_optimizer": "FP16_Optimizer",
    "runtime.fp16.loss_scaler": "LossScaler DynamicLossScaler LossScalerBase CreateLossScaler "
    "INITIAL_LOSS_SCALE SCALE_WINDOW DELAYED_SHIFT CONSECUTIVE_HYSTERESIS MIN_LOSS_SCALE",
    "runtime.fp16.onebit": "OnebitAdam",
    "runtime.utils": "clip_grad_norm_ get_global_norm move_to_device see_memory_usage",
    "runtime.zero.config": "DeepSpeedZeroConfig ZeroStageEnum",
    "runtime.zero.mics": "MiCS_Init",
    "runtime.zero.offload_config": "DeepSpeedZeroOffloadParamConfig OffloadDeviceEnum "
    "DeepSpeedZeroOffloadOptimizerConfig OffloadStateTypeEnum",
    "runtime.zero.stage3": "DeepSpeedZeroOptimizer_Stage3 "
    "estimate_zero3_model_states_mem_needs_all_live estimate_zero3_model_states_mem_needs_all_cold",
    "runtime.zero.stage_1_and_2": "DeepSpeedZeroOptimizer "
    "estimate_zero2_model_states_mem_needs_all_live estimate_zero2_model_states_mem_needs_all_cold",
    "runtime.zero.tiling": "TiledLinear TiledLinearReturnBias",
    "utils.timer": "SynchronizedWallClockTimer ThroughputTimer",
    "utils.zero_to_fp32": "get_fp32_state_dict_from_zero_checkpoint get_model_state_file "
    "convert_zero_checkpoint_to_fp32_state_dict load_state_dict_from_zero_checkpoint",
    "utils": "safe_get_full_fp32_param safe_get_full_optimizer_state safe_get_full_grad "
    "safe_set_full_fp32_param safe_set_full_optimizer_state safe_set_full_grad "
    "safe_get_local_fp32_param safe_get_local_optimizer_state safe_get_local_grad "
    "safe_set_local_fp32_param safe_set_local_optimizer_state safe_set_local_grad "
    "safe_update_full_grad_vectorized set_z3_leaf_modules set_z3_leaf_modules_by_name "
    "set_z3_leaf_modules_by_suffix set_z3_leaf_module unset_z3_leaf_modules get_z3_leaf_modules "
    "z3_leaf_module z3_leaf_parameter logger log_dist",
    "zero": "Init MiCS_Init GatheredParameters register_external_parameter "
    "unregister_external_parameter unwrap_model_for_generation TiledLinear TiledLinearReturnBias",
}
ENGINE = (
    "module optimizer lr_scheduler device config training train eval backward step zero_grad "
    "set_gradient_accumulation_boundary is_gradient_accumulation_boundary get_global_grad_norm "
    "destroy no_sync compile save_checkpoint load_checkpoint zero_optimization_stage "
    "zero_gather_16bit_weights_on_model_save _zero3_consolidated_16bit_state_dict "
    "_consolidated_16bit_state_dict save_16bit_model offload_states reload_states scale "
    "was_step_applied get_lr set_train_batch_size set_train_micro_batch_size skipped_steps "
    "coalesce_grad_reduction empty_partition_cache module_state_dict global_steps micro_steps "
    "global_samples train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps "
    "gradient_clipping fp16_enabled bfloat16_enabled dynamic_loss_scale cur_scale local_rank "
    "global_rank world_size is_compiled training_dataloader zero_optimization loss_scale"
)
OPTIMIZER = (
    "overflow param_groups state defaults state_dict load_state_dict zero_grad step optimizer "
    "loss_scale cur_scale backward offload_states reload_states parameter_offload"
)
HOOKS = "module forward_hooks backward_hooks param_coordinator _register_deepspeed_module"
PARAM = (
    "ds_id ds_shape ds_numel ds_status ds_tensor ds_persist ds_active_sub_modules partition_numel "
    "all_gather partition all_gather_coalesced"
)


def check_modules() -> list[str]:
    missing = []
    for module, names in NAMES.items():
        full = f"deepspeed.{module}" if module else "deepspeed"
        try:
            found = importlib.import_module(full)
        except ImportError:
            missing.append(full)
            continue
        missing += [f"{full}.{name}" for name in names.split() if not there(found, name)]
    return missing


def there(module: object, name: str) -> bool:
    """Whether a module has a name, or says which package it needs for it."""
    try:
        getattr(module, name)
    except AttributeError as error:
        return "pip install pydantic" in str(error)
    return True


def check_objects() -> list[str]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    }
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
    missing = [f"engine.{name}" for name in ENGINE.split() if not hasattr(engine, name)]
    missing += [f"optimizer.{name}" for name in OPTIMIZER.split() if not hasattr(optimizer, name)]
    hooks = optimizer.parameter_offload
    missing += [f"hooks.{name}" for name in HOOKS.split() if not hasattr(hooks, name)]
    param = model[0].weight
    missing += [f"param.{name}" for name in PARAM.split() if not hasattr(param, name)]
    stage3 = importlib.import_module("deepspeed.runtime.zero.stage3")
    stage2 = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    assert isinstance(optimizer, stage3.DeepSpeedZeroOptimizer_Stage3)
    assert isinstance(optimizer, deepspeed.runtime.base_optimizer.DeepSpeedOptimizer)
    assert not isinstance(optimizer, stage2.DeepSpeedZeroOptimizer)
    assert not isinstance(torch.optim.SGD([torch.zeros(1)]), stage3.DeepSpeedZeroOptimizer_Stage3)
    with tempfile.TemporaryDirectory() as folder:
        engine.save_checkpoint(folder)
    engine.destroy()
    return missing


def check_refusals() -> None:
    from deepspeed.checkpoint import DeepSpeedCheckpoint
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.utils.timer import ThroughputTimer

    check_fails(
        meron.UnsupportedError,
        (lambda: DeepSpeedCheckpoint("."), "meron.convert"),
        (lambda: ThroughputTimer(1), "torch.profiler"),
        (lambda: DeepSpeedZeroOptimizer_Stage3(None), "deepspeed.initialize"),
    )


if __name__ == "__main__":
    missing = check_modules() + check_objects()
    assert not missing, missing
    check_refusals()
    print("done")

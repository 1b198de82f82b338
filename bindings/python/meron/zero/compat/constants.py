# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.constants: names of config keys and their defaults, as strings and numbers.

Defaults are Meron's where they differ from DeepSpeed's: GRADIENT_CLIPPING_DEFAULT is 0.
"""

from __future__ import annotations

import enum


class ZeroStageEnum(int, enum.Enum):
    """The stages of zero_optimization."""

    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3  # noqa: PIE796


ROUTE_TRAIN, ROUTE_EVAL, ROUTE_PREDICT, ROUTE_ENCODE = "train", "eval", "predict", "encode"

TRAIN_BATCH_SIZE = "train_batch_size"
TRAIN_BATCH_SIZE_DEFAULT = None
TRAIN_MICRO_BATCH_SIZE_PER_GPU = "train_micro_batch_size_per_gpu"
TRAIN_MICRO_BATCH_SIZE_PER_GPU_DEFAULT = None
GRADIENT_ACCUMULATION_STEPS = "gradient_accumulation_steps"
GRADIENT_ACCUMULATION_STEPS_DEFAULT = None
MANAGED_GRADIENT_ACCUMULATION = "managed_gradient_accumulation"
MANAGED_GRADIENT_ACCUMULATION_DEFAULT = True

OPTIMIZER, OPTIMIZER_PARAMS, OPTIMIZER_TYPE_DEFAULT = "optimizer", "params", None
SCHEDULER, SCHEDULER_PARAMS, SCHEDULER_TYPE_DEFAULT = "scheduler", "params", None
TYPE = "type"
MAX_GRAD_NORM = "max_grad_norm"
ADAM_OPTIMIZER, ADAMW_OPTIMIZER = "adam", "adamw"
ADAGRAD_OPTIMIZER, LION_OPTIMIZER = "adagrad", "lion"
LAMB_OPTIMIZER, MUON_OPTIMIZER = "lamb", "muon"
ONEBIT_ADAM_OPTIMIZER, ONEBIT_LAMB_OPTIMIZER = "onebitadam", "onebitlamb"
ZERO_ONE_ADAM_OPTIMIZER = "zerooneadam"
TORCH_ADAM_PARAM, ADAM_W_MODE, ADAM_W_MODE_DEFAULT = "torch_adam", "adam_w_mode", True

ZERO_OPTIMIZATION = "zero_optimization"
ZERO_ALLOW_UNTESTED_OPTIMIZER = "zero_allow_untested_optimizer"
ZERO_ALLOW_UNTESTED_OPTIMIZER_DEFAULT = False
ZERO_FORCE_DS_CPU_OPTIMIZER = "zero_force_ds_cpu_optimizer"
ZERO_FORCE_DS_CPU_OPTIMIZER_DEFAULT = True

FP16, BFLOAT16, BFLOAT16_OLD = "fp16", "bf16", "bfloat16"
CHECK_OVERFLOW = "check_overflow"
TORCH_AUTOCAST = "torch_autocast"
TORCH_AUTOCAST_ENABLED, TORCH_AUTOCAST_ENABLED_DEFAULT = "enabled", False
TORCH_AUTOCAST_DTYPE = "dtype"
TORCH_AUTOCAST_LOWER_PRECISION_SAFE_MODULES = "lower_precision_safe_modules"
DATA_TYPES = "data_types"
GRAD_ACCUM_DTYPE, GRAD_ACCUM_DTYPE_DEFAULT = "grad_accum_dtype", None
PARAM_DTYPE, PARAM_DTYPE_DEFAULT = "param_dtype", None
BUFFER_DTYPE, BUFFER_DTYPE_DEFAULT = "buffer_dtype", None

GRADIENT_CLIPPING, GRADIENT_CLIPPING_DEFAULT = "gradient_clipping", 0.0
COMMUNICATION_DATA_TYPE, COMMUNICATION_DATA_TYPE_DEFAULT = "communication_data_type", None
PRESCALE_GRADIENTS, PRESCALE_GRADIENTS_DEFAULT = "prescale_gradients", False
GRADIENT_PREDIVIDE_FACTOR, GRADIENT_PREDIVIDE_FACTOR_DEFAULT = "gradient_predivide_factor", 1.0
GRADIENT_ALLREDUCE_OP = "gradient_allreduce_op"
GRADIENT_ALLREDUCE_OP_MEAN, GRADIENT_ALLREDUCE_OP_SUM = "mean", "sum"
GRADIENT_ALLREDUCE_OP_DEFAULT = GRADIENT_ALLREDUCE_OP_MEAN
GRADIENT_ALLREDUCE_OP_SUPPORTED = (GRADIENT_ALLREDUCE_OP_MEAN, GRADIENT_ALLREDUCE_OP_SUM)

STEPS_PER_PRINT, STEPS_PER_PRINT_DEFAULT = "steps_per_print", None
DUMP_STATE, DUMP_STATE_DEFAULT = "dump_state", False
WALL_CLOCK_BREAKDOWN, WALL_CLOCK_BREAKDOWN_DEFAULT = "wall_clock_breakdown", False
MEMORY_BREAKDOWN, MEMORY_BREAKDOWN_DEFAULT = "memory_breakdown", False
DATALOADER_DROP_LAST, DATALOADER_DROP_LAST_DEFAULT = "dataloader_drop_last", False

CHECKPOINT = "checkpoint"
CHECKPOINT_TAG_VALIDATION = "tag_validation"
CHECKPOINT_TAG_VALIDATION_MODES = ["Warn", "Ignore", "Fail"]
CHECKPOINT_TAG_VALIDATION_DEFAULT = "Warn"
LOAD_UNIVERSAL_CHECKPOINT, LOAD_UNIVERSAL_CHECKPOINT_DEFAULT = "load_universal", False
USE_NODE_LOCAL_STORAGE_CHECKPOINT = "use_node_local_storage"
USE_NODE_LOCAL_STORAGE_CHECKPOINT_DEFAULT = False

DATA_PARALLEL_GROUP, GLOBAL_RANK = "data_parallel_group", "global_rank"
TORCH_DISTRIBUTED_DEFAULT_PORT = 29500

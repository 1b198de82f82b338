# SPDX-License-Identifier: Apache-2.0
"""deepspeed.checkpoint.constants and the names of files in deepspeed.checkpoint.utils.

The constants are keys and names in the files of DeepSpeed. A checkpoint of Meron has other files.
With "write_model_states" in the config, it also has one file with such a name.
"""

from __future__ import annotations

import os
from typing import Any, Union

PathLike = Union[str, "os.PathLike[str]"]

# ---- Keys in the files of the optimizer ----------------------------------------------------------

OPTIMIZER_STATE_DICT = "optimizer_state_dict"
FP32_GROUPS, FP32_FLAT_GROUPS = "fp32_groups", "fp32_flat_groups"
BASE_OPTIMIZER_STATE = "base_optimizer_state"
BASE_OPTIMIZER_STATE_STEP = "base_optimizer_state_step"
SINGLE_PARTITION_OF_FP32_GROUPS = "single_partition_of_fp32_groups"
PARAM_GROUPS, GROUP_PADDINGS = "param_groups", "group_paddings"
PARAM_ALIGNMENT_PADDINGS = "param_alignment_paddings"
PARTITION_COUNT, ZERO_STAGE = "partition_count", "zero_stage"
CLIP_GRAD, LOSS_SCALER = "clip_grad", "loss_scaler"
FP32_WEIGHT_KEY = "fp32"

# ---- Keys in the files of the module -------------------------------------------------------------

PARAM, PARAM_SHAPES, BUFFER_NAMES = "param", "param_shapes", "buffer_names"
FROZEN_PARAM_SHAPES, FROZEN_PARAM_FRAGMENTS = "frozen_param_shapes", "frozen_param_fragments"
DS_VERSION = "ds_version"

# ---- Names of files ------------------------------------------------------------------------------

MODEL_FILE_PREFIX, MODEL_FILE_SUFFIX = "mp_rank_", "_model_states.pt"
ZERO_FILE_PREFIX, OPTIM_FILE_SUFFIX = "zero_pp_rank_", "_optim_states.pt"
LAYER_FILE_PREFIX = "layer_"
BF16_ZERO_FILE_PREFIX = f"bf16_{ZERO_FILE_PREFIX}"
FP16_ZERO_FILE_PREFIX = f"fp16_{ZERO_FILE_PREFIX}"
CHECKPOINT_PARALLEL_DIMS = "checkpoint_parallel_dimensions"
CHECKPOINT_PP_DEGREE, CHECKPOINT_TP_DEGREE = "pp_degree", "tp_degree"

# ---- Keys of universal checkpoints ---------------------------------------------------------------

UNIVERSAL_CHECKPOINT_INFO = "universal_checkpoint_info"
UNIVERSAL_CHECKPOINT_VERSION_KEY = "universal_checkpoint_version"
UNIVERSAL_CHECKPOINT_VERSION_VALUE = 0.4
VOCAB_TENSOR = "vocab_tensor"
PADDED_VOCAB_SIZE, ORIGINAL_VOCAB_SIZE = "padded_vocab_size", "original_vocab_size"
PARAM_SLICE_MAPPINGS, CAT_DIM = "param_slice_mappings", "cat_dim"
PARAM_N_SUB_PARAMS, SUB_PARAM_SHAPE = "param_n_sub_params", "sub_param_shape"
SUB_PARAMS_SHAPE, SUB_PARAM_SHARD_WIDTHS = "sub_params_shape", "sub_param_shard_widths"
VOCABULARY_PARAMETER_PATTERNS = "vocabulary_parameter_patterns"
PIPELINE_REPLICATED_PARAMETER_PATTERNS = "pipeline_replicated_parameter_patterns"
PARAMETER_TO_AVERAGE_PATTERNS = "parameter_to_average_patterns"
PARAMETER_WITH_ROW_PARALLELISM_PATTERNS = "parameter_with_row_parallelism_patterns"
TP_REPLICATED_PARAMETER_PATTERNS = "tp_replicated_parameter_patterns"
PARAMETER_WITH_2_SUB_PARAMS_CAT_DIM_0 = "parameter_with_2_sub_params_cat_dim_0"
PARAMETER_WITH_SUB_PARAMS = "parameter_with_sub_params"


def constants() -> dict[str, Any]:
    """The names of deepspeed.checkpoint.constants."""
    return {name: value for name, value in globals().items() if name.isupper()}


def get_model_ckpt_name_for_rank(base_folder: PathLike, mp_rank_str: str) -> str:
    """The path of the file of a model-parallel rank, such as "00", that has the module."""
    return os.path.join(base_folder, f"{MODEL_FILE_PREFIX}{mp_rank_str}{MODEL_FILE_SUFFIX}")


def get_zero_ckpt_name_for_rank(base_folder: PathLike, dp_rank: int, mp_rank: int) -> str:
    """The path of the file of a rank's optimizer states."""
    name = f"{ZERO_FILE_PREFIX}{dp_rank}_{MODEL_FILE_PREFIX}{mp_rank:02d}{OPTIM_FILE_SUFFIX}"
    return os.path.join(base_folder, name)


def get_layer_ckpt_name_for_rank(base_folder: PathLike, layer_id: str, tp_rank: int) -> str:
    """The path of the file of a pipeline's layer."""
    return os.path.join(base_folder, f"{layer_id}-model_{tp_rank:02d}{MODEL_FILE_SUFFIX}")


FILE_NAMES = (
    "get_layer_ckpt_name_for_rank",
    "get_model_ckpt_name_for_rank",
    "get_zero_ckpt_name_for_rank",
)

# SPDX-License-Identifier: Apache-2.0
"""Configs of the kind that public repositories use, in f32 and for a short run.

Each has the blocks, keys and choices of the config that `like` names. `"auto"` is replaced as
Trainer does. Rates and lengths of schedules are those of a run of 20 steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Json = dict[str, Any]
STEPS = 20
F32: Json = {"fp16": {"enabled": False}, "bf16": {"enabled": False}}
PINNED: Json = {"device": "cpu", "pin_memory": True}


def adamw(params: Any) -> torch.optim.Optimizer:
    """The optimizer that Trainer passes if the config has none."""
    return torch.optim.AdamW(params, lr=5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def cosine(optimizer: torch.optim.Optimizer) -> Any:
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def cpu_adam(params: Any) -> torch.optim.Optimizer:
    """As DeepSpeed-Chat makes it for parameters on the host."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(params, lr=5e-3, betas=(0.9, 0.95))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Case:
    """A config, and what the script passes beside it.

    Attributes:
        like: the config that this one follows.
        clipping: the value of the key `gradient_clipping`, for the run that has it.
        table: the config without this key.
        optimizer, scheduler: what the script makes itself; None: the config has them, if any.
        decay: the script has two groups, with this weight decay and with none.
    """

    like: str
    clipping: float
    table: Json
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    scheduler: Callable[[Any], Any] | None = None
    decay: float | None = None

    def config(self, clipped: bool) -> Json:
        """The config with the key `gradient_clipping`, or without it."""
        table = copy.deepcopy({**F32, "steps_per_print": 10**9, **self.table})
        if clipped:
            table["gradient_clipping"] = self.clipping
        return table


CASES = {
    "transformers-zero2": Case(
        "transformers, tests/deepspeed/ds_config_zero2.json",
        0.5,
        {
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 5e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0},
            },
            "scheduler": {
                "type": "WarmupLR",
                "params": {"warmup_min_lr": 0, "warmup_max_lr": 5e-3, "warmup_num_steps": 8},
            },
            "zero_optimization": {
                "stage": 2,
                "offload_optimizer": PINNED,
                "allgather_partitions": True,
                "allgather_bucket_size": 2e8,
                "overlap_comm": True,
                "reduce_scatter": True,
                "reduce_bucket_size": 2e8,
                "contiguous_gradients": True,
            },
            "gradient_accumulation_steps": 1,
            "train_micro_batch_size_per_gpu": 2,
            "wall_clock_breakdown": False,
        },
    ),
    "transformers-zero3": Case(
        "transformers, tests/deepspeed/ds_config_zero3.json",
        0.5,
        {
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 5e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7},
            },
            "scheduler": {
                "type": "WarmupLR",
                "params": {"warmup_min_lr": 0, "warmup_max_lr": 5e-3, "warmup_num_steps": 5},
            },
            "zero_optimization": {
                "stage": 3,
                "offload_optimizer": PINNED,
                "offload_param": PINNED,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "sub_group_size": 1e9,
                "reduce_bucket_size": 1024,
                "stage3_prefetch_bucket_size": 1024,
                "stage3_param_persistence_threshold": 320,
                "stage3_max_live_parameters": 1e9,
                "stage3_max_reuse_distance": 1e9,
                "stage3_gather_16bit_weights_on_model_save": True,
            },
            "gradient_accumulation_steps": 2,
            "train_micro_batch_size_per_gpu": 2,
            "wall_clock_breakdown": False,
        },
    ),
    "llava-zero2": Case(
        "LLaVA, scripts/zero2.json, which lacks the key; optimizer and schedule of Trainer",
        0.0,
        {
            "train_micro_batch_size_per_gpu": 2,
            "train_batch_size": 8,
            "gradient_accumulation_steps": 2,
            "zero_optimization": {
                "stage": 2,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "sub_group_size": 1e9,
                "reduce_bucket_size": 1024,
            },
        },
        adamw,
        cosine,
    ),
    "llama-factory-zero0": Case(
        "LLaMA-Factory, examples/deepspeed/ds_z0_config.json; optimizer and schedule of Trainer",
        0.5,
        {
            "train_batch_size": 8,
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {
                "stage": 0,
                "allgather_partitions": True,
                "allgather_bucket_size": 5e8,
                "overlap_comm": False,
                "reduce_scatter": True,
                "reduce_bucket_size": 5e8,
                "contiguous_gradients": True,
                "round_robin_gradients": True,
            },
        },
        adamw,
        cosine,
    ),
    "deepspeed-chat-zero3": Case(
        "DeepSpeed-Chat, dschat/utils/ds_utils.py with offload; its groups and its optimizer",
        0.75,
        {
            "train_batch_size": 4,
            "train_micro_batch_size_per_gpu": 2,
            "zero_optimization": {
                "stage": 3,
                "offload_param": {"device": "cpu"},
                "offload_optimizer": {"device": "cpu"},
                "stage3_param_persistence_threshold": 1e4,
                "stage3_max_live_parameters": 3e7,
                "stage3_prefetch_bucket_size": 3e7,
                "memory_efficient_linear": False,
            },
            "prescale_gradients": False,
            "wall_clock_breakdown": False,
        },
        cpu_adam,
        cosine,
        0.1,
    ),
    "qanet-onecycle": Case(
        "DeepSpeedExamples, QANet-Pytorch/ds_bsz512_1cycle.json, which lacks the key",
        0.25,
        {
            "train_batch_size": 16,
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {
                "type": "Adam",
                "params": {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7},
            },
            "scheduler": {
                "type": "OneCycle",
                "params": {
                    "cycle_min_lr": 0.001,
                    "cycle_max_lr": 0.005,
                    "cycle_first_step_size": 8,
                    "cycle_second_step_size": 4,
                    "cycle_first_stair_count": 4,
                    "cycle_second_stair_count": 2,
                    "decay_step_size": 4,
                    "decay_lr_rate": 0.01,
                },
            },
        },
    ),
    "cifar-zero2": Case(
        "DeepSpeedExamples, cifar/ds_config.json",
        2.0,
        {
            "train_batch_size": 4,
            "optimizer": {
                "type": "Adam",
                "params": {"lr": 1e-3, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7},
            },
            "scheduler": {
                "type": "WarmupLR",
                "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-2, "warmup_num_steps": 10},
            },
            "prescale_gradients": False,
            "wall_clock_breakdown": False,
            "zero_optimization": {
                "stage": 2,
                "allgather_partitions": True,
                "reduce_scatter": True,
                "allgather_bucket_size": 50000000,
                "reduce_bucket_size": 50000000,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "cpu_offload": True,
            },
        },
    ),
    "determined-sgd": Case(
        "determined, the config of its tests of DeepSpeedTrial: SGD",
        0.5,
        {
            "train_batch_size": 4,
            "train_micro_batch_size_per_gpu": 2,
            "optimizer": {"type": "SGD", "params": {"lr": 0.1, "weight_decay": 3e-3}},
            "scheduler": {
                "type": "WarmupLR",
                "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.2, "warmup_num_steps": 6},
            },
            "prescale_gradients": False,
            "zero_optimization": {"stage": 0},
        },
    ),
    "xland-cosine": Case(
        "XLand-MiniGrid, the in-context baselines: a function of `zero_stage`; stage 3 here",
        0.5,
        {
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 1,
            "zero_optimization": {
                "stage": 3,
                "stage3_param_persistence_threshold": 1e5,
                "zero_quantized_weights": False,
                "stage3_max_live_parameters": 3e7,
                "stage3_prefetch_bucket_size": 3e7,
                "memory_efficient_linear": False,
            },
            "optimizer": {
                "type": "Adam",
                "params": {
                    "lr": 5e-3,
                    "betas": [0.9, 0.99],
                    "weight_decay": 0.01,
                    "adam_w_mode": False,
                },
            },
            "scheduler": {
                "type": "WarmupCosineLR",
                "params": {"total_num_steps": STEPS, "warmup_num_steps": 6},
            },
        },
    ),
    "torch-adam-decay": Case(
        "configs with torch_adam and WarmupDecayLR, as in several repositories of language models",
        0.5,
        {
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 5e-3, "torch_adam": True, "adam_w_mode": True},
            },
            "scheduler": {
                "type": "WarmupDecayLR",
                "params": {
                    "warmup_min_lr": 1e-6,
                    "warmup_max_lr": 5e-3,
                    "warmup_num_steps": 6,
                    "total_num_steps": 16,
                    "warmup_type": "linear",
                },
            },
            "zero_optimization": {
                "stage": 2,
                "allgather_partitions": True,
                "allgather_bucket_size": 2e8,
                "overlap_comm": True,
                "reduce_scatter": True,
                "reduce_bucket_size": 2e8,
                "contiguous_gradients": True,
            },
            "gradient_accumulation_steps": 1,
            "train_micro_batch_size_per_gpu": 2,
        },
    ),
    "megatron-offload": Case(
        "DeepSpeedExamples, Megatron-LM/scripts/ds_zero-offload_10B_config.json",
        0.5,
        {
            "train_batch_size": 12,
            "gradient_accumulation_steps": 3,
            "zero_optimization": {
                "stage": 2,
                "cpu_offload": True,
                "contiguous_gradients": True,
                "reduce_bucket_size": 50000000,
            },
            "optimizer": {"type": "Adam", "params": {"lr": 0.0015}},
            "wall_clock_breakdown": False,
        },
    ),
    "axolotl-zero1": Case(
        "axolotl, deepspeed_configs/zero1.json, which lacks the key",
        0.5,
        {
            "zero_optimization": {"stage": 1, "overlap_comm": True},
            "optimizer": {
                "type": "AdamW",
                "params": {"lr": 5e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
            },
            "gradient_accumulation_steps": 2,
            "train_batch_size": 8,
            "train_micro_batch_size_per_gpu": 2,
            "wall_clock_breakdown": False,
        },
    ),
}

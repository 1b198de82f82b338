# SPDX-License-Identifier: Apache-2.0
"""Arguments, a pretrained model and measures of the scripts that use TRL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tiny
import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState
from transformers import LlamaForCausalLM
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
STEPS = 4


def arguments(stage: int) -> dict[str, Any]:
    """Those of any trainer."""
    PartialState(backend="gloo")
    return {
        "deepspeed": {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "zero_optimization": {"stage": stage},
        },
        "use_cpu": True,
        "bf16": False,
        "accelerator_config": {"use_configured_state": True},
        "gradient_checkpointing": False,
        "max_steps": STEPS,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }


def pretrained(folder: Path) -> Path:
    """The folder, in which rank 0 has saved a model and its tokenizer."""
    PartialState(backend="gloo")
    if tiny.RANK == 0:
        torch.manual_seed(0)
        LlamaForCausalLM(tiny.llama()).save_pretrained(folder)
        tiny.tokenizer().save_pretrained(folder)
    PartialState().wait_for_everyone()
    return folder


def measured(trainer: Any, *more: str) -> dict[str, list[float]]:
    """Losses and norms of the steps, and further measures that the trainer logs in each."""
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(history) == STEPS, history
    named = {"losses": "loss", "norms": "grad_norm", **{name: name for name in more}}
    return {key: [float(entry[name]) for entry in history] for key, name in named.items()}


def end(trainer: Any) -> None:
    """Makes way for a trainer with another config, or for a model without an engine."""
    trainer.deepspeed.destroy()
    unset_hf_deepspeed_config()
    AcceleratorState._reset_state()
    GradientState._reset_state()

# SPDX-License-Identifier: Apache-2.0
"""The cases: a script, and the arguments of its function `main`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

HOME = Path(__file__).parent
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "accelerate, plugin from arguments": ("complete_example", {"kind": "arguments"}),
    "accelerate, plugin from a config": ("complete_example", {"kind": "config"}),
    "larger tokenizer, stage 2": ("clm_from_scratch", {"stage": 2, "tied": True}),
    "larger tokenizer, stage 3": ("clm_from_scratch", {"stage": 3, "tied": False}),
    "larger tokenizer, stage 3, tied": ("clm_from_scratch", {"stage": 3, "tied": True}),
    "LoRA, stage 2": ("sft_lora", {"stage": 2}),
    "LoRA, stage 3": ("sft_lora", {"stage": 3}),
    "DPO, stage 3": ("dpo", {"stage": 3, "before": False}),
    "DPO, precomputed reference, stage 2": ("dpo", {"stage": 2, "before": True}),
    "DPO, precomputed reference, stage 3": ("dpo", {"stage": 3, "before": True}),
    "sleep mode, stage 2": ("sleep_mode", {"stage": 2}),
    "sleep mode, stage 3": ("sleep_mode", {"stage": 3}),
    # The last, because Lightning's Trainer deletes WORLD_SIZE and other variables in the end.
    "GAN, stage 2": ("lightning_modules", {"module": "gan", "stage": 2}),
    "GAN, stage 3": ("lightning_modules", {"module": "gan", "stage": 3}),
    "two schedulers, stage 3": ("lightning_modules", {"module": "schedulers", "stage": 3}),
}
# The scripts of a line share processes, which import their libraries once.
TOGETHER = (
    ("complete_example", "clm_from_scratch", "sleep_mode"),
    ("sft_lora", "dpo"),
    ("lightning_modules",),
)

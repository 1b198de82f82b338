# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer with a LoRA of PEFT, which is saved and loaded beside the plain model."""

from __future__ import annotations

from pathlib import Path

import tiny
import torch
import tuning
from accelerate import PartialState
from datasets import Dataset
from peft import AutoPeftModelForCausalLM, LoraConfig
from safetensors.torch import load_file
from transformers import set_seed
from trl import SFTConfig, SFTTrainer


def main(folder: Path, stage: int) -> dict[str, list[float]]:
    base = tuning.pretrained(folder / f"base{stage}")
    out = folder / f"sft{stage}"
    set_seed(7)  # of the adapters
    trainer = SFTTrainer(
        str(base),
        SFTConfig(str(out), **tuning.arguments(stage), max_length=16, eval_strategy="no"),
        train_dataset=Dataset.from_dict({"text": tiny.texts(24)}),
        eval_dataset=Dataset.from_dict({"text": tiny.texts(6)}),
        peft_config=LoraConfig(
            r=4,
            lora_alpha=8,
            lora_dropout=0.0,
            target_modules="all-linear",
            modules_to_save=["embed_tokens"],
            task_type="CAUSAL_LM",
        ),
    )
    trainer.train()
    trainer.save_model()
    evaluated = trainer.evaluate()["eval_loss"]
    PartialState().wait_for_everyone()
    found = tuning.measured(trainer)
    found["evaluated"] = [evaluated]
    adapters = load_file(out / "adapter_model.safetensors")
    for kind in ("lora_A", "lora_B", "embed_tokens"):
        parts = [value.norm() for name, value in adapters.items() if kind in name]
        found[kind] = [torch.stack(parts).norm().item()]
    tuning.end(trainer)
    plain = AutoPeftModelForCausalLM.from_pretrained(out).merge_and_unload().eval()
    rows = torch.tensor(tiny.tokenizer()(tiny.texts(6))["input_ids"])
    with torch.no_grad():
        loss = plain(input_ids=rows, labels=rows).loss.item()
    assert abs(loss - evaluated) < 0.05, (loss, evaluated)
    return found

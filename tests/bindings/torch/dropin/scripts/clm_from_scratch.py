# SPDX-License-Identifier: Apache-2.0
"""transformers' run_clm without a pretrained model: Trainer, a config, and a larger tokenizer.

The parameters are counted by their addresses, and the embeddings grow to the tokenizer's size.
"""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import tiny
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState
from datasets import Dataset
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
ADDED = ("one", "two", "three", "four", "five")
BLOCK, STEPS = 16, 5


def arguments(folder: Path, stage: int) -> TrainingArguments:
    PartialState(backend="gloo")
    params = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    steps = {"warmup_num_steps": "auto", "total_num_steps": "auto"}
    rates = {"warmup_min_lr": "auto", "warmup_max_lr": "auto"}
    config = {
        "optimizer": {"type": "AdamW", "params": params},
        "scheduler": {"type": "WarmupDecayLR", "params": {**rates, **steps}},
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto",
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
    }
    return TrainingArguments(
        str(folder),
        deepspeed=config,
        use_cpu=True,
        accelerator_config={"use_configured_state": True},
        max_steps=STEPS,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        warmup_steps=1,
        weight_decay=0.1,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )


def blocks(count: int, reader: Any) -> Dataset:
    """The tokens of all texts, one after the other, in blocks of one length."""

    def group(examples: dict[str, Any]) -> dict[str, Any]:
        joined = {key: list(chain(*examples[key])) for key in examples}
        length = len(joined["input_ids"]) // BLOCK * BLOCK
        cut = {
            key: [value[i : i + BLOCK] for i in range(0, length, BLOCK)]
            for key, value in joined.items()
        }
        return {**cut, "labels": cut["input_ids"].copy()}

    plain = Dataset.from_dict({"text": tiny.texts(count, *ADDED)})
    tokens = plain.map(lambda each: reader(each["text"]), batched=True, remove_columns=["text"])
    return tokens.map(group, batched=True)


def main(folder: Path, stage: int, tied: bool) -> dict[str, list[float]]:
    out = folder / f"clm{stage}{tied}"
    chosen = arguments(out, stage)
    set_seed(chosen.seed)
    reader = tiny.tokenizer(*ADDED)
    model = AutoModelForCausalLM.from_config(tiny.llama(tie_word_embeddings=tied))
    # At stage 3 the addresses of parameters out of use are equal, so this counts less.
    count = sum({param.data_ptr(): param.numel() for param in model.parameters()}.values())
    if len(reader) > model.get_input_embeddings().weight.shape[0]:
        model.resize_token_embeddings(len(reader))
    trainer = Trainer(
        model,
        chosen,
        train_dataset=blocks(40, reader),
        eval_dataset=blocks(12, reader),
        processing_class=reader,
        data_collator=default_data_collator,
    )
    trained = trainer.train()
    trainer.save_model()
    measures = trainer.evaluate()
    PartialState().wait_for_everyone()
    saved = load_file(out / "model.safetensors")
    for name in ("model.embed_tokens.weight", *([] if tied else ["lm_head.weight"])):
        assert saved[name].shape == (len(reader), 16), (name, saved[name].shape)
    history = trainer.state.log_history
    found = {
        "losses": [entry["loss"] for entry in history if "loss" in entry],
        "norms": [float(entry["grad_norm"]) for entry in history if "grad_norm" in entry],
        "evaluated": [measures["eval_loss"], trained.training_loss],
        "embeddings": [saved["model.embed_tokens.weight"].norm().item()],
    }
    if stage < 3:
        found["count"] = [count]
    assert len(found["losses"]) == STEPS
    trainer.deepspeed.destroy()
    AcceleratorState._reset_state()
    GradientState._reset_state()
    return found

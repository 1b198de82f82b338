#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of transformers, by its Trainer, with a config of DeepSpeed. Nothing in it is of Meron.

    PYTHONPATH=$(python3 -m meron.zero.dropin) torchrun --nproc-per-node 2 train.py

A second run resumes from the last checkpoint, at any number of processes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="steps of the optimizer (40)")
    parser.add_argument("--save-steps", type=int, default=20, help="steps between checkpoints (20)")
    parser.add_argument("--stage", type=int, default=3, help="of zero_optimization: 0 to 3 (3)")
    parser.add_argument("--folder", type=Path, help="where to save; default is a temporary folder")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.gettempdir()) / "meron_09_trainer"

    # Without a GPU accelerate needs the name of the backend. With one, leave these lines out.
    on_host = {}
    if not torch.cuda.is_available():
        from accelerate import PartialState

        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        PartialState(backend="gloo")
        on_host = {"use_cpu": True, "accelerator_config": {"use_configured_state": True}}

    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
        "zero_optimization": {
            "stage": options.stage,
            "offload_optimizer": {"device": "cpu"},
            "stage3_gather_16bit_weights_on_model_save": True,
        },
    }
    arguments = TrainingArguments(
        str(folder),
        deepspeed=config,
        max_steps=options.steps,
        per_device_train_batch_size=8,
        learning_rate=2e-3,
        eval_strategy="steps",
        eval_steps=options.save_steps,
        save_steps=options.save_steps,
        logging_steps=5,
        report_to=[],
        disable_tqdm=True,
        **on_host,
    )
    torch.manual_seed(1)
    shape = {"vocab_size": 64, "n_positions": 32, "n_embd": 64, "n_layer": 2, "n_head": 4}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(**shape, **ends))
    data = [sequence(start) for start in range(512)]
    trainer = Trainer(model, arguments, train_dataset=data[:-32], eval_dataset=data[-32:])

    started = any(folder.glob("checkpoint-*"))
    trainer.train(resume_from_checkpoint=started)
    loss = trainer.evaluate()["eval_loss"]
    trainer.save_model(str(folder / "weights"))
    if trainer.is_world_process_zero():
        begin = "resumed" if started else "started"
        print(f"{begin}, {arguments.world_size} processes, {trainer.state.global_step} steps")
        print(f"loss of evaluation {loss:.4f}")
        weights = load_file(folder / "weights" / "model.safetensors")
        count = sum(tensor.numel() for tensor in weights.values())
        print(f"{count} elements of weights in {folder / 'weights'}")


def sequence(start: int) -> dict[str, torch.Tensor]:
    """Numbers that each grow by the same step: the model has to find it."""
    tokens = (start + torch.arange(16) * (1 + start % 5)) % 64
    return {"input_ids": tokens, "labels": tokens}


if __name__ == "__main__":
    main()

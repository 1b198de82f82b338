# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 of transformers, fine-tuned by its Trainer with a config of DeepSpeed, at some stages.

The script does not know which package `deepspeed` it has. The last line of rank 0 is JSON: for each
stage the milliseconds of every step, from the end of the one before, and the losses of the log.

With --floor there is no engine: each process trains alone, and its optimizer does nothing. That is
the time of forward, backward and Trainer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import torch
import transformers
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

SHAPE = {"vocab_size": 8192, "n_positions": 64, "n_embd": 384, "n_layer": 6, "n_head": 6}
CALM = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
FLOOR = "--floor" in sys.argv
LENGTH = 64  # of a sequence
WARM = 5  # steps that do not count
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


class Idle(torch.optim.Optimizer):
    """Changes nothing."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.0})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


class Clock(transformers.TrainerCallback):  # type: ignore[misc]
    """The milliseconds between the ends of steps."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_step_end(self, *_arguments: Any, **_named: Any) -> None:
        self.marks.append(time.perf_counter())

    def ms(self) -> list[float]:
        after = zip(self.marks[WARM:], self.marks[WARM + 1 :])
        return [1e3 * (end - begin) for begin, end in after]


def config(stage: int) -> dict[str, Any]:
    params = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": params},
        "zero_optimization": {"stage": stage},
        "steps_per_print": 1_000_000,
    }


def train(stage: int, steps: int, rows: int, folder: str) -> dict[str, Any]:
    torch.manual_seed(0)
    data = []
    for _ in range(256):
        tokens = torch.randint(2, SHAPE["vocab_size"], (LENGTH,))
        data.append({"input_ids": tokens, "labels": tokens})
    engine: dict[str, Any] = {}
    if not FLOOR:
        engine["deepspeed"] = config(stage)
        engine["accelerator_config"] = {"use_configured_state": True}
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        max_steps=WARM + steps + 1,
        per_device_train_batch_size=rows,
        learning_rate=1e-4,
        max_grad_norm=0.0 if FLOOR else 1.0,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **engine,
    )
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, **CALM, **ENDS))
    clock = Clock()
    optimizers = (Idle(model.parameters()), None) if FLOOR else (None, None)
    trainer = Trainer(
        model, arguments, train_dataset=data, callbacks=[clock], optimizers=optimizers
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if not FLOOR:
        trainer.deepspeed.destroy()
    AcceleratorState._reset_state()
    GradientState._reset_state()
    count = sum(getattr(p, "ds_numel", p.numel()) for p in model.parameters())
    return {"ms": clock.ms(), "losses": losses, "params": count}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", required=True, help="of ZeRO, by commas")
    parser.add_argument("--steps", type=int, required=True, help="that count, at each stage")
    parser.add_argument("--rows", type=int, required=True, help="of a rank's batch")
    parser.add_argument("--floor", action="store_true", help="without an engine")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    rank = 0
    if FLOOR:
        for name in LAUNCHED:
            os.environ.pop(name, None)
    else:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        rank = PartialState(backend="gloo").process_index
    with tempfile.TemporaryDirectory() as folder:
        found = {
            stage: train(int(stage), given.steps, given.rows, folder)
            for stage in given.stages.split(",")
        }
    if rank == 0:
        sys.stdout.write("\n" + json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

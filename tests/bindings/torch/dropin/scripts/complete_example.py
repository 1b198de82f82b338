# SPDX-License-Identifier: Apache-2.0
"""accelerate's complete example with a DeepSpeedPlugin, as its guide to DeepSpeed describes it.

Accumulates and clips gradients, saves accelerator's state and continues from it, evaluates, and
writes the model in the documented way. Then it trains one step more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny
import torch
from accelerate import Accelerator, DeepSpeedPlugin
from accelerate.state import AcceleratorState, GradientState
from accelerate.utils import DummyOptim, DummyScheduler, InitProcessGroupKwargs, set_seed
from transformers import AutoModelForCausalLM, default_data_collator, get_scheduler

ROWS, ACCUMULATED, STEPS, WARM, RATE, DECAY = 2, 2, 24, 2, 1e-2, 0.1


def plugin(kind: str) -> DeepSpeedPlugin:
    """With arguments; or with a config whose optimizer and scheduler `prepare` fills in."""
    if kind == "arguments":
        return DeepSpeedPlugin(
            zero_stage=3,
            gradient_accumulation_steps=ACCUMULATED,
            gradient_clipping=0.5,
            zero3_save_16bit_model=True,
        )
    return DeepSpeedPlugin(
        hf_ds_config={
            "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
            "scheduler": {
                "type": "WarmupDecayLR",
                "params": {
                    "warmup_min_lr": "auto",
                    "warmup_max_lr": "auto",
                    "warmup_num_steps": "auto",
                    "total_num_steps": "auto",
                },
            },
            "zero_optimization": {
                "stage": 3,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "reduce_bucket_size": "auto",
                "stage3_prefetch_bucket_size": "auto",
                "stage3_param_persistence_threshold": "auto",
                "stage3_gather_16bit_weights_on_model_save": "auto",
            },
            "gradient_accumulation_steps": ACCUMULATED,
            "gradient_clipping": 0.5,
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        },
        zero3_save_16bit_model=True,
    )


def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    kinds: dict[float, list[torch.nn.Parameter]] = {DECAY: [], 0.0: []}
    for name, param in model.named_parameters():
        kinds[0.0 if "norm" in name else DECAY].append(param)
    return [{"params": params, "weight_decay": decay} for decay, params in kinds.items()]


def data() -> list[dict[str, list[int]]]:
    rows = tiny.tokenizer()(tiny.texts(36))["input_ids"]
    return [{"input_ids": row, "labels": row} for row in rows]


class Run:
    """The model and what trains it, prepared."""

    def __init__(self, kind: str) -> None:
        gloo = InitProcessGroupKwargs(backend="gloo")
        self.accelerator = Accelerator(deepspeed_plugin=plugin(kind), kwargs_handlers=[gloo])
        set_seed(1)
        model = AutoModelForCausalLM.from_config(tiny.llama())
        rows = data()
        common = {"collate_fn": default_data_collator, "batch_size": ROWS}
        loader = torch.utils.data.DataLoader(rows[:24], shuffle=True, **common)
        others = torch.utils.data.DataLoader(rows[24:], **common)
        if kind == "arguments":
            optimizer = torch.optim.AdamW(groups(model), lr=RATE)
            scheduler = get_scheduler("linear", optimizer, WARM, STEPS)
        else:
            optimizer = DummyOptim(groups(model), lr=RATE)
            scheduler = DummyScheduler(optimizer, total_num_steps=STEPS, warmup_num_steps=WARM)
        prepared = self.accelerator.prepare(model, optimizer, loader, others, scheduler)
        self.model, self.optimizer, self.loader, self.others, self.scheduler = prepared
        self.norms: list[float] = []

    def epoch(self) -> list[float]:
        """The losses of the micro-batches, of all processes."""
        self.model.train()
        losses = []
        for batch in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = self.model(**batch).loss
                self.accelerator.backward(loss)
                if self.accelerator.sync_gradients:
                    norm = self.accelerator.clip_grad_norm_(self.model.parameters(), 0.5)
                    self.norms.append(float(norm))
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()
            losses.append(self.accelerator.reduce(loss.detach().clone(), "mean").item())
        return losses

    def evaluate(self) -> float:
        self.model.eval()
        losses = []
        for batch in self.others:
            with torch.no_grad():
                loss = self.model(**batch).loss
            losses.append(self.accelerator.gather_for_metrics(loss.repeat(ROWS)))
        return torch.cat(losses).mean().item()

    def save(self, folder: Path) -> None:
        """The model in the format of transformers."""
        self.accelerator.wait_for_everyone()
        self.accelerator.unwrap_model(self.model).save_pretrained(
            folder,
            is_main_process=self.accelerator.is_main_process,
            save_function=self.accelerator.save,
            state_dict=self.accelerator.get_state_dict(self.model),
        )
        self.accelerator.wait_for_everyone()


@torch.no_grad()
def plain_evaluation(folder: Path) -> float:
    """The evaluation by the saved model, in a process without an engine."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    rows = torch.tensor([row["input_ids"] for row in data()[24:]])
    return model(input_ids=rows, labels=rows).loss.item()


def main(folder: Path, kind: str) -> dict[str, list[float]]:
    run = Run(kind)
    first = run.epoch()
    run.accelerator.save_state(str(folder / kind / "epoch_0"))
    middle = run.evaluate()
    second = run.epoch()
    run.accelerator.load_state(str(folder / kind / "epoch_0"))
    assert abs(run.evaluate() - middle) < 1e-6  # of the loaded state
    again = run.epoch()
    evaluated = run.evaluate()
    run.save(folder / kind / "model")
    more = run.epoch()
    run.accelerator.free_memory()
    norms = run.norms
    del run
    AcceleratorState._reset_state()
    GradientState._reset_state()
    saved = plain_evaluation(folder / kind / "model")
    assert abs(saved - evaluated) < 1e-5, (saved, evaluated)
    losses = first + second + again + more
    return {"losses": losses, "norms": norms, "evaluated": [middle, evaluated]}

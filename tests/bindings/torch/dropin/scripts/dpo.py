# SPDX-License-Identifier: Apache-2.0
"""TRL's DPOTrainer: the reference is computed before the training, or by an engine of its own."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
import tuning
from accelerate import PartialState
from datasets import load_dataset
from transformers import set_seed
from trl import DPOConfig, DPOTrainer


def preferences(file: Path) -> Path:
    """Writes texts, on rank 0. A chosen text continues its prompt; a rejected one does not."""
    if tiny.RANK == 0:
        rows = []
        for good, bad in zip(tiny.texts(16), tiny.texts(32)[16:]):
            words = good.split()
            prompt, rest = " ".join(words[:4]), " ".join(words[4:])
            rejected = " ".join(reversed(bad.split()[5:]))
            rows.append({"prompt": prompt, "chosen": f" {rest}", "rejected": f" {rejected}"})
        file.write_text("\n".join(map(json.dumps, rows)))
    PartialState().wait_for_everyone()
    return file


def main(folder: Path, stage: int, before: bool) -> dict[str, list[float]]:
    home = folder / f"dpo{stage}{before}"
    base = tuning.pretrained(home / "base")
    file = preferences(home / "preferences.json")
    with PartialState().main_process_first():
        data = load_dataset("json", data_files=str(file), cache_dir=str(home / "cache"))["train"]
    set_seed(7)
    trainer = DPOTrainer(
        str(base),
        args=DPOConfig(
            str(home / "out"),
            **tuning.arguments(stage),
            beta=0.5,
            max_length=24,
            precompute_ref_log_probs=before,
        ),
        train_dataset=data,
    )
    trainer.train()
    trainer.save_model()
    found = tuning.measured(trainer, "rewards/margins", "logps/chosen")
    tuning.end(trainer)
    return found

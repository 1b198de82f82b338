# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer at the stages 0 to 3 on every rank: trains, evaluates, saves, resumes.

trainer.py FOLDER train     trains 4 steps at each stage, and saves after 2 and 4
trainer.py FOLDER resume    continues from the checkpoint of step 2, at another number of ranks
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.state import AcceleratorState, GradientState
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, Seq2SeqTrainer, Seq2SeqTrainingArguments

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
PartialState(backend="gloo")

FOLDER = Path(sys.argv[1])
RESUME = sys.argv[2] == "resume"
STEPS, RANKS = 4, PartialState().num_processes
BATCH = 6 // RANKS  # per process; 1, 2 and 3 processes make equal batches of all
SHAPE = {"vocab_size": 32, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
CALM = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def config(stage: int) -> dict[str, object]:
    params = {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "optimizer": {"type": "AdamW", "params": params},
        "zero_optimization": {
            "stage": stage,
            "offload_optimizer": {"device": "cpu"},
            "stage3_gather_16bit_weights_on_model_save": True,
        },
        "steps_per_print": 1000,
    }


def arguments(stage: int) -> Seq2SeqTrainingArguments:
    return Seq2SeqTrainingArguments(
        str(FOLDER / f"stage{stage}"),
        deepspeed=config(stage),
        use_cpu=True,
        accelerator_config={"use_configured_state": True},
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        per_device_eval_batch_size=2,
        learning_rate=1e-2,
        logging_steps=1,
        save_steps=2,
        report_to=[],
        disable_tqdm=True,
        predict_with_generate=True,
        generation_max_length=10,
    )


def train(stage: int) -> tuple[list[float], dict[str, float], dict[str, torch.Tensor]]:
    """The losses of the steps, the measures of an evaluation, and the weights that were saved."""
    torch.manual_seed(0)
    data = [{"input_ids": (x := torch.randint(2, 32, (8,))), "labels": x} for _ in range(48)]
    chosen = arguments(stage)
    model = GPT2LMHeadModel(GPT2Config(**SHAPE, **ENDS, **CALM))
    trainer = Seq2SeqTrainer(
        model,
        chosen,
        train_dataset=data,
        eval_dataset=data[:12],
        compute_metrics=lambda found: {"length": float(found.predictions.shape[1])},
    )
    trainer.train(resume_from_checkpoint=RESUME)
    assert trainer.deepspeed.zero_optimization_stage() == stage
    measures = trainer.evaluate()
    trainer.save_model(str(FOLDER / f"weights{stage}"))
    PartialState().wait_for_everyone()
    weights = load_file(FOLDER / f"weights{stage}" / "model.safetensors")
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    trainer.deepspeed.destroy()
    AcceleratorState._reset_state()
    GradientState._reset_state()
    return losses, measures, weights


def main() -> None:
    for stage in range(4):
        if RESUME and PartialState().is_main_process:
            shutil.rmtree(FOLDER / f"stage{stage}" / f"checkpoint-{STEPS}")
            # transformers 4 continues with the checkpoint's batch size per process.
            file = FOLDER / f"stage{stage}" / f"checkpoint-{STEPS // 2}" / "trainer_state.json"
            file.write_text(json.dumps({**json.loads(file.read_text()), "train_batch_size": BATCH}))
        PartialState().wait_for_everyone()
        losses, measures, weights = train(stage)
        assert len(losses) == STEPS and measures["eval_length"] > 8
        first = FOLDER / "first.json"
        if not RESUME and stage == 0:
            if PartialState().is_main_process:
                first.write_text(json.dumps([losses, measures["eval_loss"]]))
            PartialState().wait_for_everyone()
        expected, evaluated = json.loads(first.read_text())
        assert max(abs(a - b) for a, b in zip(losses, expected)) < 1e-5, (stage, losses, expected)
        assert abs(measures["eval_loss"] - evaluated) < 1e-5, (stage, measures, evaluated)
        reference = load_file(FOLDER / "weights0" / "model.safetensors")
        # As with DeepSpeed, a tied tensor is written twice below stage 3.
        assert weights.keys() - reference.keys() == set()
        assert reference.keys() - weights.keys() <= {"lm_head.weight"}
        for name, value in weights.items():
            assert torch.allclose(value, reference[name], atol=1e-4), (stage, name)
    sys.stdout.write(f"rank {PartialState().process_index} done\n")


if __name__ == "__main__":
    main()

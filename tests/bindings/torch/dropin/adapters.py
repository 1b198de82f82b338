# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer at stage 3, with all weights and with PEFT's LoRA, on every rank.

adapters.py FOLDER full    trains all weights
adapters.py FOLDER lora    trains adapters, with a copy of the head that is trained too

The saved weights are unsharded, and give the same results in an unsharded model.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from meron import zero

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
STATE = PartialState(backend="gloo")
FOLDER = Path(sys.argv[1])
LORA = sys.argv[2] == "lora"
STEPS, BATCH = 3, 2 // STATE.num_processes
LETTERS = "abcdefghijklmnop"
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
SHAPE = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def tokenizer() -> PreTrainedTokenizerFast:
    """A word is a letter."""
    words = {word: number for number, word in enumerate([*SPECIAL.values(), *LETTERS])}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, **SPECIAL)


def adapters() -> Any:
    if not LORA:
        return None
    from peft import LoraConfig

    return LoraConfig(r=2, lora_dropout=0.0, target_modules=["q_proj"], modules_to_save=["lm_head"])


def main() -> None:
    reader = tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=len(reader), **SHAPE, **HEADS, **IDS)
    start = LlamaForCausalLM(config)
    if STATE.is_main_process:
        start.save_pretrained(FOLDER / "base")
    STATE.wait_for_everyone()
    texts = [" ".join(LETTERS[i % 16] for i in range(begin, begin + 6)) for begin in range(24)]
    arguments = SFTConfig(
        str(FOLDER / "out"),
        deepspeed={
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "zero_optimization": {"stage": 3},
        },
        use_cpu=True,
        bf16=False,
        accelerator_config={"use_configured_state": True},
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        max_length=16,
    )
    trainer = SFTTrainer(
        LlamaForCausalLM.from_pretrained(FOLDER / "base"),
        arguments,
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=reader,
        peft_config=adapters(),
    )
    trainer.train()
    trainer.save_model(str(FOLDER / "saved"))
    STATE.wait_for_everyone()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == STEPS and losses[-1] < losses[0], losses
    sharded = {name: hasattr(param, "ds_id") for name, param in trainer.model.named_parameters()}
    assert all(sharded.values()), sharded
    (check_adapters if LORA else check_weights)(trainer, start)
    sys.stdout.write(f"rank {STATE.process_index} done\n")


def check_weights(trainer: Any, start: LlamaForCausalLM) -> None:
    """All weights are saved full, and have changed."""
    saved = load_file(FOLDER / "saved" / "model.safetensors")
    before = start.state_dict()
    assert saved.keys() == before.keys()
    full = zero.full_state_dict(trainer.accelerator.unwrap_model(trainer.model))
    for name, value in saved.items():
        assert value.shape == before[name].shape and not torch.equal(value, before[name]), name
        assert torch.equal(value, full[name]), name


def check_adapters(trainer: Any, start: LlamaForCausalLM) -> None:
    """Adapters and the trained head are saved full; a plain model with them computes the same."""
    from peft import PeftModel

    saved = load_file(FOLDER / "saved" / "adapter_model.safetensors")
    shapes = {name: tuple(value.shape) for name, value in saved.items()}
    assert sum("lora_A" in name for name in shapes) == 2, shapes
    assert all(shape == (2, 16) for name, shape in shapes.items() if "lora_A" in name), shapes
    assert all(value.any() for name, value in saved.items() if "lora_B" in name)
    (head,) = (value for name, value in saved.items() if "lm_head" in name)
    assert not torch.equal(head, start.lm_head.weight)
    full = zero.full_state_dict(trainer.accelerator.unwrap_model(trainer.model))
    assert torch.equal(
        full["base_model.model.model.embed_tokens.weight"], start.model.embed_tokens.weight
    )
    x = torch.arange(8).view(1, 8) + 4
    trainer.model.eval()
    with torch.no_grad():
        sharded = trainer.model(input_ids=x).logits
    del trainer.args.hf_deepspeed_config  # no config of stage 3 is active any more
    plain = PeftModel.from_pretrained(start, str(FOLDER / "saved")).eval()
    with torch.no_grad():
        assert torch.allclose(sharded, plain(input_ids=x).logits, atol=1e-6)


if __name__ == "__main__":
    main()

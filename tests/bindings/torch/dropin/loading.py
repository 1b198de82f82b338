# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` while a config of stage 3 is active, as after TrainingArguments(deepspeed=...).

transformers builds the model within zero.Init then, and fills it afterwards.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import transformers
from accelerate import PartialState
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

import meron.torch.state_dict as saving
from meron import zero

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
STATE = PartialState(backend="gloo")
FOLDER = Path(sys.argv[1])
SHAPE = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}


def main() -> None:
    torch.manual_seed(0)
    plain = LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS))
    if STATE.is_main_process:
        plain.save_pretrained(FOLDER)
    STATE.wait_for_everyone()
    expected = {name: value.clone() for name, value in plain.state_dict().items()}
    # The config is active for as long as this object lives.
    active = TrainingArguments(
        str(FOLDER / "out"),
        deepspeed={"train_batch_size": "auto", "zero_optimization": {"stage": 3}},
        use_cpu=True,
        accelerator_config={"use_configured_state": True},
    )
    gathered: list[int] = []
    value_of = saving.exact_param
    saving.exact_param = lambda param: gathered.append(param.ds_id) or value_of(param)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(FOLDER)
        torch.manual_seed(STATE.process_index)  # rank 0's initialisation counts
        classifier = AutoModelForSequenceClassification.from_pretrained(FOLDER, num_labels=3)
    finally:
        saving.exact_param = value_of
    assert not gathered, f"from_pretrained gathered {len(gathered)} params for state dicts"
    assert all(
        hasattr(param, "ds_id") for param in [*loaded.parameters(), *classifier.parameters()]
    )
    for model in (loaded, classifier):
        state = zero.full_state_dict(model)
        found = [name for name in expected if name in state]
        assert len(found) >= len(expected) - 1
        for name in found:
            assert torch.equal(state[name], expected[name]), name
    head = zero.full_state_dict(classifier)["score.weight"]
    assert head.shape == (3, 16) and 0.01 < head.std() < 0.03  # initializer_range is 0.02
    check_equal(head)
    check_biases(expected)
    check_other_parts()
    check_tied()
    assert active.deepspeed is not None
    sys.stdout.write(f"rank {STATE.process_index} done\n")


def check_equal(value: torch.Tensor) -> None:
    """All ranks have rank 0's bits."""
    first = value.clone()
    torch.distributed.broadcast(first, 0)
    assert torch.equal(first, value)


def check_biases(expected: dict[str, torch.Tensor]) -> None:
    """Modules whose weights are in the files, and whose biases are not."""
    model = AutoModelForCausalLM.from_pretrained(FOLDER, attention_bias=True)
    state = zero.full_state_dict(model)
    biases = [name for name in state if name not in expected]
    assert len(biases) == 8 and all(name.endswith("proj.bias") for name in biases)
    for name, value in state.items():
        wanted = expected.get(name)
        assert torch.equal(value, torch.zeros_like(value) if wanted is None else wanted), name


def check_other_parts() -> None:
    """GPT-2's attention, which lacks a bias, initialises the weight of another part of it too."""
    folder = FOLDER / "gpt2"
    plain = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    )
    state = {name: value + 1 for name, value in plain.state_dict().items()}
    missing = "transformer.h.0.attn.c_attn.bias"
    del state[missing]
    if STATE.is_main_process:
        plain.save_pretrained(folder, state_dict=dict(state))
    STATE.wait_for_everyone()
    found = zero.full_state_dict(AutoModelForCausalLM.from_pretrained(folder))
    assert not found.pop(missing).any()
    for name, value in found.items():
        check_equal(value)
        if STATE.is_main_process:
            assert torch.equal(value, state[name]), name


def check_tied() -> None:
    """Files that have both of two tied params: transformers 5 ties them if they are equal."""
    folder = FOLDER / "tied"
    plain = GPT2LMHeadModel(
        GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    )
    for equal in (True, False) if transformers.__version__ >= "5" else (True,):
        state = {name: value.clone() for name, value in plain.state_dict().items()}
        state["lm_head.weight"] += not equal
        if STATE.is_main_process:
            plain.save_pretrained(folder, state_dict=dict(state))
        STATE.wait_for_everyone()
        model = AutoModelForCausalLM.from_pretrained(folder)
        embedding, head = model.transformer.wte.weight, model.lm_head.weight
        assert (embedding is head) == equal
        found = zero.full_state_dict(model)
        for name in ("transformer.wte.weight", "lm_head.weight"):
            check_equal(found[name])
            assert not STATE.is_main_process or torch.equal(found[name], state[name]), name
        STATE.wait_for_everyone()


if __name__ == "__main__":
    main()

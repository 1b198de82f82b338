# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained` while a config of stage 3 is active, as after TrainingArguments(deepspeed=...).

transformers builds the model within zero.Init then, and fills it afterwards.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

import meron.torch.state_dict as saving

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
        state = model.state_dict()
        found = [name for name in expected if name in state]
        assert len(found) >= len(expected) - 1
        for name in found:
            assert torch.equal(state[name], expected[name]), name
    head = classifier.state_dict()["score.weight"]
    assert head.shape == (3, 16) and 0 < head.std() < 1
    first = head.clone()
    torch.distributed.broadcast(first, 0)
    assert torch.equal(first, head)
    assert active.deepspeed is not None
    sys.stdout.write(f"rank {STATE.process_index} done\n")


if __name__ == "__main__":
    main()

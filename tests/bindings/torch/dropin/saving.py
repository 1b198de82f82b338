# SPDX-License-Identifier: Apache-2.0
"""accelerate's documented way to save a model at stage 3: rank 0 has all weights, the others None.

save_pretrained then calls state_dict() of the model on the other ranks, which must be local.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DeepSpeedPlugin, DistributedType, InitProcessGroupKwargs
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

import meron.zero

os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
FOLDER = Path(sys.argv[1])
CONFIG = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100},
}


def step(accelerator: Accelerator, model: Any, optimizer: Any) -> float:
    tokens = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(1))
    loss = model(input_ids=tokens, labels=tokens).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(
        kwargs_handlers=[InitProcessGroupKwargs(backend="gloo")],
        deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=CONFIG),
    )
    assert accelerator.num_processes == 2
    assert accelerator.distributed_type == DistributedType.DEEPSPEED
    sizes = {"vocab_size": 64, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    plain = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))
    model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), lr=1e-2))
    losses = [step(accelerator, model, optimizer)]
    for folder in (FOLDER / "one", FOLDER / "two"):
        accelerator.wait_for_everyone()
        accelerator.unwrap_model(model).save_pretrained(
            folder,
            is_main_process=accelerator.is_main_process,
            save_function=accelerator.save,
            state_dict=accelerator.get_state_dict(model),
        )
        losses.append(step(accelerator, model, optimizer))  # ranks are in step
    assert losses[2] < losses[1] < losses[0]
    accelerator.wait_for_everyone()
    values = meron.zero.full_state_dict(accelerator.unwrap_model(model))
    accelerator.save_state(str(FOLDER / "state"))
    saved = [load_file(FOLDER / name / "model.safetensors") for name in ("one", "two")]
    for state in saved:
        assert {*values} - {*state} == {"lm_head.weight"}  # it is tied
        assert all(value.shape == values[name].shape for name, value in state.items())
    assert not torch.equal(saved[0]["transformer.wte.weight"], saved[1]["transformer.wte.weight"])
    try:  # on one rank, without the weights
        if accelerator.is_main_process:
            accelerator.unwrap_model(model).save_pretrained(FOLDER / "wrong")
    except meron.StateError as error:
        assert "full_state_dict" in str(error), error
    else:
        assert not accelerator.is_main_process, "a file without values was written"
    step(accelerator, model, optimizer)
    sys.stdout.write(f"rank {accelerator.process_index} done\n")


main()

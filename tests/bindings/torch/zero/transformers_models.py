# SPDX-License-Identifier: Apache-2.0
"""from_pretrained of transformers within zero.Init."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import transformers

from meron import zero
from meron.torch.sharding import unit_of
from model import RANK, config, run_cases


def case_models_of_transformers_load() -> None:
    transformers.logging.set_verbosity_error()
    folder = Path(os.environ["MEETING"]).parent / "models"
    sizes = {"vocab_size": 19, "num_hidden_layers": 2, "num_attention_heads": 2}
    kinds: list[tuple[str, Any]] = [
        ("Llama", {"hidden_size": 16, "intermediate_size": 24, "tie_word_embeddings": True}),
        ("GPT2", {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 19}),
        ("Bert", {"hidden_size": 16, "intermediate_size": 24}),
    ]
    for kind, options in kinds:
        options = options if kind == "GPT2" else {**sizes, **options}
        path = folder / kind
        if RANK == 0:
            torch.manual_seed(0)
            chosen = getattr(transformers, f"{kind}Config")(**options)
            getattr(transformers, f"{kind}Model")(chosen).save_pretrained(path)
        zero.comm.barrier()
        with zero.Init(config_dict_or_path=config()):
            model = transformers.AutoModelForSequenceClassification.from_pretrained(path)
        assert all(unit_of(param) is not None for param in model.parameters())
        state = model.state_dict()
        plain = transformers.AutoModelForSequenceClassification.from_pretrained(path)
        fresh = [name for name in state if not torch.equal(state[name], plain.state_dict()[name])]
        assert all(name.startswith(("score", "classifier")) for name in fresh), fresh


if __name__ == "__main__":
    run_cases(sys.modules[__name__])

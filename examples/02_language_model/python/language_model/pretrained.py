# SPDX-License-Identifier: Apache-2.0
"""Starting from published weights, and publishing the result, in Hugging Face's layout."""

from __future__ import annotations

import meron
from common.command_line import BadInput

from .train import Trainer

# Published files name tensors as transformers names those of GPT-2, and this program by its layers.
# GPT-2's matrices are inputs x outputs too.
BLOCK_NAMES = {
    "w1": "mlp.c_fc.weight",
    "b1": "mlp.c_fc.bias",
    "w2": "mlp.c_proj.weight",
    "b2": "mlp.c_proj.bias",
}


def names(blocks: int) -> dict[str, str]:
    """The published name of each param of a model of so many blocks."""
    head = blocks + 1
    mapping = {"layers.0.bytes": "transformer.wte.weight"}
    for layer in range(1, head):
        for here, published in BLOCK_NAMES.items():
            mapping[f"layers.{layer}.{here}"] = f"transformer.h.{layer - 1}.{published}"
    mapping[f"layers.{head}.w"] = "lm_head.weight"
    mapping[f"layers.{head}.b"] = "lm_head.bias"
    return mapping


def start_from(trainer: Trainer) -> str:
    """Loads the weights of --from, at any number of ranks and under any plan.

    The optimizer starts anew. Returns what was loaded. Collective. Raises BadInput on all ranks if
    there is nothing to start from.
    """
    folder = trainer.options.published
    mapping = names(trainer.model.blocks)
    try:
        # A published model has no states of an optimizer.
        trainer.context.load(folder, values_only=True, mapping=mapping).release()
    except meron.Error as error:
        raise BadInput(f"--from {folder}: {error}") from error
    return f"started from the weights of {folder}"


def publish(trainer: Trainer) -> None:
    """Publishes the weights in the directory of --export. Collective."""
    mapping = names(trainer.model.blocks)
    trainer.context.export(trainer.options.export, mapping=mapping, overwrite=True)

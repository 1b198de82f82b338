# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer and Fabric on Meron.

    import meron.lightning
    from lightning.pytorch import Trainer

    trainer = Trainer(strategy="meron_stage_3", accelerator="cpu", devices=2)

The import registers eight names for `strategy`, with Trainers and Fabric: meron, meron_stage_1,
_1_offload, _2, _2_offload, _3, _3_offload, _3_offload_nvme. docs/lightning.md is the guide.
"""

from __future__ import annotations

from typing import Any

from meron import _needs_torch  # noqa: F401 - says so if PyTorch is missing
from meron.lightning.consolidate import (
    convert_zero_checkpoint_to_fp32_state_dict,
    hook_loads,
    load_from_checkpoint,
)
from meron.lightning.environment import environment_class
from meron.lightning.fabric import fabric_strategy
from meron.lightning.guests import grad_norm
from meron.lightning.precision import fabric_precision, trainer_precision
from meron.lightning.trainer import trainer_strategy
from meron.lightning.trees import in_use, tree

__all__ = [
    "convert_zero_checkpoint_to_fp32_state_dict",
    "environment_class",
    "fabric_precision",
    "fabric_strategy",
    "grad_norm",
    "load_from_checkpoint",
    "register",
    "trainer_precision",
    "trainer_strategy",
]

# Classes of the tree in use, made at their first use.
CLASSES = {
    "MeronEnvironment": environment_class,
    "MeronStrategy": trainer_strategy,
    "MeronPrecision": trainer_precision,
    "MeronFabricStrategy": fabric_strategy,
    "MeronFabricPrecision": fabric_precision,
}


def register(name: str | None = None) -> list[str]:
    """Registers the strategies with a tree: "lightning" or "pytorch_lightning". Its modules'
    `load_from_checkpoint` then takes directories of checkpoints too.

    The import of this module does so with the tree that the process has imported, or with all that
    are installed if it has imported none.

    Returns the trees. Raises ImportError if none is installed, or if one is older than 2.5.
    """
    names = in_use() if name is None else [name]
    for each in names or ["lightning"]:
        found = tree(each)
        trainer_strategy(each).register_strategies(found.get("pl.strategies.StrategyRegistry"))
        hook_loads(found)
        fabric_strategy(each).register_strategies(found.get("fabric.strategies.STRATEGY_REGISTRY"))
    return names


def __getattr__(name: str) -> Any:
    if name in CLASSES:
        return CLASSES[name]((in_use() or ["lightning"])[0])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


register()

# SPDX-License-Identifier: Apache-2.0
"""Tiers of the entries of a config's plan, if its model computes on a device. Pure data.

DeepSpeed keeps everything on the accelerator that is not offloaded, and so does Meron: parameters,
gradient sums and states are entries of tier device, and the engine's own rule takes the step.
Parameters that are full on every rank are entries of a mesh of one rank.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import meron
from meron import errors
from meron.zero.optimizers import ENGINE, NOT_THE_ENGINES, rule_of

if TYPE_CHECKING:
    from meron.zero.config import Config

VARIABLE = "MERON_ZERO_TIERS"
WORLD = "replica x shard"
# By stage: how gradients and states are cut over a mesh of one rank. Parameters never are.
ROWS = {0: ("shard", "shard"), 1: ("shard", WORLD), 2: (WORLD, WORLD)}


def against(config: Config, given: bool = False) -> str:
    """The reason, in a sentence, for which the entries stay on the host; empty for the device.

    Args:
        given: an optimizer was passed to `initialize`, whose step is taken by torch.
    """
    asked = os.environ.get(VARIABLE, "auto")
    if asked not in ("auto", "host"):
        raise errors.argument(f"{VARIABLE} is {asked!r}: auto and host are known", subject=VARIABLE)
    if asked == "host":
        return f"{VARIABLE} is host"
    offload, topology = config.offload, config.topology
    if offload.param != "none":
        return f"offload_param.device is {offload.param}"
    if topology.frozen:
        return "quantized frozen parameters reside on the host"
    if config.bf16_values:
        return "bf16 values are updated in place by torch's step, on the host"
    if given:
        return "the optimizer that was passed steps on the host"
    if config.optimizer is None:
        return "the config names no optimizer"
    name, params = rule_of(*config.optimizer)
    if name not in ENGINE or params.get("torch_adam"):
        return f"the step of {config.optimizer[0]} is torch's, on the host"
    for key in NOT_THE_ENGINES:
        if params.get(key):
            return f"the step of {config.optimizer[0]} with {key} is torch's, on the host"
    return ""


def plan_for(config: Config, device: str, given: bool = False) -> meron.Plan:
    """The plan of a config whose model computes on `device` ("" is the host).

    Args:
        given: as in `against`.
    """
    table = config.plan_table()
    if device:
        reason = against(config, given)
        if not reason:
            to_device(config, table)
        elif reason not in config.told:
            config.told.append(reason)
    return meron.Plan.parse(table)


def to_device(config: Config, table: dict[str, Any]) -> None:
    """Moves the rows of a plan's table, as `Config.plan` makes it, to the device."""
    if config.stage < 3 and not config.topology.mics:
        gradient, optimizer = ROWS[config.stage]
        table.pop("preset")
        table["mesh"] = {"shard": 1}
        table["param"] = {"sharding": "shard"}
        table["gradient"] = {"sharding": gradient}
        table.setdefault("optimizer", {})["sharding"] = optimizer
    rows = ("param",) if config.offload.optimizer != "none" else ("param", "gradient", "optimizer")
    for row in rows:
        table.setdefault(row, {})["tier"] = "device"

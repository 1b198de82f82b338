# SPDX-License-Identifier: Apache-2.0
"""The number of steps of an optimizer that goes on from a checkpoint.

Adam corrects its averages for how few steps they have seen, and the first step of SGD with a
momentum has none; the engine counts its own steps, and takes no number. So it is brought to the
number of the checkpoint by steps that change no param. The corrections of Adam have an end: once
beta^steps is too small for the numbers of an update to tell, more steps change nothing.

Where those steps would take too long the numbers of the groups make up for what the engine
corrects too much: the same update, but for its rounding.
"""

from __future__ import annotations

import json
import logging
import math
from typing import Any

logger = logging.getLogger("meron.torch")

# Elements of a rank that are passed over at most, times steps: seconds in memory, or on a drive.
MOST_IDLE = 1 << 32
MOST_IDLE_ON_NVME = 1 << 28


def settled(betas: tuple[float, float]) -> int:
    """From which step on Adam's corrections are 1: the first is used in double, the second in f32
    (with two bits to spare)."""
    needed = [1]
    for beta, bits in zip(betas, (54, 26)):
        if 0.0 < beta < 1.0:
            needed.append(math.ceil(bits * math.log(2) / -math.log(beta)))
    return max(needed)


def corrected(numbers: dict[str, Any], counted: int, step: int, decoupled: bool) -> dict[str, Any]:
    """Numbers of a group of Adam by which the engine's step number `counted` is that of `step`.

    Args:
        decoupled: weight decay is AdamW's, which the learning rate scales.
    """
    until = settled(numbers["betas"])
    if min(counted, until) == min(step, until):
        return numbers
    beta1, beta2 = numbers["betas"]
    first = (1 - beta1**counted) / (1 - beta1**step)
    second = math.sqrt((1 - beta2**counted) / (1 - beta2**step))
    # lr / bias1 * m / (sqrt(v / bias2) + eps), with the corrections of `step`.
    scale = first / second
    return {
        **numbers,
        "lr": numbers["lr"] * scale,
        "eps": numbers["eps"] / second,
        "weight_decay": numbers["weight_decay"] / (scale if decoupled else 1.0),
    }


def restore(optimizer: Any, steps: int, anew: bool) -> None:
    """Brings an engine's optimizer to a number of steps; its states are written after. Collective.

    Args:
        anew: what the engine's optimizer was made with has changed.
    """
    until = optimizer.counts_until()
    counted = optimizer.engine.steps
    if anew or min(counted, until) > min(steps, until):
        optimizer._remake()
        counted = 0
    missing = max(0, min(steps, until) - counted)
    share = sum(unit.handles[i].size for unit in optimizer.sharded for i in unit.trainable)
    context = optimizer.sharding.context
    share //= context.world_size
    # By what is equal on all ranks: they take as many steps.
    plan = json.loads(context.plan.json())
    on_nvme = "nvme" in (plan["optimizer"]["tier"], plan["param"]["tier"])
    most = MOST_IDLE_ON_NVME if on_nvme else MOST_IDLE
    if missing > 1 and missing * share > most:
        logger.info("the steps of a checkpoint, %d, are made up for by numbers", steps)
    elif missing:
        optimizer._idle(missing)
    optimizer._ahead = steps - optimizer.engine.steps

# SPDX-License-Identifier: Apache-2.0
"""How a run differs from DeepSpeed's: defaults of keys, from the table of keys, and behaviours.

`initialize` logs the differences of its config. The table of behaviours is in
docs/torch_deepspeed.md, and the table of keys is in docs/config.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from meron.zero.config import Config
from meron.zero.config.table import SECTIONS, Key, Same, Section


@dataclass(frozen=True)
class Behaviour:
    """A difference that no key decides.

    Attributes:
        meron, deepspeed: a row of the table in docs/torch_deepspeed.md.
        met: whether a run with this config can meet it.
    """

    meron: str
    deepspeed: str
    met: Callable[[Config], bool]


def casts_params(config: Config) -> bool:
    return config.dtype not in (None, torch.float32) and config.buffer_dtype is None


BEHAVIOURS = (
    Behaviour(
        "`engine.named_parameters()` and `engine.state_dict()` have the model's names",
        "the names begin with `module.`",
        lambda config: True,
    ),
    Behaviour(
        "a second `engine.backward` before `engine.step` raises StateError",
        "gradients add up, or the first ones are lost",
        lambda config: config.managed_accumulation,
    ),
    Behaviour(
        "`param.grad` is None after a backward at stage 0: use `safe_get_full_grad`",
        "`param.grad` is the gradient",
        lambda config: config.stage == 0,
    ),
    Behaviour(
        "`get_global_grad_norm()` is the norm of the last step at stage 0 in f32, too",
        "None",
        lambda config: config.stage == 0 and config.dtype in (None, torch.float32),
    ),
    Behaviour(
        "a write to a parameter between steps is collective at the stages 0 to 2",
        "the write is local",
        lambda config: config.stage < 3,
    ),
    Behaviour(
        "a step with NaN or infinity raises NonFiniteError, unless the config lets it be skipped",
        "f32 parameters become NaN",
        lambda config: not config.check_overflow,
    ),
    Behaviour(
        "floating buffers stay in f32 beside 16-bit parameters",
        "buffers are cast with the model",
        casts_params,
    ),
    Behaviour(
        "a parameter that thaws gets the bias corrections of its own first steps",
        "those of the optimizer's count of steps: updates of 0.5 to 4.6 times the right size",
        lambda config: config.optimizer is not None,
    ),
)


def differences(config: Config) -> Iterator[str]:
    """One line for each difference that a run with this config meets."""
    for section in SECTIONS:
        for key in section.keys:
            if meets(config, section, key):
                path = f"{section.path}.{key.name}" if section.path else key.name
                yield f"{path} is {spelled(key.own)} by default, not {spelled(key.default)}"
    for behaviour in BEHAVIOURS:
        if behaviour.met(config):
            yield f"{behaviour.meron}; in DeepSpeed {behaviour.deepspeed}"


def meets(config: Config, section: Section, key: Key) -> bool:
    """True if the run uses a key that the config lacks, and whose default differs."""
    block = block_of(config.table, section)
    if key.own is Same or block is None:
        return False
    if any(block.get(name) is not None for name in (key.name, *key.also)):
        return False
    if key.name == "gradient_clipping":
        return not config.clipping
    of_stage_3 = key.name.startswith("stage3_") or key.name == "sub_group_size"
    return config.stage == 3 or not of_stage_3


def block_of(table: Mapping[str, Any], section: Section) -> Mapping[str, Any] | None:
    """A section's block of a config; None if the config lacks it."""
    for path in (section.path, *section.also):
        block: Any = table
        for name in path.split(".") if path else ():
            block = block.get(name) if isinstance(block, Mapping) else None
        if isinstance(block, Mapping):
            return block
    return None


def spelled(value: Any) -> str:
    """A default in a log line."""
    if value is None:
        return "none"
    if value == sys.maxsize:
        return "sys.maxsize"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()

# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.config: functions that read one value of a config, a dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meron.zero.compat import constants

# By function of DeepSpeed: the key, and the value if the config does not have it.
VALUES: dict[str, tuple[str, Any]] = {
    f"get_{key}": (key, getattr(constants, f"{key.upper()}_DEFAULT"))
    for key in (
        *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
        *("managed_gradient_accumulation", "gradient_clipping", "gradient_allreduce_op"),
        *("prescale_gradients", "gradient_predivide_factor", "steps_per_print", "dump_state"),
        *("wall_clock_breakdown", "memory_breakdown", "dataloader_drop_last"),
        *("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"),
    )
}


def get_scalar_param(
    param_dict: Mapping[str, Any], param_name: str, param_default_value: Any
) -> Any:
    """The value of a key, or the default."""
    return param_dict.get(param_name, param_default_value)


get_list_param = get_dict_param = get_scalar_param


def reader(key: str, default: Any) -> Callable[[Mapping[str, Any]], Any]:
    def read(param_dict: Mapping[str, Any]) -> Any:
        return param_dict.get(key, default)

    read.__name__ = read.__qualname__ = f"get_{key}"
    read.__doc__ = f"The config's {key}; {default!r} without it."
    return read


def readers() -> dict[str, Any]:
    """The functions of VALUES, and those over the blocks optimizer and scheduler."""
    return {
        **{name: reader(key, default) for name, (key, default) in VALUES.items()},
        **{
            f"get_{block}_{what}": block_reader(block, key)
            for block in ("optimizer", "scheduler")
            for what, key in (("name", "type"), ("params", "params"))
        },
    }


def block_reader(block: str, key: str) -> Callable[[Mapping[str, Any]], Any]:
    def read(param_dict: Mapping[str, Any]) -> Any:
        return (param_dict.get(block) or {}).get(key)

    read.__doc__ = f"The config's {block}.{key}; None without it."
    return read

# SPDX-License-Identifier: Apache-2.0
"""deepspeed.runtime.precision_config: the blocks fp16 and bf16 of a config as objects.

The classes, DeepSpeedFP16Config and DeepSpeedBF16Config, are those of meron.zero.config.classes and
need pydantic.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

BFLOAT16, BFLOAT16_OLD, FP16 = "bf16", "bfloat16", "fp16"


def get_float16_config(param_dict: Mapping[str, Any]) -> Any:
    """The block fp16 of a config, a dict, as a DeepSpeedFP16Config; its defaults without one.

    Raises ImportError without pydantic, pydantic's ValidationError for unknown keys and values.
    """
    return block(param_dict.get(FP16), "DeepSpeedFP16Config")


def get_bfloat16_config(param_dict: Mapping[str, Any]) -> Any:
    """The block bf16 (by its old name, bfloat16) as a DeepSpeedBF16Config; else as above."""
    found = param_dict.get(BFLOAT16)
    return block(param_dict.get(BFLOAT16_OLD) if found is None else found, "DeepSpeedBF16Config")


def block(values: Mapping[str, Any] | None, name: str) -> Any:
    classes = importlib.import_module("meron.zero.config.classes")
    return getattr(classes, name)(**(values or {}))


__all__ = ["BFLOAT16", "BFLOAT16_OLD", "FP16", "get_bfloat16_config", "get_float16_config"]

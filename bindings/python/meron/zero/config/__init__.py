# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON config as a plan, limits of the schedule and an engine's options. Pure data.

DeepSpeed's config classes are attributes too, where pydantic is installed (see `classes`).
"""

from __future__ import annotations

import importlib
from typing import Any

import meron
from meron.torch import registry
from meron.torch.resolve.options import MixedPrecision
from meron.zero.config.block import Block
from meron.zero.config.model import Config, LeafModules
from meron.zero.config.parse import parse
from meron.zero.config.precision import Fp16
from meron.zero.config.read import Source, read
from meron.zero.config.table import KNOWN_MIXTURES

__all__ = [
    "KNOWN_MIXTURES",
    "Block",
    "Config",
    "Fp16",
    "LeafModules",
    "Source",
    "parse",
    "read",
]


def read_sharding(config: Source) -> tuple[meron.Plan, MixedPrecision, dict[str, int]]:
    """The plan, dtypes and limits of a config, for meron.torch.shard(config=...)."""
    parsed = parse(config)
    mp = MixedPrecision(parsed.dtype, buffer_dtype=parsed.buffer_dtype)
    return parsed.plan(), mp, parsed.limits


registry.config_reader = read_sharding


# Names of meron.zero.config.classes besides those that begin with DeepSpeed.
CLASSES = (
    *("CSVConfig", "CometConfig", "TensorBoardConfig", "WandbConfig"),
    "get_monitor_config",
)


def __getattr__(name: str) -> Any:
    if name.startswith("DeepSpeed") or name in CLASSES:
        try:
            return getattr(importlib.import_module("meron.zero.config.classes"), name)
        except ImportError as error:  # hasattr() knows AttributeError alone
            raise AttributeError(str(error)) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

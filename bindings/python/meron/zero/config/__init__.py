# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON config as a plan, limits of the schedule and an engine's options. Pure data."""

from meron.zero.config.block import DTYPES, Block
from meron.zero.config.model import KNOWN_MIXTURES, Config, Fp16, LeafModules
from meron.zero.config.parse import parse
from meron.zero.config.read import Source, read

__all__ = [
    "DTYPES",
    "KNOWN_MIXTURES",
    "Block",
    "Config",
    "Fp16",
    "LeafModules",
    "Source",
    "parse",
    "read",
]

# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's JSON config as a plan, limits of the schedule and an engine's options. Pure data."""

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

# SPDX-License-Identifier: Apache-2.0
"""A block of a config, whose values are checked as they are taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from meron import errors

DTYPES = {
    "fp32": torch.float32,
    "float32": torch.float32,
    "fp16": torch.float16,
    "float16": torch.float16,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}


class Block:
    """A block of a config, whose values are checked as they are taken."""

    def __init__(self, path: str, table: Any) -> None:
        self.path = path
        if not isinstance(table, Mapping):
            raise errors.argument(f"{path} must be an object, not {table!r}", subject=path)
        self.table = table

    def wrong(self, key: str, wanted: str) -> errors.ArgumentError:
        full = f"{self.path}.{key}" if self.path else key
        return errors.argument(f"{full} must be {wanted}, not {self.table[key]!r}", subject=full)

    def one_of(self, name: str, old_name: str) -> str:
        """Which of two names of a key is there; ArgumentError for both."""
        if self.table.get(old_name) is None:
            return name
        if self.table.get(name) is not None:
            prefix = f"{self.path}." if self.path else ""
            raise errors.argument(
                f"{prefix}{name} and {prefix}{old_name} are two names of one key",
                subject=prefix + name,
                advice="Remove one of them.",
            )
        return old_name

    def block(self, key: str) -> Block:
        value = self.table.get(key)
        full = f"{self.path}.{key}" if self.path else key
        return Block(full, {} if value is None else value)

    def whole(self, key: str, default: int | None, low: int, high: int | None = None) -> int | None:
        """A whole number; 5e8 is one too."""
        value = self.table.get(key)
        if value is None:
            return default
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or value < low or (high and value > high):
            limits = f"from {low} to {high}" if high else f"of at least {low}"
            raise self.wrong(key, f"a whole number {limits}")
        return int(value)

    def number(self, key: str, default: float) -> float:
        """A finite number of at least 0."""
        value = self.table.get(key)
        if value is None:
            return default
        fine = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fine or not math.isfinite(value) or value < 0:
            raise self.wrong(key, "a number of at least 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.table.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def words(self, key: str) -> list[str]:
        value = self.table.get(key)
        if value is None:
            return []
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
            raise self.wrong(key, "a list of names")
        return list(dict.fromkeys(words))

    def dtype(self, key: str) -> torch.dtype | None:
        value = self.table.get(key)
        if value is None or isinstance(value, torch.dtype):
            return value
        if value not in DTYPES:
            raise self.wrong(key, "fp32, fp16 or bf16")
        return DTYPES[value]

# SPDX-License-Identifier: Apache-2.0
"""A block of a config, whose values are checked as they are taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meron import errors
from meron.zero.config.table import KEYS, Key


def full_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def take(path: str, key: Key, name: str, value: Any, wide: bool = False) -> Any:
    """The value of a key, as its kind reads it (with `wide`, DeepSpeed's). ArgumentError that names
    the key."""
    kind = key.wide if wide and key.wide is not None else key.kind
    try:
        return kind.take(value)
    except ValueError as error:
        full = full_path(path, name)
        raise errors.argument(f"{full} must be {error}, not {value!r}", full) from None


class Block:
    """A block by its path, "" for the top level."""

    def __init__(self, path: str, table: Any) -> None:
        self.path = path
        if not isinstance(table, Mapping):
            raise errors.argument(f"{path} must be an object, not {table!r}", subject=path)
        self.table = table

    def name_of(self, name: str) -> str:
        """The name by which a key is there, of all that it has; ArgumentError for two."""
        key = KEYS[self.path][name]
        names = [each for each in (key.name, *key.also) if self.table.get(each) is not None]
        if len(names) > 1:
            first, second = (full_path(self.path, each) for each in names[:2])
            raise errors.argument(
                f"{first} and {second} are two names of one key",
                subject=first,
                advice="Remove one of them.",
            )
        return names[0] if names else key.name

    def given(self, name: str) -> bool:
        """True if the block has a key, by any of its names, that is neither null nor false."""
        return self.table.get(self.name_of(name)) not in (None, False)

    def get(self, name: str) -> Any:
        """The value of a key by its first name, or its default in Meron. ArgumentError for one of
        a wrong kind."""
        key = KEYS[self.path][name]
        found = self.name_of(name)
        value = self.table.get(found)
        return key.fallback if value is None else take(self.path, key, found, value)

    def block(self, name: str) -> Block:
        """A block within this one; an empty one where there is none."""
        found = self.name_of(name)
        value = self.table.get(found)
        return Block(full_path(self.path, found), {} if value in (None, False) else value)

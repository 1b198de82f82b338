# SPDX-License-Identifier: Apache-2.0
"""The classes of the table of keys: key, section, and the use of a key."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from .kinds import Kind


class Use(enum.Enum):
    """Meron's use of a key."""

    WORKS = "works"
    IDLE = "no effect"  # any value; `Key.says` is the reason
    REFUSED = "refused"  # unless it is off; `Key.says` is what to use
    WARNED = "a warning"  # unless it is off; `Key.says` is what to use


class Same:
    """In place of a default: DeepSpeed's."""


@dataclass(frozen=True)
class Key:
    """A key of DeepSpeed's config.

    Attributes:
        default: DeepSpeed's.
        says: for a key that works, what it becomes; else as said at Use.
        own: Meron's default, where it is another one; `why` is the reason.
        also: other names of the same key.
        nullable: DeepSpeed's classes accept null.
        wide: DeepSpeed's kind, where it has more values: its classes have this one, and a value
            that has no effect (as the block is off) may be of it.
    """

    name: str
    kind: Kind
    default: Any
    use: Use
    says: str
    own: Any = Same
    why: str = ""
    also: tuple[str, ...] = ()
    nullable: bool = False
    wide: Kind | None = None

    @property
    def fallback(self) -> Any:
        """The value where a config has none."""
        return self.default if self.own is Same else self.own


@dataclass(frozen=True)
class Section:
    """A block and its keys.

    Attributes:
        path: of the block, "" for the top level.
        lenient: DeepSpeed ignores unknown keys of it.
        also: other paths of the same block.
    """

    path: str
    title: str
    keys: tuple[Key, ...]
    lenient: bool = False
    also: tuple[str, ...] = ()


def works(name: str, kind: Kind, default: Any, says: str, **others: Any) -> Key:
    return Key(name, kind, default, Use.WORKS, says, **others)


def idle(name: str, kind: Kind, default: Any, says: str, **others: Any) -> Key:
    return Key(name, kind, default, Use.IDLE, says, **others)


def warned(name: str, kind: Kind, default: Any, says: str, **others: Any) -> Key:
    return Key(name, kind, default, Use.WARNED, says, **others)


def refused(name: str, kind: Kind, default: Any, says: str, **others: Any) -> Key:
    return Key(name, kind, default, Use.REFUSED, says, **others)

# SPDX-License-Identifier: Apache-2.0
"""Kinds of values. A kind has its name for the page, and checks and converts a value.

`take` returns the value, or raises ValueError whose text completes "KEY must be ...".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

# Spellings of the dtypes of a config, by torch's name.
DTYPES = {
    "float32": ("fp32", "float32", "torch.float32", "float"),
    "float16": ("fp16", "float16", "torch.float16", "half"),
    "bfloat16": ("bf16", "bfloat16", "torch.bfloat16"),
}


# Spellings of true and false besides the numbers, in lower case.
SWITCHES = {
    **dict.fromkeys(("true", "1", "yes", "on", "y", "t"), True),
    **dict.fromkeys(("false", "0", "no", "off", "n", "f"), False),
}
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity)", re.I)


def number_in(value: Any) -> Any:
    """A text that is a number as that number; any other value as it is. Templates write numbers as
    texts, and YAML reads 1e-3 as one."""
    if not isinstance(value, str) or not NUMBER.fullmatch(value.strip()):
        return value
    try:
        return int(value)
    except ValueError:
        return float(value)


def plain(value: Any) -> Any:
    """The params of an optimizer or a scheduler with numbers, true and false in place of texts that
    say so."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return number_in(value)


class Kind:
    """Of any value.

    Attributes:
        name: of the type, for a page.
    """

    name = "any"

    def take(self, value: Any) -> Any:
        return value


class Whole(Kind):
    """A whole number; 5e8 is one too."""

    def __init__(self, low: int | None = 0, high: int | None = None) -> None:
        self.low, self.high = low, high
        self.name = "int"
        if low is not None:
            self.name = f"int >= {low}" if high is None else f"int {low} to {high}"

    def take(self, value: Any) -> int:
        value = number_in(value)
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        below = self.low is not None and whole and value < self.low
        above = self.high is not None and whole and value > self.high
        if isinstance(value, bool) or not whole or below or above:
            raise ValueError(f"a whole number {self.limits}".rstrip())
        return int(value)

    @property
    def limits(self) -> str:
        if self.low is None:
            return ""
        if self.high is None:
            return f"of at least {self.low}"
        return f"from {self.low} to {self.high}"


class Number(Kind):
    """A number, not below `low` (with `over`: above it) and not above `high` (with `under`: below
    it); with `infinite` also infinity."""

    def __init__(
        self,
        low: float = 0.0,
        high: float = math.inf,
        *,
        over: bool = False,
        under: bool = False,
        infinite: bool = False,
    ) -> None:
        self.low, self.high, self.over, self.under = low, high, over, under
        self.infinite = infinite
        self.name = f"float {'>' if over else '>='} {low:g}"
        self.words = f"above {low:g}" if over else f"of at least {low:g}"
        if high != math.inf:
            self.name += f", {'<' if under else '<='} {high:g}"
            self.words += f" and below {high:g}" if under else f" and at most {high:g}"
        if infinite:
            self.name += " or inf"

    def take(self, value: Any) -> float:
        value = number_in(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"a number {self.words}")
        low = value > self.low if self.over else value >= self.low
        high = value < self.high if self.under else value <= self.high
        finite = math.isfinite(value) or (self.infinite and value == math.inf)
        if not (low and high and finite):
            raise ValueError(f"a number {self.words}")
        return float(value)


class Ratio(Number):
    """A number from 0 to 1, or "auto", which is not left out here."""

    def __init__(self, over: bool = True) -> None:
        super().__init__(0, 1, over=over)

    def take(self, value: Any) -> Any:
        return value if value == "auto" else super().take(value)


class Flag(Kind):
    """true or false; 1 and 0 and some words are these too."""

    name = "bool"

    def take(self, value: Any) -> bool:
        if isinstance(value, str):
            value = SWITCHES.get(value.lower())
        if not isinstance(value, (bool, int, float)) or value not in (0, 1):
            raise ValueError("true or false")
        return bool(value)


class Choice(Kind):
    """One of some words, in any case; it is read in lower case."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.name = " or ".join(f'"{word}"' for word in words)

    def take(self, value: Any) -> str:
        word = getattr(value, "value", value)  # a str, or DeepSpeed's enum of it
        known = {choice.lower() for choice in self.words}
        if not isinstance(word, str) or word.lower() not in known:
            listed = [f'"{choice}"' for choice in self.words]
            raise ValueError(f"{', '.join(listed[:-1])} or {listed[-1]}")
        return word.lower()


class Dtype(Kind):
    """A dtype, by name or as torch's; it is read as torch's."""

    name = "dtype"

    def take(self, value: Any) -> Any:
        import torch  # pages are made without it

        if isinstance(value, torch.dtype):
            value = str(value)
        for name, spellings in DTYPES.items():
            if isinstance(value, str) and value.lower() in spellings:
                return getattr(torch, name)
        raise ValueError("fp32, fp16 or bf16")


class Words(Kind):
    """A list of names; one name is a list of one. Repeated names count once."""

    name = "list of str"

    def take(self, value: Any) -> list[str]:
        words = [value] if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) for w in words):
            raise ValueError("a list of names")
        return list(dict.fromkeys(words))


class Text(Kind):
    name = "str"

    def take(self, value: Any) -> str:
        text = value.__fspath__() if hasattr(value, "__fspath__") else value
        if not isinstance(text, str):
            raise ValueError("a text")
        return text


class FilePath(Text):
    """A text that DeepSpeed's classes turn to a path."""


class Table(Kind):
    """A block; false is an empty one. Its keys are those of a section, if there is one of its
    path."""

    name = "block"

    def take(self, value: Any) -> Mapping[str, Any]:
        if value is False:
            return {}
        if not isinstance(value, Mapping):
            raise ValueError("an object")
        return value


class OldSwitch(Table):
    """A block, or true or false in its place."""

    name = "block"

    def take(self, value: Any) -> Any:
        return value if isinstance(value, bool) else super().take(value)


class Feature(Kind):
    """A block, or a switch, of something that Meron does not have: it is accepted while it is off.

    Args:
        off: other values that leave it off, besides null and false.
        switch: a key of the block that says whether it is on; a block without it is off.
            "" for a block that is on as soon as one of its values is.
        idle: the values of `switch` that leave it off.
    """

    def __init__(
        self,
        name: str = "block",
        *,
        off: tuple[Any, ...] = (),
        switch: str = "enabled",
        idle: tuple[Any, ...] = (),
    ) -> None:
        self.name = name
        self.off = (None, False, *off)
        self.switch = switch
        self.idle = (None, False, *idle)

    def is_off(self, value: Any) -> bool:
        if not isinstance(value, Mapping):
            return is_in(self.off, value)
        if self.switch and self.switch in value:
            return is_in(self.idle, value[self.switch])
        nested = [item for item in value.values() if isinstance(item, Mapping)]
        idle = [is_in(self.idle, item) for item in value.values() if not isinstance(item, Mapping)]
        return all(map(self.is_off, nested)) and (bool(self.switch) or all(idle))


def is_in(known: tuple[Any, ...], value: Any) -> bool:
    """True if a value is one of those, or false in any spelling."""
    if isinstance(value, str) and SWITCHES.get(value.lower()) is False:
        return True
    found = number_in(value)
    if isinstance(found, (int, float)) and found == 0:
        return True
    return any(found is each or (found == each and type(found) is type(each)) for each in known)

# SPDX-License-Identifier: Apache-2.0
"""Checks the keys of a config: finds those that are unknown, unsupported or have no effect."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meron import errors
from meron.zero.config.block import full_path, take
from meron.zero.config.table import BY_PATH, KEYS, Feature, Use


@dataclass
class Findings:
    """Keys of a config, in their order.

    Attributes:
        idle: keys that have no effect.
        unknown: unknown keys, each with the nearest known key.
        ignored: the unknown keys that DeepSpeed ignores.
        refused: keys that enable a feature that Meron lacks, with their value and advice.
        warned: those of them that change no result, and advice.
    """

    idle: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    refused: list[tuple[str, Any, str]] = field(default_factory=list)
    warned: list[tuple[str, str]] = field(default_factory=list)


def check_keys(config: Mapping[str, Any], tolerant: bool) -> Findings:
    """Visits all keys. Raises ArgumentError naming all unknown keys, or a value of a wrong kind;
    UnsupportedError naming all keys that enable a feature that Meron lacks.

    Args:
        tolerant: unknown keys that DeepSpeed ignores are no error.
    """
    found = Findings()
    visit("", config, found)
    wrong = [key for key in found.unknown if not (tolerant and key in found.ignored)]
    if wrong:
        raise errors.argument(
            f"{len(wrong)} unknown config key{'s' * (len(wrong) > 1)}: " + ", ".join(wrong),
            subject=wrong[0].split(" ")[0],
            advice="Correct or remove them. Keys of DeepSpeed 0.19.8, and older ones, are known.",
        )
    if found.refused:
        listed = ", ".join(f"{path} = {value!r}" for path, value, _ in found.refused)
        raise errors.UnsupportedError(
            f"Meron does not have yet: {listed}",
            subject=found.refused[0][0],
            advice=" ".join(dict.fromkeys(advice for _, _, advice in found.refused)),
        )
    return found


def visit(path: str, block: Mapping[str, Any], found: Findings) -> None:
    known = KEYS[path]
    for name, value in block.items():
        full = full_path(path, name)
        key = known.get(name)
        if key is None:
            found.unknown.append(full + nearest(name, path))
            if BY_PATH[path].lenient:
                found.ignored.append(found.unknown[-1])
        elif isinstance(key.kind, Feature):
            if key.kind.is_off(value):
                continue
            if key.use is Use.WARNED:
                found.warned.append((full, key.says))
            else:
                found.refused.append((full, value, key.says))
        elif value is not None:
            take(path, key, name, value, wide=True)
            if key.use is Use.IDLE:
                found.idle.append(full)
            if full in KEYS and isinstance(value, Mapping):
                visit(full, value, found)


def nearest(name: str, path: str) -> str:
    """A hint for an unknown key: the nearest known key of this block, or of another one."""
    close = difflib.get_close_matches(str(name), KEYS[path], 1, 0.6)
    if not close:
        for other, known in KEYS.items():
            if name in known:
                place = f"in {other}" if other else "at the top level"
                return f" (it belongs {place})"
        everywhere = {each: other for other, known in KEYS.items() for each in known}
        close = difflib.get_close_matches(str(name), everywhere, 1, 0.75)
        if close and everywhere[close[0]]:
            return f" (did you mean {everywhere[close[0]]}.{close[0]}?)"
    return f" (did you mean {close[0]}?)" if close else ""

# SPDX-License-Identifier: Apache-2.0
"""A config as it is written: a dict, or a JSON file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Union

from meron import errors
from meron._files import read_text
from meron.zero.config.keys import without_auto

Source = Union[str, "os.PathLike[str]", "Mapping[str, Any]", None]


def read(source: Source) -> dict[str, Any]:
    """A config as a dict, from a dict or a JSON file, without values that are "auto"."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return dict(without_auto(source))
    try:
        text = read_text(source)
    except FileNotFoundError:
        raise errors.argument(f"there is no config file {os.fspath(source)!r}") from None
    try:
        table = json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise errors.ParseError(
            f"{os.fspath(source)}: {error}", subject=os.fspath(source)
        ) from None
    if not isinstance(table, dict):
        raise errors.ParseError(f"{os.fspath(source)} holds no JSON object")
    return dict(without_auto(table))


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r} occurs twice")
        table[key] = value
    return table

# SPDX-License-Identifier: Apache-2.0
"""A config as it is written: a dict, a file of JSON or Hjson, or base64 of that."""

from __future__ import annotations

import base64
import binascii
import importlib
import json
import math
import os
from collections.abc import Mapping
from typing import Any, Union

from meron import errors
from meron._files import read_text
from meron.zero.config.table import KEYS
from meron.zero.config.table.kinds import Kind, Whole

Source = Union[str, "os.PathLike[str]", "Mapping[str, Any]", None]


def read(source: Source) -> dict[str, Any]:
    """A config as a dict, from a dict or a file, without values that are "auto".

    Files are JSON; with comments and the rest of Hjson where the package hjson is installed. A text
    that is no path may be the base64 of one, as DeepSpeed's launchers pass it on.

    Raises ParseError (where, and what), ArgumentError (no such file, or neither dict nor path).
    """
    try:
        return read_nested(source)
    except RecursionError:
        name = "the config" if isinstance(source, Mapping) else str(source)[:200]
        raise errors.ParseError(f"{name} is nested too deep", subject=name) from None


def read_nested(source: Source) -> dict[str, Any]:
    """As `read`, but for a RecursionError."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return plain(source)
    if not isinstance(source, (str, os.PathLike)):
        raise errors.argument(
            f"the config is of type {type(source).__name__}",
            subject="config",
            advice="Pass a dict, or the path of a JSON file.",
        )
    try:
        name, text = os.fspath(source), read_text(source)
    except FileNotFoundError:
        decoded = decode(source)
        if decoded is None:
            raise errors.argument(f"there is no config file {os.fspath(source)!r}") from None
        name, text = "the config in base64", decoded
    except UnicodeDecodeError as error:
        raise errors.ParseError(
            f"{os.fspath(source)} is no text in UTF-8: {error.reason} at byte {error.start}",
            subject=str(source),
            advice="Save it as UTF-8.",
        ) from None
    except (IsADirectoryError, PermissionError) as error:
        raise errors.argument(
            f"the config file {os.fspath(source)!r} cannot be read: {error.strerror}",
            subject="config",
            advice="Pass a dict, or the path of a JSON file.",
        ) from None
    except OSError:  # a text that is longer than a path may be
        decoded = decode(source)
        if decoded is None:
            raise
        name, text = "the config in base64", decoded
    if not text.strip():
        raise errors.ParseError(f"{name} is empty", subject=name)
    table = parse_text(name, text)
    if not isinstance(table, dict):
        raise errors.ParseError(f"{name} holds no JSON object")
    return plain(table)


def decode(source: Any) -> str | None:
    """The text that a base64 text has; None where it is none."""
    try:
        return base64.b64decode(os.fspath(source), altchars=b"-_", validate=True).decode()
    except (ValueError, TypeError, binascii.Error):
        return None


def parse_text(name: str, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except ValueError as error:
        wrong = error
    # Text that is not JSON may be Hjson, for example JSON with comments.
    if isinstance(wrong, json.JSONDecodeError):
        try:
            hjson = importlib.import_module("hjson")
        except ImportError:
            raise errors.ParseError(
                f"{name}: {wrong}",
                subject=name,
                advice="Comments and trailing commas need the package hjson (pip install hjson).",
            ) from None
        try:
            return hjson.loads(text, object_pairs_hook=unique_keys)
        except IndexError:  # hjson looks past the end of a text that was cut
            raise errors.ParseError(
                f"{name}: the text ends too early", subject=name, advice="Complete it."
            ) from None
        except ValueError as error:
            wrong = error
    raise errors.ParseError(f"{name}: {wrong}", subject=name) from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key!r} occurs twice")
        table[key] = value
    return table


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with dotted keys in their blocks, and without values that are "auto"."""
    return dict(without_auto(undotted(table)))


def without_auto(value: Any) -> Any:
    """The config without values that are "auto": their defaults apply. But for `ratio`, which has
    no meaning to fill in for others."""
    if isinstance(value, Mapping):
        return {
            key: without_auto(item)
            for key, item in value.items()
            if not (isinstance(item, str) and item == "auto") or key == "ratio"
        }
    return value


def undotted(table: Mapping[str, Any]) -> dict[str, Any]:
    """The config with keys such as "zero_optimization.reduce_bucket_size" of the top level in their
    blocks, as TRL writes them for reference models. A value that the block itself has counts."""
    found = {key: value for key, value in table.items() if not is_dotted(key)}
    for key, value in table.items():
        if not is_dotted(key):
            continue
        *places, name = key.split(".")
        block: Any = found
        for place in places:
            inner = block.get(place)
            if inner is not None and not isinstance(inner, Mapping):
                break
            block[place] = dict(inner or {})
            block = block[place]
        else:
            if block.get(name) in (None, "auto"):
                block[name] = rounded(KEYS[".".join(places)][name].kind, value)
    return found


def is_dotted(key: Any) -> bool:
    path, _, name = str(key).rpartition(".")
    return bool(path) and name in KEYS.get(path, ())


def rounded(kind: Kind, value: Any) -> Any:
    """A number of elements that was computed may have a fraction."""
    fraction = isinstance(kind, Whole) and isinstance(value, float) and math.isfinite(value)
    return math.floor(value) if fraction else value

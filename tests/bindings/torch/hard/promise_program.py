# SPDX-License-Identifier: Apache-2.0
"""A program of one rank with a function for each promise: runs them and reports each.

Writes one line of JSON per function into folder/rank: its name, and what went wrong or null. After
a failure the ranks go on together as long as they can.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import torch

import meron
import meron.torch as mt

context = mt.context_for(meron.Plan.preset("zero3"))
RANK, RANKS = context.rank, context.world_size


def raises(kind: type[BaseException], text: str, function: Callable[[], object]) -> None:
    try:
        function()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def promises_of(content: dict[str, Any]) -> list[Callable[[], None]]:
    """The functions that a program of ranks defines, of no arguments, that return None."""
    return [
        function
        for function in content.values()
        if callable(function)
        and getattr(function, "__module__", None) == content["__name__"]
        and getattr(function, "__annotations__", {}) == {"return": "None"}
        and not isinstance(function, type)
    ]


def main(folder: str, promises: list[Callable[[], None]]) -> int:
    torch.set_num_threads(1)
    with open(f"{folder}/{RANK}", "w", encoding="utf-8") as file:
        for promise in promises:
            wrong = None
            try:
                promise()
            except Exception:
                wrong = traceback.format_exc()
            file.write(json.dumps([promise.__name__, wrong]) + "\n")
            file.flush()
    return 0

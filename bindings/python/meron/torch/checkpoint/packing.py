# SPDX-License-Identifier: Apache-2.0
"""State of Python objects as JSON, and back: what state_dict() of schedulers and scalers holds.

JSON has no tuples, no dicts with numbers as keys and no infinities, and schedulers have. They are
written as objects with one key that begins with "$".
"""

from __future__ import annotations

import collections
import json
import math
from collections.abc import Callable
from typing import Any

import torch

from meron import errors

MOST_ELEMENTS = 4096  # of a tensor that is written as text


def dumps(value: Any, what: str) -> str:
    """JSON text. ArgumentError names `what` and the key of something that JSON cannot hold."""
    return json.dumps(pack(value, what), allow_nan=False)


Special = Callable[[str, Any], Any]  # of the key of an object that begins with "$", and its content


def loads(text: Any, what: str, special: Special | None = None) -> Any:
    """The value of a text that `dumps` wrote. ParseError, which names `what`, for any other text.

    `special` reads objects of the caller's own: it raises ValueError for a key that it does not
    know.
    """
    try:
        return unpack(json.loads(text), special)
    except errors.Error:
        raise
    except WRONG as error:
        raise unreadable(what, error) from error


# Errors of reading a text that `dumps` did not write.
WRONG = (ValueError, TypeError, LookupError, RecursionError, RuntimeError, OverflowError)


def unreadable(what: str, error: Exception) -> errors.ParseError:
    return errors.ParseError(
        f"{what} of the checkpoint cannot be read: {type(error).__name__}: {error}",
        subject=what,
        advice="Nothing has changed. Load a checkpoint that Meron has saved.",
    )


def pack(value: Any, what: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, tuple):
        return {"$tuple": [pack(item, what) for item in value]}
    if isinstance(value, list):
        return [pack(item, f"{what}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        items = [[key, pack(item, f"{what}[{key!r}]")] for key, item in value.items()]
        if isinstance(value, collections.Counter):
            return {"$counter": items}
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(items)
        return {"$dict": [[pack(key, what), item] for key, item in items]}
    if isinstance(value, torch.Tensor) and value.numel() <= MOST_ELEMENTS:
        name = str(value.dtype).removeprefix("torch.")
        flat = value.detach().reshape(-1).tolist()
        return {"$tensor": [name, list(value.shape), pack(flat, what)]}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy's
        return pack(value.item(), what)
    raise errors.argument(
        f"{what} holds a {type(value).__name__}, which a checkpoint cannot: it is no number, text, "
        "list or dict",
        subject=what,
        advice="Leave it out, or save it by other means.",
    )


def unpack(value: Any, special: Special | None = None) -> Any:
    if isinstance(value, list):
        return [unpack(item, special) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        if key == "$float":
            return float(content)
        if key == "$tuple":
            return tuple(unpack(item, special) for item in content)
        if key == "$counter":
            pairs = [(unpack(k, special), unpack(v, special)) for k, v in content]
            return collections.Counter(dict(pairs))
        if key == "$dict":
            return {unpack(k, special): unpack(v, special) for k, v in content}
        if key == "$tensor":
            dtype, shape, flat = content
            return torch.tensor(unpack(flat), dtype=dtype_of(dtype)).reshape(shape)
        if key.startswith("$"):
            if special is None:
                raise ValueError(f"unknown object {key!r}")
            return special(key, content)
    return {key: unpack(item, special) for key, item in value.items()}


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is no dtype")
    return found

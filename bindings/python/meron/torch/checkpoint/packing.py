# SPDX-License-Identifier: Apache-2.0
"""State of Python objects as JSON, and back: what state_dict() of schedulers and scalers holds.

JSON has no tuples, no dicts with numbers as keys and no infinities, and schedulers have. They are
written as objects with one key that begins with "$".
"""

from __future__ import annotations

import collections
import json
import math
from typing import Any

import torch

from meron import errors

MOST_ELEMENTS = 4096  # of a tensor that is written as text


def dumps(value: Any, what: str) -> str:
    """JSON text. ArgumentError names `what` and the key of something that JSON cannot hold."""
    return json.dumps(pack(value, what), allow_nan=False)


def loads(text: str) -> Any:
    return unpack(json.loads(text))


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


def unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, content),) = value.items()
        if key == "$float":
            return float(content)
        if key == "$tuple":
            return tuple(unpack(item) for item in content)
        if key == "$counter":
            return collections.Counter({unpack(k): unpack(v) for k, v in content})
        if key == "$dict":
            return {unpack(k): unpack(v) for k, v in content}
        if key == "$tensor":
            dtype = getattr(torch, content[0])
            return torch.tensor(unpack(content[2]), dtype=dtype).reshape(content[1])
    return {key: unpack(item) for key, item in value.items()}

# SPDX-License-Identifier: Apache-2.0
"""torch.func and nested tensors over params out of use.

A transform wraps its arguments past PyTorch's dispatch, so the classes of guard.py see none of what
it does with them. A param itself may be wrapped by `grad` and its like: in a forward of its module
it has its values. A detached alias, and what vmap and functionalize wrap, keeps the memory that it
had before, which has none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from meron.torch.guard import Sharded, refuse_read
from meron.torch.torch_internals import (
    MAKE_NESTED,
    WRAP_FOR_FUNCTIONALIZE,
    WRAP_FOR_GRAD,
    WRAP_FOR_VMAP,
    replace_wrapping,
)


def refuse_aliases(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def wrap(tensor: Any, *args: Any) -> Any:
        if isinstance(tensor, Sharded) and not isinstance(tensor, torch.nn.Parameter):
            refuse_read(tensor, "torch.func of a detached param")
        return plain(tensor, *args)

    return wrap


def refuse_all(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def wrap(tensor: Any, *args: Any) -> Any:
        if isinstance(tensor, Sharded):
            refuse_read(tensor, "torch.func")
        return plain(tensor, *args)

    return wrap


def refuse_in_lists(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def make(given: Any, *args: Any, **options: Any) -> Any:
        refuse_within(given)
        return plain(given, *args, **options)

    return make


def refuse_within(given: Any) -> None:
    if isinstance(given, Sharded):
        refuse_read(given, "nested_tensor")
    if isinstance(given, (list, tuple)):
        for each in given:
            refuse_within(each)


replace_wrapping(MAKE_NESTED, refuse_in_lists)
replace_wrapping(WRAP_FOR_GRAD, refuse_aliases)
replace_wrapping(WRAP_FOR_VMAP, refuse_all)
replace_wrapping(WRAP_FOR_FUNCTIONALIZE, refuse_all)

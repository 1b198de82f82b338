# SPDX-License-Identifier: Apache-2.0
"""deepspeed.utils.torch: the version of torch, and small functions over it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from meron import errors

NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def numbers_of(version: object) -> tuple[int, ...]:
    """The leading numbers of a version, without zeros at their end: 2.10.0+cu128 is (2, 10)."""
    found = NUMBERS.match(str(version))
    if found is None:
        raise errors.argument(f"{version!r} is no version, such as 2.4", subject="version")
    numbers = [int(part) for part in found[0].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


class NoVersionError(errors.ArgumentError, AssertionError):
    """A call without a version. AssertionError is what DeepSpeed raises."""


def required_torch_version(min_version: object = None, max_version: object = None) -> bool:
    """True if torch's version is at least one number and at most another, such as 2.4."""
    if not min_version and not max_version:
        raise NoVersionError("required_torch_version takes min_version, max_version or both")
    own = numbers_of(torch.__version__)
    if min_version and numbers_of(min_version) > own:
        return False
    return not max_version or own <= numbers_of(max_version)


def register_grad_hook(param: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Any:
    """Calls `hook(param)` after each gradient of a param. Returns a handle with remove()."""
    return param.register_post_accumulate_grad_hook(hook)


def jit_script_compat(fn: Callable[..., Any]) -> Callable[..., Any]:
    """torch.compile of a function."""
    return torch.compile(fn)


__all__ = ["jit_script_compat", "register_grad_hook", "required_torch_version"]

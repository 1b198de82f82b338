# SPDX-License-Identifier: Apache-2.0
"""The state of meron.torch in a checkpoint's `extra`: a load checks it before it uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meron import errors
from meron.checkpoint import Checkpoint
from meron.torch.checkpoint import packing
from meron.torch.checkpoint.agreement import LoadError

OWN_KEY = "meron.torch"  # of the checkpoint's `extra`
VERSION = 1
PLAIN = (bool, int, float, str, type(None))

Check = Callable[[Any], bool]


def document_in(checkpoint: Checkpoint) -> dict[str, Any]:
    """The document of a checkpoint; {} if another program saved it. Local.

    Raises VersionError, ParseError that names a value of another kind than `save` writes.
    """
    own = checkpoint.extra.get(OWN_KEY, {})
    require(isinstance(own, dict), OWN_KEY)
    version = own.get("version", VERSION)
    require(type(version) is int, "version")
    if version > VERSION:
        raise errors.make(
            errors.VersionError.status,
            f"its state of meron.torch has version {version}; this one reads {VERSION}",
            subject=str(checkpoint.path),
            advice="Install a newer Meron.",
        )
    for key, check in CHECKS.items():
        require(key not in own or check(own[key]), key)
    found: dict[str, Any] = own
    return found


def require(right: bool, key: str) -> None:
    if not right:
        raise packing.unreadable(f"{key!r} of meron.torch's part", TypeError("a wrong value"))


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def is_dict_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def is_option(value: Any) -> bool:
    return all(isinstance(each, PLAIN) for each in (value if isinstance(value, list) else [value]))


def is_group(value: Any) -> bool:
    names = value.get("params") if isinstance(value, dict) else None
    return is_list_of(is_text)(names) and is_dict_of(is_option)(value)


def is_optimizer(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_text(value.get("class"))
        and isinstance(value.get("engine"), bool)
        and is_text(value.get("prefix", ""))
        and is_list_of(is_group)(value.get("groups"))
    )


CHECKS: dict[str, Check] = {
    "optimizers": is_list_of(is_optimizer),
    "aliases": is_dict_of(is_text),
    "skip_frozen": lambda value: isinstance(value, bool),
    "schedulers": is_list_of(is_text),
    "scaler": is_text,
    "extra_states": is_dict_of(is_text),
}


def check_options(optimizer: torch.optim.Optimizer, number: int, options: dict[str, Any]) -> None:
    """LoadError for an option of a group that is of another kind than the optimizer's own."""
    for key, value in options.items():
        own = optimizer.param_groups[number].get(key)
        if not is_alike(value, own):
            raise LoadError(
                f"param group {number} of {type(optimizer).__name__} has {key}={value!r} in the "
                f"checkpoint, and {own!r} here",
                subject=key,
                advice="Load a checkpoint that Meron has saved, or load with values_only.",
            )


def is_alike(value: Any, own: Any) -> bool:
    if value is None or own is None:
        return True
    if isinstance(own, (tuple, list)):
        same = isinstance(value, list) and len(value) == len(own)
        return same and all(map(is_alike, value, own))
    if isinstance(own, (bool, str)):
        return isinstance(value, type(own))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def give_state(target: Any, state: Any) -> None:
    """Calls load_state_dict of a scheduler or scaler. LoadError for anything that it raises."""
    try:
        target.load_state_dict(state)
    except errors.Error:
        raise
    except Exception as error:
        name = type(target).__name__
        raise LoadError(
            f"{name} does not take the state that the checkpoint has: {error!r}",
            subject=name,
            advice="Weights and optimizers are loaded. Load again without it.",
        ) from error


def check_state(target: Any, state: Any) -> None:
    """LoadError for a state that is surely not of this scheduler or scaler. Changes nothing.

    A target may have a method `check_state`, which raises for a state that it does not take.
    """
    name = type(target).__name__
    own = target.state_dict() if isinstance(target, torch.amp.GradScaler) else {}
    lacking = sorted(own.keys() - state.keys()) if isinstance(state, dict) else ["a dict"]
    if lacking:
        raise LoadError(
            f"the state that the checkpoint has for {name} lacks {', '.join(lacking)}",
            subject=name,
            advice="Give the object that was given to save, or none.",
        )
    if hasattr(target, "check_state"):
        target.check_state(state)

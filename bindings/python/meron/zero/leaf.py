# SPDX-License-Identifier: Apache-2.0
"""Leaf modules: gathered as one, whatever of them runs (a mixture's experts, say)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any, Union

import torch

from meron import errors
from meron.zero.config import KNOWN_MIXTURES, LeafModules
from meron.zero.owner import engine_of

# DeepSpeed's names, which meron.zero and meron.zero.utils have too.
__all__ = [
    "get_z3_leaf_modules",
    "set_z3_leaf_module",
    "set_z3_leaf_modules",
    "set_z3_leaf_modules_by_name",
    "set_z3_leaf_modules_by_suffix",
    "unset_z3_leaf_modules",
    "z3_leaf_module",
    "z3_leaf_parameter",
]

Wanted = Union[type, str]
CONTAINERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


def is_leaf(module: torch.nn.Module) -> bool:
    return bool(module.__dict__.get("_z3_leaf", False))


def z3_leaf_module(module: torch.nn.Module) -> bool:
    """True if a module is a leaf."""
    return is_leaf(module)


def z3_leaf_parameter(param: torch.Tensor) -> bool:
    """True if a param belongs to a leaf module."""
    return getattr(param, "ds_z3_leaf_module", None) is not None


def get_z3_leaf_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in model.modules() if is_leaf(module)]


def set_z3_leaf_module(module: torch.nn.Module, flag: bool) -> None:
    """Makes one module a leaf, or no leaf. Before `initialize`."""
    if engine_of(module) is not None:
        raise errors.StateError(
            f"{type(module).__name__} is in use by an engine: its units are made",
            advice="Choose leaf modules before initialize, or call engine.destroy() before.",
        )
    module.__dict__["_z3_leaf"] = flag
    for param in module.parameters():
        if flag or getattr(param, "ds_z3_leaf_module", None) is module:
            param.ds_z3_leaf_module = module if flag else None  # type: ignore[attr-defined]


def set_z3_leaf_modules(
    model: torch.nn.Module,
    classes_or_names: Iterable[Wanted] | Wanted,
    raise_if_not_found: bool = True,
) -> list[torch.nn.Module]:
    """Makes all modules of some classes leaves.

    Args:
        classes_or_names: classes (their subclasses count too), or names of classes, short or with
            the Python module.

    If `raise_if_not_found` is true, raises ArgumentError (a ValueError) for a class that does not
    occur.
    """
    return change_by_class(model, classes_or_names, True, raise_if_not_found)


def unset_z3_leaf_modules(
    model: torch.nn.Module,
    classes_or_names: Iterable[Wanted] | Wanted,
    raise_if_not_found: bool = True,
) -> list[torch.nn.Module]:
    """Undoes set_z3_leaf_modules."""
    return change_by_class(model, classes_or_names, False, raise_if_not_found)


def set_z3_leaf_modules_by_name(
    model: torch.nn.Module,
    module_names: Iterable[str] | str,
    flag: bool = True,
    raise_if_not_found: bool = True,
) -> tuple[list[torch.nn.Module], list[str]]:
    """Makes the modules at some paths leaves; returns them, and the paths not found."""
    return change(
        model, as_list(module_names), lambda path, _, name: path == name, flag, raise_if_not_found
    )


def set_z3_leaf_modules_by_suffix(
    model: torch.nn.Module,
    suffixes: Iterable[str] | str,
    flag: bool = True,
    raise_if_not_found: bool = True,
) -> tuple[list[torch.nn.Module], list[str]]:
    """The same for paths that end so."""
    return change(
        model,
        as_list(suffixes),
        lambda path, _, suffix: path.endswith(suffix),
        flag,
        raise_if_not_found,
    )


def change_by_class(
    model: torch.nn.Module,
    wanted: Iterable[Wanted] | Wanted,
    flag: bool,
    raise_if_not_found: bool,
) -> list[torch.nn.Module]:
    items: list[Any] = (
        list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]
    )
    for item in [wanted] if isinstance(wanted, torch.nn.Module) else items:
        if not isinstance(item, (type, str)):
            raise errors.argument(
                f"a leaf is chosen by its class or the name of it, not by a {type(item).__name__}",
                subject="classes_or_names",
                advice="Call set_z3_leaf_module(module, flag) for one module.",
            )
    return change(
        model, items, lambda _, module, item: fits(module, item), flag, raise_if_not_found
    )[0]


def fits(module: torch.nn.Module, wanted: Wanted) -> bool:
    if isinstance(wanted, type):
        return isinstance(module, wanted)
    return any(
        wanted in (kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}")
        for kind in type(module).__mro__
        if kind not in (torch.nn.Module, object)
    )


def as_list(names: Iterable[str] | str) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def change(
    model: torch.nn.Module,
    items: list[Wanted] | list[str],
    match: Callable[[str, torch.nn.Module, Any], bool],
    flag: bool,
    raise_if_not_found: bool,
) -> tuple[list[torch.nn.Module], list[str]]:
    matched: dict[torch.nn.Module, None] = {}
    missing = []
    for item in items:
        found = [m for path, m in model.named_modules() if match(path, m, item)]
        if not found:
            missing.append(item if isinstance(item, str) else item.__name__)
        matched.update(dict.fromkeys(found))
    if missing and raise_if_not_found:
        raise errors.argument(
            f"no module of {type(model).__name__} fits {', '.join(missing)}",
            subject=missing[0],
            advice="print(model) shows which there are.",
        )
    for module in matched:
        set_z3_leaf_module(module, flag)
    return list(matched), missing


def set_leaves_of_config(model: torch.nn.Module, leaf: LeafModules) -> None:
    """Makes leaves of the modules that a config selects, by `leaf_module` and
    `stage3_module_granularity_threshold`."""
    missing = change(model, list(leaf.classes), lambda _, m, item: fits(m, item), True, False)[1]
    missing = [name for name in missing if name not in KNOWN_MIXTURES]
    missing += set_z3_leaf_modules_by_name(model, leaf.names, True, False)[1]
    missing += set_z3_leaf_modules_by_suffix(model, leaf.name_suffixes, True, False)[1]
    if missing:
        warnings.warn(
            f"leaf_module: no module of {type(model).__name__} fits {', '.join(missing)}",
            stacklevel=3,
        )
    if leaf.granularity:
        set_small_leaves(model, leaf.granularity)


def set_small_leaves(module: torch.nn.Module, granularity: int) -> None:
    """Makes the outermost modules with less params per module than this leaves."""
    elements = sum(param.numel() for param in module.parameters())
    count = sum(1 for _ in module.modules())
    if (
        elements
        and count > 1
        and elements / count < granularity
        and not isinstance(module, CONTAINERS)
    ):
        set_z3_leaf_module(module, True)
        return
    for child in module.children():
        set_small_leaves(child, granularity)

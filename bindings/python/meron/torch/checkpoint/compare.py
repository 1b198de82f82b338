# SPDX-License-Identifier: Apache-2.0
"""Differences between a checkpoint and a model, found before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from meron.checkpoint import Checkpoint
from meron.torch.checkpoint.files import TORCH_DTYPES
from meron.torch.checkpoint.names import Names

SHOWN = 10  # names of each list in a message


@dataclass
class Differences:
    """Names of tensors, as in state_dict(); "exp_avg of NAME" for states.

    Attributes:
        missing: the model has them, the checkpoint does not.
        unexpected: the checkpoint has them, the model does not.
        mismatched: both have them, of other shapes: with both.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)

    def text(self, strict: bool) -> str:
        """The differences that matter, as text; empty if there are none."""
        lists = {"of another shape or dtype": self.mismatched}
        if strict:
            lists = {"missing": self.missing, "unexpected": self.unexpected, **lists}
        return "; ".join(
            f"{what}: {', '.join(names[:SHOWN])}"
            + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
            for what, names in lists.items()
            if names
        )


def source_of(names: Names, checkpoint: Checkpoint, name: str, kind: str = "values") -> str | None:
    """The checkpoint's name of a tensor: any of its names, if it is tied."""
    for each in names.all_names(name):
        if (kind, each) in checkpoint.tensors:
            return each
    return None


def compare_values(
    names: Names,
    checkpoint: Checkpoint,
    own: dict[str, Any],
    given: Callable[[str], bool] | None = None,
) -> Differences:
    """Params and buffers. Those for which `given` is true may be missing or unexpected."""
    found = Differences()
    used = set()
    wanted: dict[str, tuple[tuple[int, ...], torch.dtype, bool]] = {}
    for name, (unit, i) in names.params.items():
        frozen = i in unit.frozen
        wanted[name] = tuple(unit.handles[i].shape), torch.float32, frozen
    for name, tensor in names.others.items():
        frozen = isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad
        wanted[name] = tuple(tensor.shape), tensor.dtype, frozen
    for name, (shape, dtype, frozen) in wanted.items():
        source = source_of(names, checkpoint, name)
        if source is None:
            if not (frozen and own.get("skip_frozen")):
                found.missing.append(name)
            continue
        used.update(names.all_names(name))
        entry = checkpoint.tensors["values", source]
        same = TORCH_DTYPES[entry["dtype"]].is_floating_point == dtype.is_floating_point
        if tuple(entry["shape"]) != shape or not same:
            found.mismatched.append(
                f"{name} ({entry['dtype']} {list(entry['shape'])} in the checkpoint, "
                f"{list(shape)} here)"
            )
    known = used | names.aliases.keys() | names.temporary.keys()
    found.unexpected += [
        name for kind, name in checkpoint.tensors if kind == "values" and name not in known
    ]
    if given is not None:
        found.missing = [n for n in found.missing if not any(map(given, names.all_names(n)))]
        found.unexpected = [name for name in found.unexpected if not given(name)]
    for each in (found.missing, found.unexpected, found.mismatched):
        each.sort()
    return found

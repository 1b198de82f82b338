# SPDX-License-Identifier: Apache-2.0
"""All weights of a sharded model on rank 0, or in a file of it: a unit at a time. Collective."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from meron import errors
from meron.torch.checkpoint.agreement import together
from meron.torch.sharding import unit_of
from meron.torch.state_dict import with_values
from meron.torch.values.full import exact_param
from meron.zero.drive import drive_errors
from meron.zero.targets import Target, context_of, targets_of
from meron.zero.zero_to_fp32 import NAMES, replacing, write_safetensors


def names_of(module: torch.nn.Module, exclude_frozen: bool) -> dict[str, Target]:
    """The tensors of a module's state dict, tied ones under each of their names."""
    return {
        name: target
        for name, target in targets_of(module).items()
        if not (
            exclude_frozen
            and isinstance(target.tensor, torch.nn.Parameter)
            and not target.tensor.requires_grad
        )
    }


def stream(targets: dict[str, Target]) -> Iterator[tuple[str, torch.Tensor]]:
    """Full tensors in host memory, the values of owners, each once and by its first name."""
    seen = set()
    for name, target in targets.items():
        if target.identity not in seen:
            seen.add(target.identity)
            value = target.tensor.detach() if target.place is None else exact_param(target.tensor)
            yield name, value.cpu()


def state_dict_on_rank0(
    module: torch.nn.Module, exclude_frozen: bool = False
) -> dict[str, torch.Tensor] | None:
    """The state dict, in the dtypes of the params, on rank 0; None on the others. Of tensors one at
    a time is full on those. Collective."""
    targets = names_of(module, exclude_frozen)
    context = context_of(target.place for target in targets.values())
    found: dict[object, torch.Tensor] = {}
    for name, value in stream(targets):
        if context.rank == 0:
            of_module = unit_of(targets[name].tensor) is None
            found[targets[name].identity] = value.clone() if of_module else value
    if context.rank != 0:
        return None
    return {name: found[target.identity] for name, target in targets.items()}


def full_state_dict(
    module: torch.nn.Module, exclude_frozen_parameters: bool = False
) -> dict[str, torch.Tensor]:
    """`module.state_dict()` with all values, on every rank, in host memory and in the dtypes of the
    params. Collective.

    Args:
        module: a model that meron.zero has sharded, a part of it, or its engine.
        exclude_frozen_parameters: leaves out params that do not require gradients.

    Raises ArgumentError for an object that is no module.
    """
    if not isinstance(module, torch.nn.Module):
        raise errors.argument(
            f"full_state_dict takes a module, not a {type(module).__name__}",
            subject="module",
            advice="Pass the model or its engine, on all ranks.",
        )
    with with_values():
        state = dict(module.state_dict())
    if exclude_frozen_parameters:
        drop_frozen(module, state)
    return state


def drop_frozen(module: torch.nn.Module, state: dict[str, Any], prefix: str = "") -> None:
    """Removes the params that do not require gradients from a state dict."""
    for name, param in module.named_parameters(remove_duplicate=False):
        if not param.requires_grad:
            state.pop(prefix + name, None)


def write_weights(module: torch.nn.Module, path: Path, exclude_frozen: bool = False) -> None:
    """Writes the state dict as one file. A failed write leaves no partial file. Collective.

    A path that ends in .safetensors is written one tensor at a time, and tied tensors once. Any
    other path is written by torch.save, for which rank 0 holds the full state dict.

    Raises, on all ranks, InputOutputError and others of rank 0's drive.
    """
    if path.suffix == ".safetensors":
        write_streamed(module, path, exclude_frozen)
        return
    state = state_dict_on_rank0(module, exclude_frozen)
    places = [target.place for target in targets_of(module).values()]
    with together(context_of(places)), drive_errors():
        if state is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                torch.save(state, file)


def write_streamed(module: torch.nn.Module, path: Path, exclude_frozen: bool) -> None:
    targets = names_of(module, exclude_frozen)
    context = context_of(target.place for target in targets.values())
    first: dict[object, str] = {}
    for name, target in targets.items():
        first.setdefault(target.identity, name)
    entries = [
        (name, targets[name].tensor.dtype, tuple(targets[name].tensor.shape))
        for name in first.values()
    ]
    with together(context):
        unknown = [f"{name} ({dtype})" for name, dtype, _ in entries if dtype not in NAMES]
        if unknown:
            raise errors.UnsupportedError(
                f"safetensors has no dtype for {', '.join(unknown)}",
                subject=unknown[0],
                advice="Save by torch.save, as pytorch_model.bin.",
            )
    values = stream(targets)
    failure: errors.Error | None = None
    if context.rank == 0:
        try:
            with drive_errors():
                path.parent.mkdir(parents=True, exist_ok=True)
                write_safetensors(path, entries, (value for _, value in values))
        except errors.ResourceError as error:
            failure = error
    for _ in values:  # the others' part of it; and rank 0's, where its drive has failed
        pass
    with together(context):
        if failure is not None:
            raise failure

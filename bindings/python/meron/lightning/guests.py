# SPDX-License-Identifier: Apache-2.0
"""The parts of a run besides its model: callbacks, compilation, norms of gradients."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch

import meron.torch as mt
from meron.lightning.trees import Tree
from meron.torch.sharding import unit_of
from meron.torch.values.state import grad_norm as norm_of_sharded
from meron.zero.owner import engine_of

# Callbacks that cannot work on shards: the path in the tree, why, what to use.
REFUSED = {
    "pl.callbacks.StochasticWeightAveraging": (
        "it averages full copies of the model's parameters, and writes to them",
        "Average saved checkpoints instead.",
    ),
    "pl.callbacks.WeightAveraging": (
        "it keeps a full copy of the model on every rank, and swaps the parameters in place",
        "Average saved checkpoints instead.",
    ),
    "pl.callbacks.BaseFinetuning": (
        "it keeps param groups by the model's parameters, and here they hold shards",
        "Set requires_grad in configure_model or on_fit_start, and pass all params to the "
        "optimizer.",
    ),
}


def check_callbacks(tree: Tree, trainer: Any, engine_counts: bool, failure: Any) -> None:
    """Raises for a callback that would do something wrong, and says why."""
    refused = dict(REFUSED)
    if engine_counts:
        refused["pl.callbacks.GradientAccumulationScheduler"] = (
            "gradient_accumulation='engine' has one number of micro-batches",
            "Leave gradient_accumulation at 'lightning'.",
        )
    for path, (reason, advice) in refused.items():
        try:
            kind = tree.get(path)
        except AttributeError:  # a newer callback
            continue
        for callback in trainer.callbacks:
            if isinstance(callback, kind):
                raise failure(
                    f"{type(callback).__name__} is not supported by MeronStrategy: {reason}. "
                    f"{advice}"
                )


def check_compiled(model: Any) -> None:
    """RuntimeError for a LightningModule that torch.compile was given whole."""
    if getattr(model, "_compiler_ctx", None) is not None:
        raise RuntimeError(
            f"torch.compile of the whole {type(model).__name__} is not supported by MeronStrategy: "
            "it would record the gathers of its parts. Compile blocks of it, each by "
            "block.compile(), in configure_model."
        )


def grad_norm(
    module: torch.nn.Module, norm_type: float | int | str, group_separator: str = "/"
) -> dict[str, torch.Tensor]:
    """Norms of each param's gradient, and of all together, over all ranks. Collective.

    As `lightning.pytorch.utilities.grad_norm`, also for sharded params, whose `grad` is None. The
    gradients are those that the optimizer will see; if the engine counts micro-batches, there are
    none before the last of an accumulation. All ranks call it.

    Args:
        norm_type: a power above 0, or "inf".
    """
    power = float(norm_type)
    if power <= 0:
        raise ValueError(
            f"`norm_type` must be a positive number or 'inf' (infinity norm). Got {norm_type}"
        )
    norms: dict[str, torch.Tensor] = {}
    engine = engine_of(module)
    waits = engine is not None and not engine.is_gradient_accumulation_boundary()
    for name, param in module.named_parameters():
        if unit_of(param) is not None:
            if waits or not param.requires_grad or mt.local_grad(param) is None:
                continue
            norm = norm_of_sharded([param], power)
        elif param.grad is not None:
            norm = param.grad.detach().norm(power)
        else:
            continue
        norms[f"grad_{power}_norm{group_separator}{name}"] = norm
    if norms:
        norms[f"grad_{power}_norm_total"] = torch.tensor(list(norms.values())).norm(power)
    return norms


@functools.cache
def norm_functions(tree: Tree) -> tuple[Any, Any]:
    """Lightning's `grad_norm`, and one that takes sharded modules too."""
    plain = tree.get("pl.utilities.grads.grad_norm")

    @functools.wraps(plain)
    def chosen(module: torch.nn.Module, *args: Any, **kwargs: Any) -> dict[str, Any]:
        sharded = any(unit_of(param) is not None for param in module.parameters())
        found: dict[str, Any] = (grad_norm if sharded else plain)(module, *args, **kwargs)
        return found

    return plain, chosen


def hook_norms(tree: Tree, module: torch.nn.Module) -> None:
    """Lets Lightning's `grad_norm` see sharded gradients, where Lightning and the module's own
    files have it."""
    plain, chosen = norm_functions(tree)
    names = [f"{tree.pl.__name__}.utilities", f"{tree.pl.__name__}.utilities.grads"]
    names += [kind.__module__ for kind in type(module).__mro__]
    for name in names:
        place = sys.modules.get(name)
        if place is not None and getattr(place, "grad_norm", None) is plain:
            place.grad_norm = chosen  # type: ignore[attr-defined]

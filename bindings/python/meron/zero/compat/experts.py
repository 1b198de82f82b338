# SPDX-License-Identifier: Apache-2.0
"""deepspeed.moe.utils: sorts the params of a model by whether they belong to experts.

Scripts call these functions on every model. Meron has no MoE layers. A param belongs to an expert
only if the script marks it, by `param.allreduce = False`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union

import torch

from meron import errors
from meron.zero.compat.refused import MIXTURE

Group = dict[str, Any]
Groups = Union[Group, tuple[Group, ...], list[Group]]
Split = tuple[list[torch.Tensor], list[torch.Tensor]]

MOST_ELEMENTS = 178956971  # DeepSpeed's limit on a group of experts


def has_moe_layers(m: torch.nn.Module) -> tuple[bool, int]:
    """Whether a module has MoE layers of DeepSpeed, and the number of their experts: (False, 0)."""
    if not isinstance(m, torch.nn.Module):
        raise errors.argument(
            f"has_moe_layers takes a torch.nn.Module, not a {type(m).__name__}", subject="m"
        )
    return False, 0


def is_moe_param(param: torch.Tensor) -> bool:
    """True if a param is marked as an expert's, by the attribute `allreduce`."""
    return not getattr(param, "allreduce", True)


def split_params_into_shared_and_expert_params(params: Iterable[torch.Tensor]) -> Split:
    """The params that all ranks share, and those of experts."""
    shared: list[torch.Tensor] = []
    expert: list[torch.Tensor] = []
    for param in params:
        (expert if is_moe_param(param) else shared).append(param)
    return shared, expert


def split_params_grads_into_shared_and_expert_params(group: Iterable[torch.Tensor]) -> Split:
    """As split_params_into_shared_and_expert_params, with the gradients that exist."""
    shared, expert = split_params_into_shared_and_expert_params(
        param for param in group if param.grad is not None
    )
    return gradients(shared), gradients(expert)


def gradients(params: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [param.grad.to(param.dtype) for param in params if param.grad is not None]


def split_params_into_different_moe_groups_for_optimizer(
    param_groups: Groups, max_group_size: float | None = MOST_ELEMENTS
) -> list[Group]:
    """The param groups as a list. Their params become lists.

    Args:
        param_groups: a group, or a list or tuple of them.
        max_group_size: elements of a group of experts; without effect, as there is none.

    Raises ArgumentError (a ValueError) for another type, UnsupportedError for params of experts.
    """
    if isinstance(param_groups, dict):
        groups: list[Group] = [param_groups]
    elif isinstance(param_groups, (list, tuple)):
        groups = param_groups if isinstance(param_groups, list) else list(param_groups)
    else:
        raise errors.argument(
            f"param_groups is a {type(param_groups).__name__}, not a dict or a list of dicts",
            subject="param_groups",
            advice="Pass a group, such as {'params': list(model.parameters()), 'name': 'all'}.",
        )
    for group in groups:
        group["params"] = list(group["params"])
        refuse_experts(group["params"])
    return groups


def refuse_experts(params: Iterable[torch.Tensor]) -> None:
    _, experts = split_params_into_shared_and_expert_params(params)
    if experts:
        raise errors.UnsupportedError(
            f"Meron does not have: param groups of experts ({len(experts)} params have "
            "allreduce=False)",
            subject="param_groups",
            advice=MIXTURE,
        )


def is_moe_param_group(param_group: Group) -> bool:
    """True if a param group is marked as one of experts, by its key `moe`."""
    return bool(param_group.get("moe", False))


def configure_moe_param_groups(model_parameters: list[Any]) -> list[Any]:
    """Param groups of a list of params, or of a list of param groups.

    Raises ArgumentError (a TypeError too) for another type, and for items that are neither.
    """
    if not isinstance(model_parameters, list):
        raise not_groups("model_parameters", model_parameters, "a list")
    for item in model_parameters:
        if not isinstance(item, (torch.Tensor, dict)):
            raise not_groups("an item of model_parameters", item, "a tensor or a param group")
    if not model_parameters or any("moe" in item for item in model_parameters if is_group(item)):
        return model_parameters
    if is_group(model_parameters[0]):
        return split_params_into_different_moe_groups_for_optimizer(model_parameters)
    group = {"params": model_parameters, "name": "dense-params"}
    return split_params_into_different_moe_groups_for_optimizer(group)


def is_group(item: Any) -> bool:
    return isinstance(item, dict)


class NotGroupsError(errors.ArgumentError, TypeError, AssertionError):
    """Something else in place of params. The bases are what DeepSpeed raises."""


def not_groups(what: str, found: Any, wanted: str) -> errors.Error:
    return NotGroupsError(
        f"{what} is a {type(found).__name__}, not {wanted}", subject="model_parameters"
    )


__all__ = [
    "configure_moe_param_groups",
    "has_moe_layers",
    "is_moe_param",
    "is_moe_param_group",
    "split_params_grads_into_shared_and_expert_params",
    "split_params_into_different_moe_groups_for_optimizer",
    "split_params_into_shared_and_expert_params",
]

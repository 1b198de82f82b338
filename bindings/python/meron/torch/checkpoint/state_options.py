# SPDX-License-Identifier: Apache-2.0
"""StateDictOptions of torch.distributed.checkpoint, as the functions of this package take them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from meron import errors
from meron.torch.torch_internals import FQN_MODIFIERS, WRAPPERS


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of torch's class, with its defaults: importing that one takes a second."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = FQN_MODIFIERS


FIELDS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Options)}


def options_from(given: Any) -> Options:
    """ArgumentError naming an option that Meron does not have, or that contradicts another."""
    if given is None:
        return Options()
    if not dataclasses.is_dataclass(given) or isinstance(given, type):
        raise errors.argument(
            f"options is a {type(given).__name__}",
            subject="options",
            advice="Pass torch.distributed.checkpoint.state_dict.StateDictOptions(...).",
        )
    values = {name: getattr(given, name, default) for name, default in FIELDS.items()}
    chosen = Options(**values)
    if chosen.broadcast_from_rank0 and not chosen.full_state_dict:
        raise errors.argument(
            "broadcast_from_rank0=True needs full_state_dict=True", subject="broadcast_from_rank0"
        )
    if chosen.dsd_fqn_modifiers != FIELDS["dsd_fqn_modifiers"]:
        raise errors.argument(
            f"dsd_fqn_modifiers={chosen.dsd_fqn_modifiers!r}: names are those of state_dict()",
            subject="dsd_fqn_modifiers",
            advice="Leave it out, and rename the keys of the state dict.",
        )
    return chosen


def refuse_short_names(options: Options) -> None:
    """ArgumentError for keep_submodule_prefixes=False where no submodules were given."""
    if not options.keep_submodule_prefixes:
        raise errors.argument(
            "keep_submodule_prefixes=False needs submodules, as get_model_state_dict takes them",
            subject="keep_submodule_prefixes",
            advice="Leave it out; names are those of the model's state_dict().",
        )


def refuse_submodules(submodules: Any) -> None:
    if submodules:
        raise errors.argument(
            "submodules: the states of an optimizer are returned for all its params",
            subject="submodules",
            advice="Leave them out, and choose names of the dict that is returned.",
        )


def prefixes_of(model: Any, submodules: Any, options: Options) -> list[str]:
    """The prefixes of the names of some submodules' tensors; empty for the whole model."""
    if not submodules:
        refuse_short_names(options)
        return []
    wanted = set(submodules)
    found: dict[torch.nn.Module, str] = {}
    roots = {"": model} if isinstance(model, torch.nn.Module) else model
    for key, root in roots.items():
        for path, part in root.named_modules():
            if part in wanted:
                prefix = ".".join(name for name in (key, path) if name) + "."
                for wrapper in WRAPPERS:
                    prefix = prefix.replace(wrapper, "")
                found[part] = prefix
    lost = [type(part).__name__ for part in wanted if part not in found]
    if lost:
        raise errors.argument(
            f"submodules has a {lost[0]} that is not in the model", subject="submodules"
        )
    if len(found) > 1:
        refuse_short_names(options)
    return sorted(found.values())

# SPDX-License-Identifier: Apache-2.0
"""Weights that rank 0 alone reads, into a sharded model.

    state = load_state_dict("model.safetensors")     # rank 0 reads; the others have {}
    DistModule(model).load_state_dict(state)         # all ranks

Each value crosses the wire once; besides its shards a rank holds one unit and one bucket at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import torch

import meron
from meron import errors
from meron.torch.checkpoint.exchange import object_from
from meron.torch.sharding import unit_of
from meron.torch.torch_internals import IncompatibleKeys
from meron.zero import comm
from meron.zero.scattering import agree, send, share_table
from meron.zero.targets import (
    compare,
    context_of,
    extra_states_of,
    loaded_names,
    targets_of,
    write_targets,
)
from meron.zero.weight_files import read_weights
from meron.zero.wrapper import Wrapper

__all__ = [
    "DistModule",
    "broadcast_and_shard_state_dict",
    "load_state_dict",
    "meta_state_dict",
    "shard_broadcasted_state_dict",
]


def load_state_dict(
    checkpoint_file: str | os.PathLike[str], device_map: Any = None
) -> dict[str, torch.Tensor]:
    """The tensors of a file of weights on rank 0, and an empty dict on the other ranks. Local.

    Args:
        checkpoint_file: a safetensors file, which is mapped; or a file of torch.save. Only the
            tensors of the latter are read (weights_only).
        device_map: None, a device, or a dict of devices by prefix of a name ("" is all others).

    Raises NotFoundError, CorruptError.
    """
    if comm.get_rank() != 0:
        return {}
    return {
        name: value.to(device_of(device_map, name))
        for name, value in read_weights(checkpoint_file).items()
    }


def device_of(device_map: Any, name: str) -> Any:
    if not isinstance(device_map, Mapping):
        return device_map or "cpu"
    fitting = [p for p in device_map if not p or name == p or name.startswith(f"{p}.")]
    return device_map[max(fitting, key=len)] if fitting else "cpu"


def meta_state_dict(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The params and persistent buffers of a module, by the names of its state dict. Functions of
    this file read only their shapes, dtypes and owners. Local."""
    return {name: target.tensor for name, target in targets_of(module).items()}


def broadcast_and_shard_state_dict(
    state_dict: Mapping[str, torch.Tensor],
    meta_sharded_state_dict: Mapping[str, torch.Tensor],
    sharded_state_dict: MutableMapping[str, torch.Tensor],
) -> None:
    """Sends full tensors from rank 0 to all ranks. Collective; rank 0 calls this, and the others
    `shard_broadcasted_state_dict`.

    Args:
        state_dict: full tensors.
        meta_sharded_state_dict: a param or tensor for each, as `meta_state_dict(module)`.
        sharded_state_dict: receives, by name, a copy of this rank's shard of a sharded param, flat
            (its `ds_tensor`), and full copies of other tensors.

    Raises ValueError on another rank than 0, and on all ranks for names or shapes that
    meta_sharded_state_dict does not have.
    """
    context = meta_context(meta_sharded_state_dict)
    if context.rank != 0:
        raise errors.argument(
            f"broadcast_and_shard_state_dict is of rank 0, and this is rank {context.rank}",
            advice="Call shard_broadcasted_state_dict on the other ranks.",
        )
    scatter(context, state_dict, meta_sharded_state_dict, sharded_state_dict)


def shard_broadcasted_state_dict(
    meta_sharded_state_dict: Mapping[str, torch.Tensor],
    sharded_state_dict: MutableMapping[str, torch.Tensor],
) -> None:
    """Receives what rank 0 sends by `broadcast_and_shard_state_dict`. Collective.

    Raises ValueError on rank 0; else as that.
    """
    context = meta_context(meta_sharded_state_dict)
    if context.rank == 0:
        raise errors.argument(
            "shard_broadcasted_state_dict is of the ranks that receive, and this is rank 0",
            advice="Call broadcast_and_shard_state_dict on rank 0.",
        )
    scatter(context, {}, meta_sharded_state_dict, sharded_state_dict)


def meta_context(metas: Mapping[str, torch.Tensor]) -> meron.Context:
    return context_of(unit_of(tensor) for tensor in metas.values())


def scatter(
    context: meron.Context,
    state: Mapping[str, Any],
    metas: Mapping[str, torch.Tensor],
    shards: MutableMapping[str, torch.Tensor],
) -> None:
    table = share_table(context, state)
    wrong = [table.wrong] if table.wrong else []
    wrong += [f"'{name}' is no tensor" for name in table.objects]
    for name, entry in table.entries.items():
        if name not in metas:
            wrong.append(f"'{name}' is not in meta_sharded_state_dict")
        elif tuple(metas[name].shape) != entry.shape:
            wrong.append(f"'{name}' has shape {entry.shape}, not {tuple(metas[name].shape)}")
    places = [unit_of(metas[name]) for name in table.entries if name in metas]
    agree(context, "broadcast_and_shard_state_dict", wrong, [p for p in places if p is not None])
    for entry, value in send(context, table.entries.values(), state):
        place = unit_of(metas[entry.name])
        if place is not None:
            shard_range = place[0].shard_range(place[1])
            value = value.reshape(-1)[shard_range.start : shard_range.stop]
        shards[entry.name] = value.clone()


class DistModule(Wrapper):
    """A module whose load_state_dict takes full tensors of rank 0. Its attributes, forward and
    state_dict are the module's; so are attributes that are set on it."""

    def __setattr__(self, name: str, value: Any) -> None:
        module = self.__dict__.get("module")
        if name == "module":
            self.__dict__["module"] = value
        elif module is None:  # in __init__
            super().__setattr__(name, value)
        else:
            setattr(module, name, value)
            if name == "training":
                super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.module, name)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads rank 0's full tensors into the module on all ranks. Collective.

        Params are written in place, so optimizers that hold them stay valid. For tied params one
        name is enough. Persistent buffers and extra states also receive rank 0's values.

        Args:
            state_dict: read on rank 0 only; the others may pass {}.
            strict: False skips entries that only the module or only the state dict has.
            assign: gives values to params and buffers that are on the device meta and not sharded.

        Returns:
            missing_keys and unexpected_keys, equal on all ranks.

        Raises LoadError (a ValueError and RuntimeError), on all ranks and before anything changes:
        keys that are missing or unexpected, other shapes, or what would stay on the device meta.
        ArgumentError in the same way for an extra state that cannot be pickled.
        """
        targets = targets_of(self.module)
        context = context_of(target.place for target in targets.values())
        table = share_table(context, state_dict)
        missing, unexpected, wrong = compare(self.module, targets, table, assign)
        if strict:
            wrong += listed("Missing", missing) + listed("Unexpected", unexpected)
        chosen = loaded_names(targets, table)
        places = [targets[name].place for name in chosen]
        agree(
            context,
            f"load_state_dict of {type(self.module).__name__}",
            wrong,
            [place for place in places if place is not None],
        )
        extra = extra_states_of(self.module)
        shared = {
            name: object_from(context, 0, state_dict.get(name), name)
            for name in table.objects
            if name in extra
        }
        write_targets(targets, send(context, [table.entries[n] for n in chosen], state_dict))
        tensors = [entry for name, entry in table.entries.items() if name in extra]
        for entry, value in send(context, tensors, state_dict):
            extra[entry.name].set_extra_state(value.clone())
        for name, value in shared.items():
            extra[name].set_extra_state(value)
        return IncompatibleKeys(missing, unexpected)


def listed(what: str, names: Iterable[str]) -> list[str]:
    return [f"{what} key(s): {', '.join(names)}."] if names else []

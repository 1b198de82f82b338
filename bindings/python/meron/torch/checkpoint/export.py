# SPDX-License-Identifier: Apache-2.0
"""save_pretrained(): weights as transformers and others read them."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch

from meron._call_names import calling
from meron.torch.checkpoint.agreement import from_rank, require_same, together
from meron.torch.checkpoint.names import Models, Names
from meron.torch.checkpoint.save import check_in_use, check_values, others_of
from meron.torch.tensors import DTYPES, dtype_name


@calling("mt.save_pretrained")
def save_pretrained(
    model: Models,
    folder: str | os.PathLike[str],
    *,
    dtype: torch.dtype | None = None,
    max_file_bytes: int = 5_000_000_000,
    overwrite: bool = False,
) -> None:
    """Writes a sharded model's weights as Hugging Face publishes them. Collective.

    model.safetensors, or several files with an index, with the names of state_dict(); each rank
    writes its own part, and nothing is gathered. Tied weights are written once, by their first
    name, as transformers does. Buffers are rank 0's. If the model has a `config` with
    save_pretrained, rank 0 saves that too, with the dtype of the files, so transformers'
    from_pretrained reads the folder.

    Args:
        folder: which all ranks see; made if it is not there. Its other files stay.
        dtype: of the floating-point values in the files; None is each param's own.
        max_file_bytes: a file is closed before it would exceed it.
        overwrite: replace a model that is there.

    Raises, on all ranks: ArgumentError, DuplicateError (a model is there), StateError (a param is
    in use), NoSpaceError, InputOutputError, GroupError.
    """
    names = Names(model)
    sharding = names.sharding
    context = sharding.context
    others = []
    kind = None
    own_folder = ""
    with together(context):
        own_folder = os.fsdecode(folder)
        sharding.finish_step()  # of a rank that was interrupted in it, before the ranks exchange
    first_folder = from_rank(context, own_folder)
    with together(context):
        require_same(context, first_folder, own_folder, "folder", "Give all ranks the same.")
        check_in_use(names)
        check_values(names)
        kind = None if dtype is None else dtype_name(dtype, "dtype")
        others = others_of(names, skip_frozen=False)
    units = names.units()
    sharding.drop(units)
    try:
        context.export(
            folder,
            dtype=kind,
            max_file_bytes=max_file_bytes,
            mapping=names.mapping(sharding.units),
            tensors=others,
            overwrite=overwrite,
        )
    finally:
        sharding.hold(units)
    with together(context):
        config = getattr(names.roots.get(""), "config", None)
        if context.rank == 0 and hasattr(config, "save_pretrained"):
            config_with(config, dtype or dtype_of_params(names)).save_pretrained(folder)


def dtype_of_params(names: Names) -> torch.dtype | None:
    """The dtype of the first floating-point param, as transformers has a model's."""
    dtypes = (DTYPES[unit.handles[i].dtype_name] for unit, i in names.params.values())
    return next((dtype for dtype in dtypes if dtype.is_floating_point), None)


def config_with(config: Any, dtype: torch.dtype | None) -> Any:
    """A copy of a config of transformers that says what dtype the files have."""
    key = "dtype" if hasattr(config, "dtype") else "torch_dtype"  # the latter before 4.56
    if dtype is None or not hasattr(config, key):
        return config
    copied = copy.copy(config)
    setattr(copied, key, str(dtype).removeprefix("torch."))
    return copied

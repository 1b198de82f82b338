# SPDX-License-Identifier: Apache-2.0
"""Meron for PyTorch: any torch.nn.Module, partitioned over ranks, in place.

    import meron.torch as mt

    model = mt.shard(GPT(), units=Block)                    # parameters
    optimizer = mt.shard_optimizer(model, torch.optim.AdamW(model.parameters()))
    for batch in batches:
        model(batch).backward()                             # gradients reach their owners
        optimizer.step()                                    # each rank updates its part

Start it with `meron run -n 2 python train.py` or with torchrun. Every rank runs the same program.
`meron.zero` has the same with DeepSpeed's names. docs/torch.md compares, name by name.
"""

from __future__ import annotations

from meron import _needs_torch  # noqa: F401 - says so if PyTorch is missing
from meron.torch import transforms  # noqa: F401  (makes torch.func refuse params without values)
from meron.torch.api import (
    MixedPrecision,
    no_sync,
    prefetch,
    reshard,
    set_is_last_backward,
    set_requires_gradient_sync,
    shard,
    unshard,
)
from meron.torch.checkpoint import (
    Loaded,
    SaveHandle,
    load,
    load_pretrained,
    save,
    save_pretrained,
)
from meron.torch.destroy import destroy
from meron.torch.gradients import zero_grad as _zero_grad  # noqa: F401  (replaces torch.nn.Module.zero_grad)
from meron.torch.optim import grad_scaler  # noqa: F401  (makes torch.amp.GradScaler see shards)
from meron.torch.optim.clipping import clip_grad_norm_ as _torchs_clip_grad_norm  # noqa: F401 - installed
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.in_place import InPlace
from meron.torch.optim.rules import SGD, Adagrad, Adam, AdamW, Lion
from meron.torch.optim.shards import shard_optimizer
from meron.torch.values.full import full_param
from meron.torch.values.state import (
    clip_grad_norm_,
    full_grad,
    full_optimizer_state,
    local_grad,
    local_param,
    set_full_grad,
    set_full_optimizer_state,
    set_full_param,
)
from meron.torch.world import context_for

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "EngineOptimizer",
    "InPlace",
    "Lion",
    "Loaded",
    "MixedPrecision",
    "SaveHandle",
    "clip_grad_norm_",
    "context_for",
    "destroy",
    "full_grad",
    "full_optimizer_state",
    "full_param",
    "load",
    "load_pretrained",
    "local_grad",
    "local_param",
    "no_sync",
    "prefetch",
    "reshard",
    "save",
    "save_pretrained",
    "set_full_grad",
    "set_full_optimizer_state",
    "set_full_param",
    "set_is_last_backward",
    "set_requires_gradient_sync",
    "shard",
    "shard_optimizer",
    "unshard",
]

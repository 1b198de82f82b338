# SPDX-License-Identifier: Apache-2.0
"""Full values of a param: those that a forward sees, and those of its owners.

They differ if the plan has a codec for params: gathered values have been encoded and decoded, a
rank's own part too. Updates change the owners' values, so a save writes these.
"""

from __future__ import annotations

import torch

from meron._native import call, lib, new
from meron.torch.optim.replacement import trained_by
from meron.torch.optim.states import read_state
from meron.torch.residency.host import gather_view
from meron.torch.sharding import placed, sharding_with
from meron.torch.tensors import DTYPES, tensor_of
from meron.torch.unit import ShardedUnit


def full_param(param: torch.Tensor) -> torch.Tensor:
    """A copy of a sharded param's values, unsharded, on every rank, in host memory. Collective;
    blocks on peers.

    The values that a forward sees: decoded (lossy), if the plan has a codec for params.
    """
    unit, i = placed(param)
    if i in unit.unmade:
        unit.require_values()
    unit.sharding.finish_step()
    with unit.unit.gather(tier="host") as gather:
        whole = tensor_of(gather_view(gather, unit.handles[i]), unit.handles[i].shape, None)
        return whole.clone()


def exact_param(param: torch.Tensor) -> torch.Tensor:
    """A copy as full_param's, of the exact values: no codec was applied."""
    unit, i = placed(param)
    if not has_own(unit, i):
        return full_param(param)
    return whole_of(unit, i, own_part(unit, i)).to(DTYPES[unit.handles[i].dtype_name])


def has_own(unit: ShardedUnit, i: int) -> bool:
    """True if owners have other values than a gather returns, and these can be read now."""
    sharding = unit.sharding
    return sharding.coded and not (sharding.packs and i in unit.frozen) and unit.uses == 0


def own_part(unit: ShardedUnit, i: int) -> torch.Tensor:
    """A copy of this rank's part as it has it. Collective."""
    sharding = sharding_with(unit)
    optimizer = trained_by(unit)
    if i in unit.trainable and optimizer is not None:
        return read_state(optimizer, unit, i, "master").to(DTYPES[unit.handles[i].dtype_name])
    # An update that changes nothing. (Of 16-bit values the engine's optimizer would take what is
    # looked at for new f32 ones.)
    sharding.drop([unit])
    with sharding.context.update([unit.unit]) as update:
        view = new("meron_view *")
        call(lib.meron_update_view, view, update._open_handle(), unit.handles[i]._handle)
        own = tensor_of(view, (view.count,), None).clone()
    sharding.hold([unit])
    return own


def own_values(unit: ShardedUnit) -> list[torch.Tensor]:
    """Copies of this rank's parts of all params of a unit, flat, with the exact values.
    Collective; blocks on peers. Zeros for those that have no values yet (init="defer")."""
    unit.sharding.finish_step()
    found = {i: own_part(unit, i) for i in range(len(unit.handles)) if has_own(unit, i)}
    if len(found) < len(unit.handles):
        with unit.unit.gather(tier="host") as gather:
            for i, handle in enumerate(unit.handles):
                if i not in found:
                    own = unit.shard_range(i)
                    whole = tensor_of(gather_view(gather, handle), (handle.size,), None)
                    found[i] = whole[own.start : own.stop].clone()
    return [found[i] for i in range(len(unit.handles))]


def whole_of(unit: ShardedUnit, i: int, part: torch.Tensor) -> torch.Tensor:
    """A whole tensor, f32, from this rank's part of it. Collective."""
    handle, shard_range = unit.handles[i], unit.shard_range(i)
    if unit.sharding.context.world_size == 1 or unit.sharding.updates_everything:
        return part.detach().float().reshape(handle.shape).clone()
    # A sum with -0.0 keeps the sign of zeros.
    whole = torch.full((handle.size,), -0.0, dtype=torch.float32, device="cpu")
    if sharding_with(unit).counts():
        whole[shard_range.start : shard_range.stop] = part.detach()
    unit.sharding.context.world.all_reduce(whole.numpy())
    return whole.view(handle.shape)

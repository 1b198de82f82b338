# SPDX-License-Identifier: Apache-2.0
"""One rank: torch.amp.GradScaler, copies, adapters as PEFT makes them, and DTensors.

Run and reported as behaviour.py; the folder is where ranks meet.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import torch.distributed as dist
from behaviour import RANK, RANKS, data, loss, main, mlp, promises_of, raises, same, sgd, sharded
from torch import nn

import meron
import meron.torch as mt

# ---- torch.amp.GradScaler -----------------------------------------------------------------------


def a_grad_scaler_scales_shards() -> None:
    """Beside one process of plain torch that takes all micro-batches."""
    kinds: list[Any] = [
        lambda m: mt.shard_optimizer(m, torch.optim.Adam(m.parameters(), lr=0.05)),
        lambda m: mt.Adam(m, lr=0.05),
    ]
    for make in kinds:
        for plan in ("zero1", "zero3"):
            plain, model = mlp(), mt.shard(mlp(), plan=plan, units=nn.Linear)
            optimizer, twin = make(model), torch.optim.Adam(plain.parameters(), lr=0.05)
            scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
            for step, factor in enumerate((1.0, 1.0, float("inf"), 1.0)):
                mine = loss(model, 10 * step + RANK) * (factor if RANK == RANKS - 1 else 1.0)
                scalers[0].scale(mine).backward()
                for rank in range(RANKS):
                    its = loss(plain, 10 * step + rank) * (factor if rank == RANKS - 1 else 1.0)
                    scalers[1].scale(its / RANKS).backward()
                if step != 1:
                    scalers[0].unscale_(optimizer)
                    scalers[1].unscale_(twin)
                    norm = mt.clip_grad_norm_(model, 0.1)
                    expected = nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
                    if factor == 1.0:
                        torch.testing.assert_close(norm, expected)
                for scaler, own in ((scalers[0], optimizer), (scalers[1], twin)):
                    scaler.step(own)
                    scaler.update()
                twin.zero_grad()  # Meron's steps use gradients up, also those left out
                assert scalers[0].get_scale() == scalers[1].get_scale(), step
                same(model, plain, rtol=1e-4, atol=1e-5)


def a_grad_scaler_refuses_an_optimizer_of_params() -> None:
    model = mt.shard(mlp())
    optimizer = sgd(model)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss(model, RANK)).backward()
    raises(meron.StateError, "shard_optimizer", lambda: scaler.unscale_(optimizer))
    raises(meron.StateError, "shard_optimizer", lambda: scaler.step(optimizer))
    plain = mlp()
    scaler.scale(loss(plain, RANK)).backward()
    scaler.step(sgd(plain))


# ---- Copies -------------------------------------------------------------------------------------


def copies_of_params_have_values_or_are_refused() -> None:
    for plan in ("zero3", "zero1"):
        model, _ = sharded(plan)
        for param, own in zip(model.parameters(), mlp().parameters()):
            try:
                copied = copy.deepcopy(param)
            except meron.StateError as error:
                assert "full_param" in str(error) and plan == "zero3", error
                continue
            assert torch.equal(copied, own), plan
        raises(meron.StateError, "copied", lambda m=model: copy.deepcopy(m))


# ---- Adapters -----------------------------------------------------------------------------------


class Adapted(nn.Module):
    """A linear layer with a trainable update of low rank, as PEFT's."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base
        self.lora_a = nn.Linear(base.in_features, 2, bias=False)
        self.lora_b = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base_layer(x) + self.lora_b(self.lora_a(x))

    def delta(self) -> torch.Tensor:
        return mt.full_param(self.lora_b.weight) @ mt.full_param(self.lora_a.weight)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def base() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), nn.Linear(8, 8))


def adapt(model: nn.Module) -> nn.Module:
    """As get_peft_model: the base is frozen, layers of blocks are replaced, a module is around."""
    torch.manual_seed(6)
    for param in model.parameters():
        param.requires_grad_(False)
    for block in (model[0], model[1]):
        block.up, block.down = Adapted(block.up), Adapted(block.down)
    return nn.Sequential(model)


def adapters_of_a_sharded_base_are_sharded() -> None:
    model = adapt(mt.shard(base(), units=Block))
    plain = adapt(base())
    mt.shard(model)
    inside = [name for name, p in model.named_parameters() if not hasattr(p, "_meron")]
    assert not inside, inside
    raises(meron.StateError, "sharded already", lambda: mt.shard(model))
    trained = [p for p in model.parameters() if p.requires_grad]
    assert len(trained) == 8
    optimizer = mt.shard_optimizer(model, torch.optim.SGD(trained, lr=0.1))
    twin = torch.optim.SGD([p for p in plain.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        loss(model, 10 * step + RANK).backward()
        optimizer.step()
        twin.zero_grad()
        for rank in range(RANKS):
            (loss(plain, 10 * step + rank) / RANKS).backward()
        twin.step()
        same(model, plain)


def adapters_of_another_plan_are_refused() -> None:
    model = adapt(mt.shard(base(), units=Block, plan="zero1"))
    raises(meron.StateError, "0.1 has new params", lambda: mt.shard(model, plan="zero3"))
    mt.shard(model, plan="zero1")


def what_was_ignored_stays_ignored() -> None:
    model = base()
    left_out = model[0].up.bias
    mt.shard(model[0], ignored_params=[left_out])
    mt.shard(model)
    assert not hasattr(left_out, "_meron") and not left_out.isnan().any()
    model(data(0))


def merging_into_a_sharded_weight_is_refused_in_words() -> None:
    model = mt.shard(adapt(mt.shard(base(), units=Block)))
    layer = model[0][0].up
    delta, before = layer.delta() + 1, mt.full_param(layer.base_layer.weight)

    def merge() -> None:
        layer.base_layer.weight.data += delta

    raises(meron.StateError, "set_full_param", merge)
    mt.set_full_param(layer.base_layer.weight, before + delta)
    torch.testing.assert_close(mt.full_param(layer.base_layer.weight), before + delta)


# ---- DTensors -----------------------------------------------------------------------------------


def dtensors_are_refused_by_name() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module, distribute_tensor

    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}/meet", rank=RANK, world_size=RANKS
    )
    mesh = init_device_mesh("cpu", (RANKS,))
    model = mlp()
    model[2].weight = nn.Parameter(distribute_tensor(model[2].weight.detach(), mesh))
    refusal = "Sequential.2.weight is a DTensor"
    raises(meron.ArgumentError, refusal, lambda: mt.shard(model, units=nn.Linear))
    assert not any(hasattr(param, "_meron") for param in model.parameters())
    raises(
        meron.ArgumentError,
        "is a DTensor",
        lambda: meron.zero.initialize(
            model=distribute_module(mlp(), mesh),
            config={"train_batch_size": RANKS, "zero_optimization": {"stage": 3}},
        ),
    )
    mt.shard(model, ignored_params=[model[2].weight])
    half = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    raises(
        meron.ArgumentError, "1.weight is torch.float64", lambda: mt.shard(half, units=nn.Linear)
    )
    assert not hasattr(half[0].weight, "_meron"), "it was changed"
    dist.destroy_process_group()


if __name__ == "__main__":
    import meron.zero

    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))

# SPDX-License-Identifier: Apache-2.0
"""Loads of weights that rank 0 alone has: zero.DistModule, and within GatheredParameters."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import meron
from meron import zero
from meron.torch.checkpoint import get_model_state_dict
from meron.torch.sharding import unit_of
from meron.zero import dist_module, scattering
from model import RANK, RANKS, Model, config, raises, run_cases


class Odd(nn.Module):
    """Tied params, buffers that are saved and not, an extra state, empty and 0-dim tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Model()
        self.norm = nn.BatchNorm1d(5)
        self.scalar = nn.Parameter(torch.zeros(()))
        self.none = nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("mask", torch.zeros(2, dtype=torch.bool))
        self.register_buffer("unsaved", torch.zeros(2), persistent=False)
        self.extra: Any = None

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def values(seed: int = 3) -> dict[str, Any]:
    torch.manual_seed(seed)
    odd = Odd()
    with torch.no_grad():
        for tensor in (*odd.parameters(), *odd.buffers()):
            tensor.copy_(torch.randn(tensor.shape) * 3)
    odd.extra = {"seen": 7}
    return dict(odd.state_dict())


def sharded(stage: int = 3) -> Odd:
    torch.manual_seed(100 + RANK)
    with zero.Init(config_dict_or_path=config(stage=stage)):
        model = Odd()
    return model


def assert_has(model: nn.Module, wanted: dict[str, Any]) -> None:
    got = model.state_dict()
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        same = torch.equal(got[name], value) if isinstance(value, torch.Tensor) else True
        assert same, name


def case_rank_0_loads_for_all() -> None:
    wanted = values()
    before = scattering.BUCKET
    for stage in (0, 3):
        for bucket in (64, before):
            scattering.BUCKET = bucket
            model = sharded(stage)
            wrapped = zero.DistModule(model)
            result = wrapped.load_state_dict(wanted if RANK == 0 else {})
            assert result.missing_keys == [] and result.unexpected_keys == []
            assert_has(model, wanted)
            assert model.extra == {"seen": 7} and model.mask.tolist() == wanted["mask"].tolist()
            assert model.body.head.weight is model.body.embed.weight
    scattering.BUCKET = before


def case_each_value_crosses_the_wire_once() -> None:
    wanted = values()
    model = sharded()
    place = unit_of(model.body.shift)
    assert place is not None
    context = place[0].sharding.context
    size = sum(value.nbytes for value in wanted.values() if isinstance(value, torch.Tensor))
    before = context.stats().collective_bytes
    zero.DistModule(model).load_state_dict(wanted if RANK == 0 else {})
    read = context.stats().collective_bytes - before
    assert read <= (1.1 * size + 8192 if RANK else 8192), (read, size)


def case_what_rank_0_cannot_send_changes_nothing() -> None:
    model = sharded()
    before = dict(model.state_dict())
    wrapped = zero.DistModule(model)
    shard = get_model_state_dict(model)["body.shift"]
    for key, value in (("_extra_state", lambda: None), ("body.shift", shard)):
        if RANKS == 1 and key == "_extra_state":
            continue
        with raises(meron.ArgumentError, key):
            wrapped.load_state_dict({**values(), key: value} if RANK == 0 else {})
        assert_has(model, before)
        assert model.extra is None


def case_a_state_dict_that_does_not_fit_changes_nothing() -> None:
    model = sharded()
    before = dict(model.state_dict())
    wrapped = zero.DistModule(model)
    wrong: dict[str, Any] = values()
    del wrong["body.shift"]
    wrong["more"] = torch.ones(2)
    state = wrong if RANK == 0 else {}
    with raises(RuntimeError, "Missing key(s): body.shift"):
        wrapped.load_state_dict(state)
    with raises(ValueError, "Unexpected key(s): more"):
        wrapped.load_state_dict(state)
    assert_has(model, before)
    result = wrapped.load_state_dict(state, strict=False)
    assert result.missing_keys == ["body.shift"] and result.unexpected_keys == ["more"]
    assert torch.equal(model.state_dict()["body.shift"], before["body.shift"])
    wrong["body.shift"] = torch.ones(3, 3)
    with raises(ValueError, "shape"):
        wrapped.load_state_dict(state, strict=False)
    wrong["body.shift"] = torch.ones(12, device="meta")
    with raises(ValueError, "meta"):
        wrapped.load_state_dict(state, strict=False)
    with raises(ValueError, "list"):
        wrapped.load_state_dict([1] if RANK == 0 else {}, strict=False)  # type: ignore[arg-type]


def case_of_tied_params_one_name_is_enough() -> None:
    wanted = values()
    model = sharded()
    state = {k: v for k, v in wanted.items() if k != "body.head.weight"}
    result = zero.DistModule(model).load_state_dict(state if RANK == 0 else {})
    assert result.missing_keys == []
    assert_has(model, wanted)


def case_assign_gives_values_to_what_is_on_meta() -> None:
    wanted = values()
    with torch.device("meta"):
        model = Odd()
    model.unsaved = torch.zeros(2)
    wrapped = zero.DistModule(model)
    state = wanted if RANK == 0 else {}
    with raises(ValueError, "assign=True"):
        wrapped.load_state_dict(state)
    wrapped.load_state_dict(state, assign=True)
    assert_has(model, wanted)
    assert model.body.head.weight is model.body.embed.weight
    held = model.body.shift
    zero.DistModule(model).load_state_dict(values(9) if RANK == 0 else {}, assign=True)
    assert model.body.shift is held and torch.equal(held, values(9)["body.shift"])
    with torch.device("meta"):
        lost = Odd()
    with raises(ValueError, "'unsaved' is on the device meta"):
        zero.DistModule(lost).load_state_dict(state, assign=True)


def case_it_stands_for_its_module() -> None:
    model = sharded()
    wrapped = zero.DistModule(model)
    assert wrapped.body is model.body
    wrapped.answer = 42
    assert model.answer == 42  # type: ignore[comparison-overlap]
    del wrapped.answer
    assert not hasattr(model, "answer")
    wrapped.eval()
    assert not model.training and not wrapped.training
    x = torch.arange(6).reshape(2, 3)
    assert torch.equal(wrapped(x), model(x))
    assert list(wrapped.state_dict()) == list(model.state_dict())


def case_functions_send_and_receive() -> None:
    wanted = {k: v for k, v in values().items() if isinstance(v, torch.Tensor)}
    model = sharded()
    metas = zero.dist_module.meta_state_dict(model)
    shards: dict[str, torch.Tensor] = {}
    if RANK == 0:
        with raises(ValueError, "rank 0"):
            zero.shard_broadcasted_state_dict(metas, shards)
        zero.broadcast_and_shard_state_dict(wanted, metas, shards)
    else:
        with raises(ValueError, "rank 0"):
            zero.broadcast_and_shard_state_dict(wanted, metas, shards)
        zero.shard_broadcasted_state_dict(metas, shards)
    assert set(shards) == set(wanted)
    for name, value in wanted.items():
        place = unit_of(metas[name])
        if place is None:
            assert torch.equal(shards[name], value)
        else:
            owned = place[0].owned(place[1])
            assert torch.equal(shards[name], value.reshape(-1)[owned.start : owned.stop])
    send = (
        (lambda: zero.broadcast_and_shard_state_dict({"no": torch.ones(1)}, metas, {}))
        if RANK == 0
        else (lambda: zero.shard_broadcasted_state_dict(metas, {}))
    )
    with raises(ValueError, "'no' is not in"):
        send()


def case_rank_0_alone_reads_a_file() -> None:
    folder = Path(os.environ["MEETING"]).parent
    wanted = {k: v for k, v in values().items() if isinstance(v, torch.Tensor)}
    path = folder / "weights.bin"
    if RANK == 0:
        torch.save({"state_dict": wanted}, path)
    state = dist_module.load_state_dict(path)
    assert bool(state) == (RANK == 0)
    model = sharded()
    zero.DistModule(model).load_state_dict(state, strict=False)
    assert torch.equal(model.state_dict()["body.shift"], wanted["body.shift"])
    if RANK == 0:
        with raises(meron.NotFoundError, "no file"):
            dist_module.load_state_dict(folder / "none.bin")
        (folder / "broken.safetensors").write_bytes(b"\xff" * 20)
        with raises(meron.CorruptError, "header"):
            dist_module.load_state_dict(folder / "broken.safetensors")


def case_rank_0_loads_within_gathered_parameters() -> None:
    wanted = values()
    for stage in (2, 3):
        model = sharded(stage)
        model.body.embed.weight.requires_grad_(False)
        with zero.GatheredParameters(model.parameters(), modifier_rank=0):
            if RANK == 0:
                model.load_state_dict(wanted)
        assert model.body.head.weight is model.body.embed.weight
        got = model.state_dict()
        for name, _ in model.named_parameters():
            assert torch.equal(got[name], wanted[name]), name
        model = sharded(stage)
        for path, part in model.named_modules():
            prefix = f"{path}." if path else ""
            with zero.GatheredParameters(part.parameters(recurse=False), modifier_rank=0):
                if RANK == 0:
                    part._load_from_state_dict(wanted, prefix, {}, False, [], [], [])
        got = model.state_dict()
        for name, _ in model.named_parameters():
            assert torch.equal(got[name], wanted[name]), name


if __name__ == "__main__":
    assert RANKS >= 1
    run_cases(sys.modules[__name__])

# SPDX-License-Identifier: Apache-2.0
"""Loading weights that only rank 0 has: zero.DistModule, and within GatheredParameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import meron
from meron import zero
from meron.torch.checkpoint import get_model_state_dict
from meron.torch.sharding import unit_of
from meron.zero import dist_module, scattering
from model import RANK, RANKS, Model, config

pytestmark = pytest.mark.ranks(1, 3)


class Odd(nn.Module):
    """Has tied params, persistent and other buffers, an extra state, empty and 0-dim tensors."""

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
    got = zero.full_state_dict(model)
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        same = torch.equal(got[name], value) if isinstance(value, torch.Tensor) else True
        assert same, name


def test_rank_0_loads_values_for_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = values()
    buckets = (64, scattering.BUCKET)
    for stage in (0, 3):
        for bucket in buckets:
            monkeypatch.setattr(scattering, "BUCKET", bucket)
            model = sharded(stage)
            wrapped = zero.DistModule(model)
            result = wrapped.load_state_dict(wanted if RANK == 0 else {})
            assert result.missing_keys == [] and result.unexpected_keys == []
            assert_has(model, wanted)
            assert model.extra == {"seen": 7} and model.mask.tolist() == wanted["mask"].tolist()
            assert model.body.head.weight is model.body.embed.weight


def test_sends_each_value_once() -> None:
    wanted = values()
    model = sharded()
    place = unit_of(model.body.shift)
    assert place is not None
    context = place[0].sharding.context
    size = sum(value.nbytes for value in wanted.values() if isinstance(value, torch.Tensor))
    before = context.stats().collective_bytes
    zero.DistModule(model).load_state_dict(wanted if RANK == 0 else {})
    read = context.stats().collective_bytes - before
    assert read <= (1.1 * size + 8192 if RANK else 8192)


def test_a_value_that_cannot_be_sent_changes_nothing() -> None:
    model = sharded()
    before = dict(zero.full_state_dict(model))
    wrapped = zero.DistModule(model)
    shard = get_model_state_dict(model)["body.shift"]
    for key, value in (("_extra_state", lambda: None), ("body.shift", shard)):
        if RANKS == 1 and key == "_extra_state":
            continue
        with pytest.raises(meron.ArgumentError, match=re.escape(key)):
            wrapped.load_state_dict({**values(), key: value} if RANK == 0 else {})
        assert_has(model, before)
        assert model.extra is None


def test_a_mismatched_state_dict_changes_nothing() -> None:
    model = sharded()
    before = dict(zero.full_state_dict(model))
    wrapped = zero.DistModule(model)
    wrong: dict[str, Any] = values()
    del wrong["body.shift"]
    wrong["more"] = torch.ones(2)
    state = wrong if RANK == 0 else {}
    with pytest.raises(RuntimeError, match=re.escape("Missing key(s): body.shift")):
        wrapped.load_state_dict(state)
    with pytest.raises(ValueError, match=re.escape("Unexpected key(s): more")):
        wrapped.load_state_dict(state)
    assert_has(model, before)
    result = wrapped.load_state_dict(state, strict=False)
    assert result.missing_keys == ["body.shift"] and result.unexpected_keys == ["more"]
    assert torch.equal(zero.full_state_dict(model)["body.shift"], before["body.shift"])
    wrong["body.shift"] = torch.ones(3, 3)
    with pytest.raises(ValueError, match="shape"):
        wrapped.load_state_dict(state, strict=False)
    wrong["body.shift"] = torch.ones(12, device="meta")
    with pytest.raises(ValueError, match="meta"):
        wrapped.load_state_dict(state, strict=False)
    with pytest.raises(ValueError, match="list"):
        wrapped.load_state_dict([1] if RANK == 0 else {}, strict=False)  # type: ignore[arg-type]


def test_one_name_suffices_for_tied_params() -> None:
    wanted = values()
    model = sharded()
    state = {k: v for k, v in wanted.items() if k != "body.head.weight"}
    result = zero.DistModule(model).load_state_dict(state if RANK == 0 else {})
    assert result.missing_keys == []
    assert_has(model, wanted)


def test_assign_gives_values_to_meta_params() -> None:
    wanted = values()
    with torch.device("meta"):
        model = Odd()
    model.unsaved = torch.zeros(2)
    wrapped = zero.DistModule(model)
    state = wanted if RANK == 0 else {}
    with pytest.raises(ValueError, match="assign=True"):
        wrapped.load_state_dict(state)
    wrapped.load_state_dict(state, assign=True)
    assert_has(model, wanted)
    assert model.body.head.weight is model.body.embed.weight
    held = model.body.shift
    zero.DistModule(model).load_state_dict(values(9) if RANK == 0 else {}, assign=True)
    assert model.body.shift is held and torch.equal(held, values(9)["body.shift"])
    with torch.device("meta"):
        lost = Odd()
    with pytest.raises(ValueError, match="'unsaved' is on the device meta"):
        zero.DistModule(lost).load_state_dict(state, assign=True)


def test_forwards_attributes_to_its_module() -> None:
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


def test_functions_broadcast_and_shard_a_state_dict() -> None:
    wanted = {k: v for k, v in values().items() if isinstance(v, torch.Tensor)}
    model = sharded()
    metas = zero.dist_module.meta_state_dict(model)
    shards: dict[str, torch.Tensor] = {}
    if RANK == 0:
        with pytest.raises(ValueError, match="rank 0"):
            zero.shard_broadcasted_state_dict(metas, shards)
        zero.broadcast_and_shard_state_dict(wanted, metas, shards)
    else:
        with pytest.raises(ValueError, match="rank 0"):
            zero.broadcast_and_shard_state_dict(wanted, metas, shards)
        zero.shard_broadcasted_state_dict(metas, shards)
    assert set(shards) == set(wanted)
    for name, value in wanted.items():
        place = unit_of(metas[name])
        if place is None:
            assert torch.equal(shards[name], value)
        else:
            shard_range = place[0].shard_range(place[1])
            assert torch.equal(
                shards[name], value.reshape(-1)[shard_range.start : shard_range.stop]
            )
    send = (
        (lambda: zero.broadcast_and_shard_state_dict({"no": torch.ones(1)}, metas, {}))
        if RANK == 0
        else (lambda: zero.shard_broadcasted_state_dict(metas, {}))
    )
    with pytest.raises(ValueError, match="'no' is not in"):
        send()


def test_only_rank_0_reads_the_file(tmp_path: Path) -> None:
    wanted = {k: v for k, v in values().items() if isinstance(v, torch.Tensor)}
    path = tmp_path / "weights.bin"
    if RANK == 0:
        torch.save({"state_dict": wanted}, path)
    state = dist_module.load_state_dict(path)
    assert bool(state) == (RANK == 0)
    model = sharded()
    zero.DistModule(model).load_state_dict(state, strict=False)
    assert torch.equal(zero.full_state_dict(model)["body.shift"], wanted["body.shift"])
    if RANK == 0:
        with pytest.raises(meron.NotFoundError, match="no file"):
            dist_module.load_state_dict(tmp_path / "none.bin")
        (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
        with pytest.raises(meron.CorruptError, match="header"):
            dist_module.load_state_dict(tmp_path / "broken.safetensors")


def test_rank_0_loads_within_gathered_parameters() -> None:
    wanted = values()
    for stage in (2, 3):
        model = sharded(stage)
        model.body.embed.weight.requires_grad_(False)
        with zero.GatheredParameters(model.parameters(), modifier_rank=0):
            if RANK == 0:
                model.load_state_dict(wanted)
        assert model.body.head.weight is model.body.embed.weight
        got = zero.full_state_dict(model)
        for name, _ in model.named_parameters():
            assert torch.equal(got[name], wanted[name]), name
        model = sharded(stage)
        for path, part in model.named_modules():
            prefix = f"{path}." if path else ""
            with zero.GatheredParameters(part.parameters(recurse=False), modifier_rank=0):
                if RANK == 0:
                    part._load_from_state_dict(wanted, prefix, {}, False, [], [], [])
        got = zero.full_state_dict(model)
        for name, _ in model.named_parameters():
            assert torch.equal(got[name], wanted[name]), name

# SPDX-License-Identifier: Apache-2.0
"""Parts of DeepSpeed's module tree that compute: loss scales, elastic batches, sub-group steps."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import meron
from meron.zero.compat import elasticity
from meron.zero.compat.loss_scaler import CreateLossScaler, DynamicLossScaler, LossScaler
from meron.zero.config import Fp16
from meron.zero.loss_scale import LossScale
from meron.zero.ops import DeepSpeedCPUAdam


def outcome(update: object, overflow: bool) -> str:
    try:
        update(overflow)  # type: ignore[operator]
    except Exception as error:
        return type(error).__name__
    return ""


def test_a_dynamic_loss_scaler_has_the_engines_sequences() -> None:
    generator = random.Random(0)
    for window, hysteresis, consecutive, floor in itertools.product(
        (1, 2, 5), (1, 3), (False, True), (1, 64)
    ):
        scale = LossScale(Fp16(0, 8, window, hysteresis, consecutive, floor))
        scaler = DynamicLossScaler(2**8, window, floor, hysteresis, consecutive)
        for _ in range(60):
            overflow = generator.random() < 0.2
            assert outcome(scaler.update_scale, overflow) == outcome(scale.update, overflow)
            assert scaler.loss_scale == scaler.cur_scale == scale.value
            assert scaler.cur_hysteresis == scale.left
        assert scaler.cur_iter == 60


def test_the_sequences_of_deepspeeds_class(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("deepspeed.runtime.fp16.loss_scaler")
    if theirs.DynamicLossScaler is DynamicLossScaler:
        pytest.skip("this deepspeed is the drop-in")
    monkeypatch.setattr(theirs.dist, "get_rank", lambda: 1)  # rank 0 logs
    generator = random.Random(1)
    for window, hysteresis, raises in itertools.product((1, 3), (1, 2), (False, True)):
        options = (2**7, window, 2**4, hysteresis, False, raises)
        mine, other = DynamicLossScaler(*options), theirs.DynamicLossScaler(*options)
        for _ in range(60):
            overflow = generator.random() < 0.3
            failed = bool(outcome(other.update_scale, overflow))
            assert bool(outcome(mine.update_scale, overflow)) == failed
            if failed:
                break  # theirs has no defined state after it
            for name in ("cur_scale", "cur_hysteresis", "cur_iter", "last_overflow_iter"):
                assert getattr(mine, name) == getattr(other, name), name


def test_loss_scalers_scale() -> None:
    weight = torch.ones(2, requires_grad=True)
    scaler = LossScaler(scale=8)
    scaler.backward(weight.sum())
    assert weight.grad is not None and weight.grad.tolist() == [8.0, 8.0]
    scaler.update_scale(True)
    assert scaler.loss_scale == 8 and not scaler.dynamic and not scaler.has_overflow([weight])
    made = CreateLossScaler(
        torch.half,
        1.0,
        True,
        {
            "init_scale": 4.0,
            "scale_window": 2,
            "min_scale": 1,
            "delayed_shift": 1,
            "consecutive_hysteresis": False,
        },
    )
    assert isinstance(made, DynamicLossScaler) and made.loss_scale == 4
    weight.grad[0] = float("inf")
    assert made.has_overflow([weight])
    assert CreateLossScaler(torch.bfloat16, 9.0, True, None).loss_scale == 1
    assert CreateLossScaler(torch.half, 9.0, False, None).loss_scale == 9
    with pytest.raises(meron.ArgumentError, match="init_scale"):
        CreateLossScaler(torch.half, 1.0, True, None)
    with pytest.raises(meron.ArgumentError, match="scale_window"):
        DynamicLossScaler(scale_window=0)


def test_an_elastic_batch_suits_the_most_numbers_of_ranks() -> None:
    """The example of DeepSpeed's documentation: 9792 samples suit 1 to 1152 ranks."""
    block = {
        "enabled": True,
        "max_train_batch_size": 10000,
        "micro_batch_sizes": [8, 12, 16, 17],
        "min_gpus": 32,
        "max_gpus": 1500,
        "version": 0.1,
    }
    batch, ranks = elasticity.compute_elastic_config({"elasticity": block}, "0.19.8")
    assert batch == 9792
    for count in ranks:
        assert 32 <= count <= 1500
        assert any(batch % (count * size) == 0 for size in block["micro_batch_sizes"])  # type: ignore
    assert ranks == sorted(set(ranks)) and len(ranks) == 23
    batch, _, micro = elasticity.compute_elastic_config({"elasticity": block}, "", world_size=64)
    assert (batch // 64) % micro == 0 and micro == 17
    with pytest.raises(elasticity.ElasticityIncompatibleWorldSize, match="128 ranks"):
        elasticity.compute_elastic_config({"elasticity": block}, "", world_size=128)


def test_an_elastic_batch_of_whole_nodes() -> None:
    block = {
        "enabled": True,
        "max_train_batch_size": 2000,
        "micro_batch_sizes": [2, 4],
        "max_gpus": 64,
        "num_gpus_per_node": 8,
        "model_parallel_size": 2,
    }
    batch, replicas, micro = elasticity.compute_elastic_config({"elasticity": block}, "", 32)
    assert batch <= 2000 and 16 in replicas and all(count % 4 == 0 for count in replicas)
    assert (batch // 16) % micro == 0


def test_the_micro_batch_of_an_elastic_run(monkeypatch: pytest.MonkeyPatch) -> None:
    block: dict[str, object] = {
        "enabled": True,
        "version": 0.2,
        "max_train_batch_size": 64,
        "micro_batch_sizes": [4, 8],
        "num_gpus_per_node": 8,
        "min_gpus": 16,
        "max_gpus": 16,
    }
    config = {"elasticity": block}
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(elasticity.ElasticityConfigError, match="WORLD_SIZE"):
        elasticity.compute_elastic_config(config, "", return_microbatch=True)
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert elasticity.compute_elastic_config(config, "") == (64, [16])
    for model_ranks, micro in ((1, 4), (2, 8), (4, 8)):
        block["model_parallel_size"] = model_ranks
        found = elasticity.compute_elastic_config(config, "0.19.8", return_microbatch=True)
        assert found == (64, [16 // model_ranks], micro)
    with pytest.raises(elasticity.ElasticityError, match=r"older than 0\.3\.8"):
        elasticity.compute_elastic_config(config, "0.3.7+cu128")


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (None, "no elasticity block"),
        ({"enabled": False}, "not enabled"),
        ({"enabled": True, "max_batch": 1}, "'max_batch'"),
        ({"enabled": True, "micro_batch_sizes": [0]}, "micro_batch_sizes"),
        ({"enabled": True, "min_gpus": 9, "max_gpus": 8}, "below min_gpus"),
        (
            {"enabled": True, "max_train_batch_size": 1, "micro_batch_sizes": [2]},
            "above the largest batch",
        ),
        ({"enabled": True, "max_train_batch_size": 1}, "micro_batch_sizes is missing"),
        ({"enabled": True, "micro_batch_sizes": [2]}, "max_train_batch_size is missing"),
        ({"enabled": True, "version": 0.1, "model_parallel_size": 2}, "num_gpus_per_node"),
        (
            {
                "enabled": True,
                "version": 0.1,
                "model_parallel_size": 2,
                "num_gpus_per_node": 2,
            },
            "version 0.1 has no models of several ranks",
        ),
        ({"enabled": True, "version": 0.3}, "0.1 and 0.2"),
    ],
)
def test_a_wrong_elasticity_block(block: object, words: str) -> None:
    with pytest.raises(meron.ArgumentError) as caught:
        elasticity.compute_elastic_config({"elasticity": block}, "")
    assert words in str(caught.value)
    assert not elasticity.elasticity_enabled({"elasticity": {}})


def test_steps_of_sub_groups_are_those_of_adam() -> None:
    """One flat param, into which each sub-group is swapped in turn."""
    torch.manual_seed(0)
    wholes = [torch.randn(6), torch.randn(6)]
    options = {"lr": 1e-2, "weight_decay": 0.1}
    plain = [torch.nn.Parameter(values.clone()) for values in wholes]
    reference = torch.optim.AdamW(plain, **options)
    flat = torch.nn.Parameter(torch.empty(6))
    optimizer = DeepSpeedCPUAdam([flat], **options)
    before = []
    for step in range(3):
        gradients = [torch.randn(6), torch.randn(6)]
        for group, gradient in enumerate(gradients):
            plain[group].grad = gradient.clone()
            flat.data.copy_(wholes[group])
            flat.grad = gradient.clone()
            before = [flat.detach().clone(), step]
            optimizer.step_subgroup(group)
            wholes[group].copy_(flat.data)
        reference.step()
        assert all(torch.equal(a, b) for a, b in zip(wholes, plain))
    assert float(optimizer.state[1]["step"]) == 3  # type: ignore[index]
    optimizer.rollback_subgroup(1)
    assert torch.allclose(flat, before[0], atol=1e-6)
    assert float(optimizer.state[1]["step"]) == before[1]  # type: ignore[index]
    optimizer.step_subgroup(1)
    assert torch.allclose(flat, wholes[1], atol=1e-6)


def test_misuse_of_sub_groups() -> None:
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = DeepSpeedCPUAdam(params)
    assert optimizer.step_subgroup(0) is None and not optimizer.state
    with pytest.raises(meron.StateError, match="no step to undo"):
        optimizer.rollback_subgroup(0)
    for param in params:
        param.grad = torch.ones(2)
    with pytest.raises(meron.StateError, match="2 params have gradients"):
        optimizer.step_subgroup(0)
    with pytest.raises(meron.UnsupportedError, match="step_subgroup with amsgrad"):
        DeepSpeedCPUAdam(params, amsgrad=True).step_subgroup(0)

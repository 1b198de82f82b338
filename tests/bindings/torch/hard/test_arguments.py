# SPDX-License-Identifier: Apache-2.0
"""`shard` and `context_for` ignore no argument.

They reject unknown arguments, and those that contradict an open context, before they change
anything.
"""

from __future__ import annotations

import re

import pytest
import torch
from mlp import RANKS, data, mlp, sgd, step_both
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

import meron
import meron.torch as mt
import meron.zero  # reads configs

pytestmark = pytest.mark.ranks(2)
ZERO3 = meron.Plan.preset("zero3")


def trains(**options: object) -> None:
    """Checks that a model with these options takes the same step as plain torch."""
    plain = mlp()
    model = mt.shard(mlp(), **options)
    optimizer = mt.shard_optimizer(model, sgd(model))
    step_both(model, optimizer, plain, sgd(plain))


def rejects(text: str, kind: type[BaseException] = meron.ArgumentError, **options: object) -> None:
    """Checks that `shard` raises an error with `text`, and changes neither model nor context."""
    model = mlp()
    sharding = mt.sharding.sharding_of(mt.context_for(ZERO3))
    before = (len(sharding.units), dict(sharding.limits), dict(sharding.names))
    with pytest.raises(kind, match=re.escape(text)):
        mt.shard(model, **options)
    assert not any(hasattr(param, "_meron") for param in model.parameters())
    assert before == (len(sharding.units), sharding.limits, sharding.names)
    model(data(0))


def test_typo_is_a_type_error() -> None:
    rejects("'plam'", TypeError, plam="zero1")
    rejects("'prefetch_element'", TypeError, prefetch_element=5)
    with pytest.raises(TypeError, match="'timeot'"):
        mt.context_for(ZERO3, timeot=60)
    with pytest.raises(TypeError, match="'timeot'"):
        mt.world.open_context(ZERO3, timeot=60)
    trains()


def test_rejects_limits_out_of_range() -> None:
    for value in (-1, 2**64, 0.5, "many", True):
        rejects("persist_elements is", persist_elements=value)
    rejects("units=", prefetch_elements=7, units=nn.Conv2d)
    rejects("param_dtype", mp=mt.MixedPrecision(torch.float64))
    rejects("has a str, which is no param", ignored_params=["0.weight"])
    trains(prefetch_elements=0, max_live_elements=10**6, persist_total_elements=10**6)
    trains(config={"zero_optimization": {"stage": 3}}, max_reuse_elements=0)


def test_rejects_arguments_that_contradict_the_context() -> None:
    context = mt.context_for(ZERO3)
    bf16, f32 = torch.bfloat16, torch.float32
    for options, text in (
        ({"plan": "zero1"}, "plan is 'zero1'"),
        ({"plan": {"preset": "zero3", "gradient": {"dtype": "bf16"}}}, "plan is 'custom'"),
        ({"config": {"zero_optimization": {"stage": 1}}}, "plan is 'zero1'"),
        ({"plan": "zero3", "mp": mt.MixedPrecision(None, bf16)}, "reduce_dtype is bf16"),
        ({"mp": mt.MixedPrecision(None, bf16)}, "reduce_dtype is bf16"),
        ({"mp": mt.MixedPrecision(bf16, f32)}, "reduce_dtype is f32"),
        ({"group": object()}, "torch.distributed is not initialised"),
        ({"device": "emulated"}, "device is emulated"),
        ({"transport": "group"} if RANKS > 1 else {"device": "emulated"}, "is "),
        ({"offload_policy": "cpu"}, "offload_policy is 'cpu'"),
    ):
        rejects(text, context=context, **options)
    trains(context=context, plan="zero3", transport="shm", device="cpu")
    trains(context=context, plan=ZERO3, transport="auto", mp=mt.MixedPrecision(f32, f32))
    trains(context=context, mp=mt.MixedPrecision(None, f32))
    # On one host, the context of "hpz" has another plan.
    hpz = mt.context_for(meron.Plan.preset("hpz"))
    trains(context=hpz, plan="hpz")
    closed = meron.open(0, 1)
    closed.close()
    rejects("is closed", meron.StateError, context=closed)


def test_rejects_options_that_contradict_an_open_context() -> None:
    plan = meron.Plan.preset("zero2")
    context = mt.context_for(plan, timeout=55, threads=1)
    assert mt.context_for(plan) is context
    assert mt.context_for("zero2", timeout=55) is context
    for options, text in (
        ({"timeout": 56}, "timeout is 56, and the context"),
        ({"host_memory_limit": 2**30}, "host_memory_limit is"),
    ):
        with pytest.raises(meron.ArgumentError, match=re.escape(text)):
            mt.context_for(plan, **options)
    trains(plan=plan)


def test_accepts_or_rejects_policies_of_fsdp2() -> None:
    bf16 = torch.bfloat16
    model = mt.shard(
        mlp(),
        mp_policy=MixedPrecisionPolicy(bf16, bf16, cast_forward_inputs=False),
        offload_policy=OffloadPolicy(),
        reshard_after_forward=None,
        ignored_params=None,
    )
    assert {param.dtype for param in model.parameters()} == {bf16}
    # Gradients have that dtype, and several passes are added in f32.
    assert '"dtype": "auto"' in mt.passes.units_below(model)[0].sharding.context.plan.json()
    with pytest.raises(RuntimeError, match="dtype"):
        model(data(0))
    mt.shard(mlp(), mp=MixedPrecisionPolicy(bf16))(data(0))
    trains(offload_policy=CPUOffloadPolicy(), reshard_after_forward=False)
    for text, kind, options in (
        (
            "output_dtype",
            meron.UnsupportedError,
            {"mp_policy": MixedPrecisionPolicy(output_dtype=bf16)},
        ),
        ("not both", meron.ArgumentError, {"mp": mt.MixedPrecision(), "mp_policy": object()}),
        ("mp_policy is", meron.ArgumentError, {"mp_policy": bf16}),
        ('plan="hpz(2)"', meron.UnsupportedError, {"reshard_after_forward": 2}),
        ("reshard_after_forward is 'no'", meron.ArgumentError, {"reshard_after_forward": "no"}),
        ("shard_placement_fn", meron.UnsupportedError, {"shard_placement_fn": print}),
    ):
        rejects(text, kind, **options)

# SPDX-License-Identifier: Apache-2.0
"""One rank: no argument is ignored. What shard and context_for do not understand, or what
contradicts what is there, is refused at the call, before anything is changed.

Run and reported by promise_program.py.
"""

from __future__ import annotations

import sys

import torch
from mlp import data, mlp, sgd, step_both
from promise_program import RANKS, main, promises_of, raises
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

import meron
import meron.torch as mt
import meron.zero  # reads configs

ZERO3 = meron.Plan.preset("zero3")


def trains(**options: object) -> None:
    """A correct model of these options takes a step as plain torch does."""
    plain = mlp()
    model = mt.shard(mlp(), **options)
    optimizer = mt.shard_optimizer(model, sgd(model))
    step_both(model, optimizer, plain, sgd(plain))


def refused(text: str, kind: type[BaseException] = meron.ArgumentError, **options: object) -> None:
    """shard raises an error with `text`, and leaves the module and the context as they were."""
    model = mlp()
    sharding = mt.sharding.sharding_of(mt.context_for(ZERO3))
    before = (len(sharding.units), dict(sharding.limits), dict(sharding.names))
    raises(kind, text, lambda: mt.shard(model, **options))
    assert not any(hasattr(param, "_meron") for param in model.parameters())
    assert before == (len(sharding.units), sharding.limits, sharding.names)
    model(data(0))


def a_typo_is_a_type_error_at_the_call() -> None:
    refused("'plam'", TypeError, plam="zero1")
    refused("'prefetch_element'", TypeError, prefetch_element=5)
    raises(TypeError, "'timeot'", lambda: mt.context_for(ZERO3, timeot=60))
    raises(
        TypeError,
        "'timeot'",
        lambda: mt.world.open_context(ZERO3, timeot=60),
    )
    trains()


def limits_out_of_range_poison_nothing() -> None:
    for value in (-1, 2**64, 0.5, "many", True):
        refused("persist_elements is", persist_elements=value)
    refused("units=", prefetch_elements=7, units=nn.Conv2d)
    refused("param_dtype", mp=mt.MixedPrecision(torch.float64))
    refused("has a str, which is no param", ignored_params=["0.weight"])
    trains(prefetch_elements=0, max_live_elements=10**6, persist_total_elements=10**6)
    trains(config={"zero_optimization": {"stage": 3}}, max_reuse_elements=0)


def arguments_fit_the_context_that_is_given() -> None:
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
        refused(text, context=context, **options)
    trains(context=context, plan="zero3", transport="shm", device="cpu")
    trains(context=context, plan=ZERO3, transport="auto", mp=mt.MixedPrecision(f32, f32))
    trains(context=context, mp=mt.MixedPrecision(None, f32))
    # As asked for: opened over one host, the plan of a mesh by nodes is another.
    hpz = mt.context_for(meron.Plan.preset("hpz"))
    trains(context=hpz, plan="hpz")
    closed = meron.open(0, 1)
    closed.close()
    refused("is closed", meron.StateError, context=closed)


def an_open_context_has_the_options_it_was_opened_with() -> None:
    plan = meron.Plan.preset("zero2")
    context = mt.context_for(plan, timeout=55, threads=1)
    assert mt.context_for(plan) is context
    assert mt.context_for("zero2", timeout=55) is context
    for options, text in (
        ({"timeout": 56}, "timeout is 56, and the context"),
        ({"host_memory_limit": 2**30}, "host_memory_limit is"),
    ):
        raises(meron.ArgumentError, text, lambda o=options: mt.context_for(plan, **o))
    trains(plan=plan)


def policies_of_fsdp2_are_understood_or_refused() -> None:
    bf16 = torch.bfloat16
    model = mt.shard(
        mlp(),
        mp_policy=MixedPrecisionPolicy(bf16, bf16, cast_forward_inputs=False),
        offload_policy=OffloadPolicy(),
        reshard_after_forward=None,
        ignored_params=None,
    )
    assert {param.dtype for param in model.parameters()} == {bf16}
    assert mt.passes.units_below(model)[0].sharding.context.plan.json().count('"bf16"') == 1
    raises(RuntimeError, "dtype", lambda: model(data(0)))  # as inputs are not cast
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
        refused(text, kind, **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], promises_of(dict(globals()))))

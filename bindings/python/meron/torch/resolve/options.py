# SPDX-License-Identifier: Apache-2.0
"""Arguments of shard(): checked before anything is changed, also against a given context.

Arguments of FSDP2's fully_shard are translated, or refused with what to use instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

import meron
from meron import errors
from meron.plan import Json, as_plan
from meron.torch import registry
from meron.torch.ranks import place_in, ranks_of
from meron.torch.tensors import dtype_name
from meron.torch.world import asked_plan, transport_of

LARGEST = 2**64 - 1


@dataclass(frozen=True)
class MixedPrecision:
    """Dtypes of a sharded module; None leaves them as they are.

    Attributes:
        param_dtype: what params are gathered and computed in. Optimizers update f32 values.
        reduce_dtype: of gradients in the reduction; sums are f32 in any case. Plans that do not
            shard gradients (zero0, zero1) add up micro-batches in it, too.
        cast_forward_inputs: floating inputs of the module are cast to param_dtype.
        buffer_dtype: of floating buffers. None leaves them as they are, also where params are cast:
            rotary frequencies in bf16 would turn positions by whole radians. Running statistics of
            batch norms alone follow their module's params, as torch's kernels demand.
    """

    param_dtype: torch.dtype | None = None
    reduce_dtype: torch.dtype | None = None
    cast_forward_inputs: bool = True
    buffer_dtype: torch.dtype | None = None


def from_config(
    config: Any, plan: Any, mp: MixedPrecision | None, limits: dict[str, int]
) -> tuple[meron.Plan, MixedPrecision, dict[str, int]]:
    """The settings of a DeepSpeed config for sharding; arguments of the caller take precedence."""
    if plan is not None:
        raise errors.argument("give either a plan or a config, not both")
    if registry.config_reader is None:
        raise errors.StateError(
            "a DeepSpeed config is read by meron.zero, which is not imported",
            subject="config",
            operation="shard",
            advice="Call `import meron.zero` before, or pass plan, mp and limits.",
        )
    own_plan, own_mp, own_limits = registry.config_reader(config)
    return own_plan, mp or own_mp, {**own_limits, **limits}


def given_limits(**limits: int | None) -> dict[str, int]:
    """The limits of a schedule that are given; ArgumentError naming one out of range."""
    given = {name: value for name, value in limits.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
            raise errors.argument(
                f"{name} is {value!r}",
                subject=name,
                advice=f"Give a number of elements from 0 to {LARGEST}, or None for the default.",
            )
    return given


# ---- What fully_shard takes ---------------------------------------------------------------------


def mixed_precision(mp: Any, mp_policy: Any) -> MixedPrecision | None:
    """Meron's MixedPrecision from it, or from FSDP2's MixedPrecisionPolicy.

    Raises ArgumentError for something else or for both, UnsupportedError for an output_dtype.
    """
    if mp is not None and mp_policy is not None:
        raise errors.argument("give either mp or mp_policy, not both", "mp_policy")
    name, policy = ("mp", mp) if mp_policy is None else ("mp_policy", mp_policy)
    if policy is None or isinstance(policy, MixedPrecision):
        return policy
    if type(policy).__name__ != "MixedPrecisionPolicy":
        raise errors.argument(
            f"{name} is {policy!r}",
            subject=name,
            advice="Pass a meron.torch.MixedPrecision, or FSDP2's MixedPrecisionPolicy.",
        )
    if policy.output_dtype is not None:
        raise errors.UnsupportedError(
            f"Meron does not have yet: {name} with output_dtype={policy.output_dtype}",
            subject=name,
            advice="Leave output_dtype out, and convert the output of the module.",
        )
    return MixedPrecision(policy.param_dtype, policy.reduce_dtype, policy.cast_forward_inputs)


def reshards(flag: Any) -> bool:
    """True if units are resharded after their forward. `flag`: a bool, or None, the default."""
    if flag is None or isinstance(flag, bool):
        return flag is not False
    if isinstance(flag, int):
        raise errors.UnsupportedError(
            f"Meron does not have: reshard_after_forward={flag}, a number of ranks",
            subject="reshard_after_forward",
            advice=f'Pass plan="hpz({flag})": groups of {flag} ranks keep a secondary partition.',
        )
    raise errors.argument(
        f"reshard_after_forward is {flag!r}", "reshard_after_forward", "Pass True or False."
    )


def check_offload(policy: Any, plan: meron.Plan) -> None:
    """FSDP2's offload_policy, which changes nothing: the plan says where shards reside."""
    if policy is None:
        return
    name = type(policy).__name__
    if name not in ("OffloadPolicy", "CPUOffloadPolicy"):
        raise errors.argument(
            f"offload_policy is {policy!r}",
            subject="offload_policy",
            advice="Leave it out: the plan names the tier of params and optimizer states.",
        )
    tier = json.loads(plan.json())["param"]["tier"]
    if name == "CPUOffloadPolicy" and tier != "host":
        raise errors.argument(
            f"offload_policy is {name}, and the plan has params on {tier}",
            subject="offload_policy",
            advice="Leave the policy out, or pass a plan with params on the host.",
        )


def refuse_placement(function: Any) -> None:
    if function is not None:
        raise errors.UnsupportedError(
            "Meron does not have: shard_placement_fn: every param is cut flat",
            subject="shard_placement_fn",
            advice="Leave it out.",
        )


def ignored_of(params: Iterable[torch.nn.Parameter] | None) -> set[torch.nn.Parameter]:
    """ignored_params as a set; ArgumentError for what is no tensor, such as a name."""
    found = set(() if params is None else params)
    for param in found:
        if not isinstance(param, torch.nn.Parameter):
            raise errors.argument(
                f"ignored_params has a {type(param).__name__}, which is no param",
                subject="ignored_params",
                advice="Pass params, such as model.head.parameters().",
            )
    return found


# ---- Plans, groups and contexts -----------------------------------------------------------------


def group_of(group: Any, mesh: Any) -> Any:
    """A torch.distributed group, or that of a mesh of one dimension."""
    if mesh is None:
        return group
    if group is not None:
        raise errors.argument("give either a group or a mesh, not both")
    if not hasattr(mesh, "get_group"):
        raise errors.argument(
            f"a {type(mesh).__name__} was given as mesh, and is no DeviceMesh of torch.distributed",
            "mesh",
            'Pass one, such as init_device_mesh("cpu", (world_size,)), or leave it out for all '
            "ranks.",
        )
    if mesh.ndim != 1:
        raise errors.argument(
            f"the mesh has {mesh.ndim} dimensions: params are sharded over one",
            advice="Pass one dimension of it, as mesh['shard']; for replicas of shards pass "
            'plan="mics(8)", with the size of the inner dimension.',
        )
    return mesh.get_group()


def with_reduce_dtype(plan: meron.Plan | Json, mp: MixedPrecision) -> meron.Plan:
    """The plan whose gradients enter the reduction in `mp.reduce_dtype`. If params have it too,
    this is "auto", which adds several micro-batches in f32."""
    chosen = as_plan(plan)
    if mp.reduce_dtype is None:
        return chosen
    name = dtype_name(mp.reduce_dtype, "reduce_dtype")
    table = json.loads(chosen.json())
    table["gradient"]["dtype"] = "auto" if mp.reduce_dtype == mp.param_dtype else name
    return meron.Plan.parse(table)


def check_context(
    context: meron.Context,
    plan: meron.Plan | Json | None,
    group: Any,
    transport: str | None,
    mp: MixedPrecision,
    modules: Iterable[torch.nn.Module],
) -> None:
    """ArgumentError naming an argument that contradicts a context that was given with it."""
    if context.closed:
        raise errors.StateError(
            "the context that was given is closed", subject="context", advice="Open another one."
        )
    asked = asked_plan(context)
    if plan is not None:
        chosen = (as_plan(plan), with_reduce_dtype(plan, mp))
        if not any(each in (asked, context.plan) for each in chosen):
            refuse("plan", words(chosen[0]), f"has the plan {words(asked)}")
    if mp.reduce_dtype is not None:
        own = json.loads(context.plan.json())["gradient"]["dtype"]
        wanted = dtype_name(mp.reduce_dtype, "reduce_dtype")
        if own in ("auto", "param"):  # as gradients are
            params = (param for module in modules for param in module.parameters())
            dtypes = {mp.param_dtype} if mp.param_dtype else {param.dtype for param in params}
            same = dtypes == {mp.reduce_dtype}
        else:
            same = own == wanted
        if not same:
            refuse("reduce_dtype", wanted, f"has a plan with gradient.dtype {own!r}")
    if group is not None:
        ranks, place = ranks_of(group), place_in(group)
        fits = registry.ranks_of_open.get(context, ranks) == ranks
        if not fits or place != (context.rank, context.world_size):
            theirs = "all ranks" if ranks is None else f"the ranks {ranks}"
            refuse("group", f"of {theirs}", f"is rank {context.rank} of {context.world_size}")
    if transport not in (None, "auto") and context.world_size > 1:
        own_transport = transport_of(context)
        if transport != own_transport:
            refuse("transport", repr(transport), f"uses {own_transport!r}")


def words(plan: meron.Plan) -> str:
    table = json.loads(plan.json())
    return f"{table['name']!r} (gradient.dtype {table['gradient']['dtype']!r})"


def refuse(name: str, given: str, own: str) -> None:
    raise errors.argument(
        f"{name} is {given}, and the context that was given {own}",
        subject=name,
        advice=f"Leave the {name} out, or leave the context out: one that fits is then opened.",
    )

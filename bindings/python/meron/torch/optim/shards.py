# SPDX-License-Identifier: Apache-2.0
"""Optimizers on shards.

An elementwise rule gives the same result on a part of a tensor as on the whole, so any such
optimizer of torch can run on this rank's parts: `shard_optimizer` gives it those in place of the
params, lets it write them where peers will read them, and publishes.
"""

from __future__ import annotations

import functools
import gc
import json
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

import meron
from meron import errors
from meron._call_names import calling
from meron._native import call, ffi, lib, new
from meron.torch import registry
from meron.torch.api import require_units, shardings_below
from meron.torch.guard import plain
from meron.torch.optim.agreement import StepAgreement
from meron.torch.optim.f16_range import check_f16_range
from meron.torch.optim.in_place import COUNT, InPlace, InPlaceRule, keep_f32_states
from meron.torch.optim.replacement import (
    Wanted,
    ended,
    engine_optimizers,
    refuse_taken,
    replaced_by,
    torch_optimizers,
    trained_by,
    wanted_by,
)
from meron.torch.optim.states import NUMBERS, numbers_in
from meron.torch.sharded_context import ShardedContext
from meron.torch.sharding import Sharding, sharding_with, unit_of
from meron.torch.tensors import tensor_of
from meron.torch.torch_internals import keep_scheduler_mark, run_eagerly
from meron.torch.unit import ShardedUnit

# Not elementwise: what they do to one element depends on others of its tensor.
WHOLE_TENSOR_RULES = {"LBFGS", "Adafactor", "Muon", "SparseAdam"}


def check_in_memory(plan: dict[str, Any]) -> None:
    """Raises UnsupportedError if torch's optimizers do not support the plan's states and values."""
    states = plan["optimizer"]
    for subject, refused, what in (
        ("param.tier", plan["param"]["tier"] != "host", f"params on {plan['param']['tier']}"),
        ("optimizer.tier", states["tier"] != "host", f"optimizer states on {states['tier']}"),
        ("optimizer.dtype", states["dtype"] != "f32", f"optimizer states in {states['dtype']}"),
    ):
        if not refused:
            continue
        raise errors.UnsupportedError(
            f"the plan has {what}, and torch's optimizers keep the values that they update, and "
            "their states, in the host's memory and in f32",
            subject=subject,
            advice="Use an optimizer of meron.torch, which is the engine's.",
        )


class Shards:
    """The parts of some shardings' params as tensors, and how a step goes over them.

    Where ranks share memory, parts and their gradients stay at their addresses, so the tensors are
    kept from step to step; elsewhere one address per unit is looked at.

    `rule` updates bf16 parts in the engine's memory; without it 16-bit params have f32 values.
    """

    def __init__(self, shardings: list[Sharding], rule: InPlaceRule | None = None) -> None:
        for sharding in shardings:
            check_in_memory(json.loads(sharding.context.plan.json()))
        self.shardings = shardings
        self.rule = rule
        self.unread: list[tuple[ShardedUnit, int]] = []  # f32 parts that have no values yet
        self.parts: dict[ShardedUnit, dict[int, torch.nn.Parameter]] = {}
        # Those that lie in the engine's memory, by index: the others are f32 values of 16-bit
        # params, of ShardedUnit.masters.
        self.direct: dict[ShardedUnit, set[int]] = {}
        self.sorted: list[ShardedUnit] = []  # the keys of `parts`
        self.grads: dict[ShardedUnit, dict[int, torch.Tensor]] = {}  # f32, in the engine's memory
        registry.shards.add(self)
        self.end = ""  # why it cannot step any more
        self.bound: set[ShardedUnit] = set()  # units whose parts lie where they should
        self.updates: dict[ShardedContext, meron.Update] = {}  # that are open

    def replace(self, by: str) -> None:
        """Releases the units to an optimizer of the class `by`, which takes their f32 values over.
        Calls of this one raise StateError from now on. Local."""
        self.end_by(replaced_by(by))

    def end_by(self, end: str) -> None:
        """`end` says what happened to the params, for errors of later calls. Local."""
        self.end = self.end or end
        registry.shards.discard(self)

    def require_current(self, kind: str) -> None:
        """StateError once another optimizer has replaced this one."""
        if self.end:
            raise ended(kind, self.end)

    def part(self, unit: ShardedUnit, i: int) -> torch.nn.Parameter:
        """This rank's part of a param: in place, or f32 where 16 bits are gathered."""
        parts = self.parts.setdefault(unit, {})
        direct = self.direct.setdefault(unit, set())
        if i not in parts:
            low = unit.handles[i].dtype_name in ("bf16", "f16") and i in unit.trainable
            if self.rule is not None and low:
                unit.masters.pop(i, None)
            master = unit.masters.get(i)
            if master is None and low and self.rule is None:
                master = torch.zeros(len(unit.shard_range(i)), device="cpu")
                self.unread.append((unit, i))
            elif master is None:
                direct.add(i)
                master = torch.zeros(
                    len(unit.shard_range(i)), dtype=unit.data.placeholders[i].dtype, device="cpu"
                )
            parts[i] = torch.nn.Parameter(master, unit.params[i].requires_grad)
            if self.rule is not None and low:
                self.rule.begins[parts[i]] = unit.shard_range(i).start
            self.bound.discard(unit)
        return parts[i]

    def units(self) -> list[ShardedUnit]:
        """Those that the optimizer has params of, in the order in which they were made; those of a
        sharding one after the other."""
        if len(self.sorted) != len(self.parts):
            place: dict[ShardedContext, int] = {each: i for i, each in enumerate(self.shardings)}
            self.sorted = sorted(self.parts, key=lambda unit: (place[unit.sharding], unit.index))
        return self.sorted

    def of_shardings(self, units: list[ShardedUnit]) -> list[tuple[Sharding, list[ShardedUnit]]]:
        """Some units by their sharding, in one order on all ranks."""
        if len(self.shardings) == 1:
            return [(self.shardings[0], units)]
        return [(each, [u for u in units if u.sharding is each]) for each in self.shardings]

    def bind(self) -> None:
        """Points parts at the engine's memory, and gives new f32 ones their values. Collective: an
        update that changes nothing."""
        units = self.units()
        self.begin(units)
        for unit, i in self.unread:
            own = self.parts[unit][i].detach()
            own.copy_(tensor_in(unit, self._view(unit, i)))
            unit.masters[i] = own
        self.unread.clear()
        self.publish(units)

    def begin(self, units: list[ShardedUnit]) -> None:
        """Waits until this rank's parts may be written. Collective."""
        for sharding, own in self.of_shardings(units):
            if own:
                sharding.drop(own)
                update = meron.Update(sharding.context, [unit.unit for unit in own])
                update.__enter__()
                self.updates[sharding] = update
        for unit in units:
            if unit.masters:  # what was set since then is in place, and changes there
                for i in self.direct[unit] & unit.masters.keys():
                    del unit.masters[i]
            if unit in self.bound and unit.sharding.mapped:
                continue  # where ranks share memory nothing ever moves
            self.bound.add(unit)
            direct = {i: self.parts[unit][i] for i in sorted(self.direct[unit])}
            if moved(direct, functools.partial(self._view, unit)):
                for i, part in direct.items():
                    part.data = tensor_in(unit, self._view(unit, i))

    def publish(self, units: list[ShardedUnit]) -> None:
        for unit in units:
            for i in unit.masters:
                if i in self.parts[unit]:
                    whole = tensor_in(unit, self._view(unit, i))
                    whole.copy_(self.parts[unit][i].detach())
        while self.updates:
            self.updates.pop(next(iter(self.updates))).__exit__(None, None, None)
        for sharding, own in self.of_shardings(units):
            sharding.hold(own)

    def _view(self, unit: ShardedUnit, i: int) -> Any:
        view = new("meron_view *")
        handle = unit.handles[i]._handle
        call(lib.meron_update_view, view, self.updates[unit.sharding]._open_handle(), handle)
        return view

    def give_gradients(self) -> list[ShardedUnit]:
        """Sets `grad` of every part; the units that have any. Collective."""
        units = []
        for sharding, own in self.of_shardings(self.units()):
            units += sharding.reducer.finish(own)
        with plain():
            for unit in units:
                parts = self.parts[unit]
                grads = self.grads.get(unit)
                if grads is None or len(grads) < len(parts) or not unit.sharding.mapped:
                    grads = self._find_gradients(unit)
                seen, params = unit.gradients.seen, unit.params
                for i, part in parts.items():
                    if part.grad is not None:
                        refuse_written(unit, i)
                    if i not in seen or not params[i].requires_grad:
                        continue  # what may move is decided now
                    grad = grads[i]
                    if self.rule is not None and part in self.rule.begins:
                        self.rule.gradients[part] = grad
                    else:
                        part.grad = grad if part.dtype is torch.float32 else grad.to(part.dtype)
        return units

    def _find_gradients(self, unit: ShardedUnit) -> dict[int, torch.Tensor]:
        reducer = sharding_with(unit).reducer
        grads = self.grads.get(unit, {})
        held = [i for i in unit.trainable if i in self.parts[unit]]
        view = functools.partial(reducer.part_view, unit)
        if len(grads) < len(held) or moved(grads, view):
            self.grads[unit] = grads = {i: reducer.part(unit, i) for i in held}
        return grads

    def consume(self) -> None:
        """The step has used the gradients. All ranks must do so."""
        for sharding, own in self.of_shardings(self.units()):
            sharding.reducer.consume(own)

    def discard(self) -> None:
        """Forgets the gradients since the last step. All ranks must do so."""
        for sharding, own in self.of_shardings(self.units()):
            sharding.reducer.discard(own)

    def forget_gradients(self) -> None:
        if self.rule is not None:
            self.rule.gradients.clear()
        for parts in self.parts.values():
            for part in parts.values():
                part.grad = None


def refuse_written(unit: ShardedUnit, i: int) -> None:
    name = unit.handles[i].name
    raise errors.StateError(
        f"the gradient of this rank's shard of '{name}' was written outside of a step: the step "
        "would replace it",
        subject=name,
        advice="Set its grad to None, and write to meron.torch.local_grad(param), where param is "
        "the model's, or call meron.torch.set_full_grad(param, value) on all ranks.",
    )


def tensor_in(unit: ShardedUnit, view: Any) -> torch.Tensor:
    """A view of memory of a unit's context, flat."""
    return tensor_of(view, (view.count,), unit.sharding.context._require_open())


def check_alone(params: Iterable[torch.Tensor], own: Shards | None) -> None:
    """Raises ArgumentError if another optimizer than `own` has other params of a unit."""
    wanted: dict[ShardedUnit, set[int]] = {}
    for param in params:
        place = unit_of(param)
        if place is not None:
            wanted.setdefault(place[0], set()).add(place[1])

    def shared() -> ShardedUnit | None:
        others: Iterable[Shards] = registry.shards
        for other in others:
            for unit in other.parts.keys() & wanted.keys() if other is not own else ():
                if not other.parts[unit].keys() & wanted[unit]:
                    return unit
        return None

    # An unreferenced optimizer may exist until the garbage is collected.
    if shared() is not None and gc.collect() >= 0 and (unit := shared()) is not None:
        raise errors.argument(
            f"two optimizers share the unit '{unit.name}': a step of one would drop the gradients "
            "of the other",
            subject=unit.name,
            advice="Shard the params of each optimizer as units of their own, or use one optimizer "
            "with two param groups.",
        )


def check_known(params: Iterable[torch.Tensor], shards: Shards) -> None:
    """ArgumentError for params of a plan or group that the optimizer was not made for."""
    for param in params:
        place = unit_of(param)
        if place is not None and place[0].sharding not in shards.shardings:
            name = place[0].handles[place[1]].name
            raise errors.argument(
                f"{name} is sharded by another plan or group of ranks than the optimizer's params",
                subject=name,
                advice="Use an optimizer of its own for it, or pass shard_optimizer a module that "
                "has all of them.",
            )


def moved(tensors: Mapping[int, torch.Tensor], view: Callable[[int], Any]) -> bool:
    """True if the first of some tensors with elements is no longer at the address of its view."""
    for i, tensor in tensors.items():
        if tensor.numel():
            return bool(tensor.data_ptr() != int(ffi.cast("uintptr_t", view(i).data)))
    return False


@calling("mt.shard_optimizer")
def shard_optimizer(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    in_place: InPlace | None = None,
) -> torch.optim.Optimizer:
    """Makes a torch optimizer run on this rank's shards of a sharded module, in place. Collective.

    It may have been made before or after shard(), also with states (they are cut to the shards).
    From then on `loss.backward(); optimizer.step()` train the model; param groups hold the shards,
    flat tensors of this rank's elements. `zero_grad` drops gradients that were not used. Parts of
    the module may be sharded by different plans or groups of ranks.

    The optimizer updates f32 values of 16-bit params, and its states are f32: 12 bytes for each of
    this rank's elements with Adam. `in_place` saves them.

    Args:
        optimizer: of an elementwise rule, such as SGD, Adam(W), Adagrad, RMSprop, Lion.
        in_place: updates bf16 params themselves, and says in which dtype states stay: 4 bytes for
            each element with Adam in bf16. One param at a time is in f32. `rounded_steps` of a
            param group counts its steps then.

    Returns:
        The same optimizer.

    Raises:
        ArgumentError: its rule is not elementwise, or it has params of another model, or the module
        has trainable params that are in no unit; or `in_place` was given and no param is bf16.
        UnsupportedError: `in_place` was given, and a param is f16.
    """
    kind = type(optimizer).__name__
    if kind in WHOLE_TENSOR_RULES:
        raise errors.argument(
            f"{kind} is not elementwise: it cannot run on shards of tensors",
            advice="Use an elementwise optimizer, such as torch.optim.AdamW.",
        )
    if getattr(optimizer, "_meron_shards", None) is not None:
        raise errors.StateError("this optimizer runs on shards already")
    shardings = shardings_below(module)
    check_covered(module)
    known = {id(param) for unit in require_units(module) for param in unit.params}
    for group in optimizer.param_groups:
        for param in group["params"]:
            if id(param) not in known:
                raise errors.argument(
                    f"{kind} holds a param of shape {tuple(param.shape)} that the module does not "
                    "have, or that is not sharded",
                    advice="Make the optimizer from module.parameters().",
                )
    params = [param for group in optimizer.param_groups for param in group["params"]]
    wanted = wanted_by(params)
    others = engine_optimizers(kind, wanted)
    check_alone(params, None)
    rule = in_place_rule(optimizer, in_place) if in_place is not None else None
    others += [each for each in torch_optimizers(wanted) if updates_other(each, rule, wanted)]
    shards = Shards(shardings, rule)
    for other in others:
        other.replace(kind)
    optimizer._meron_shards = shards  # type: ignore[attr-defined]
    numbers = number_keys(optimizer)
    for group in optimizer.param_groups:
        group["params"] = [
            swap_param(optimizer, shards, param, numbers) for param in group["params"]
        ]
    shards.bind()
    wrap(optimizer, shards)
    return optimizer


def updates_other(shards: Shards, rule: InPlaceRule | None, wanted: Wanted) -> bool:
    """True if an optimizer updates other values of some 16-bit params than one with `rule` would:
    f32 copies of them, or the values themselves."""
    places = [(unit, i) for unit in shards.parts for i in wanted.get(unit, ())]
    low = any(unit.handles[i].dtype_name == "bf16" for unit, i in places)
    return low and (shards.rule is None) is not (rule is None)


def number_keys(optimizer: torch.optim.Optimizer) -> set[str]:
    """The states of an optimizer that are one number per param."""
    return set(NUMBERS).union(*(numbers_in(*item) for item in optimizer.state.items()))


def swap_param(
    optimizer: torch.optim.Optimizer, shards: Shards, param: torch.Tensor, numbers: set[str]
) -> torch.nn.Parameter:
    """The shard for a param, with the param's states cut to it, but those that are `numbers`."""
    place = unit_of(param)
    assert place is not None
    unit, i = place
    part = shards.part(unit, i)
    if param in optimizer.state:
        shard_range = unit.shard_range(i)
        states = optimizer.state.pop(param)
        for key, value in states.items():
            if isinstance(value, torch.Tensor) and value.shape == param.shape:
                if not value.dim() and key in numbers:
                    continue
                part_of_it = value.reshape(-1)[shard_range.start : shard_range.stop]
                states[key] = part_of_it.to("cpu", copy=True)
                if part.dtype is torch.float32 and value.is_floating_point():
                    states[key] = states[key].float()  # of a 16-bit param that has f32 values now
        optimizer.state[part] = states
    return part


def wrap(optimizer: torch.optim.Optimizer, shards: Shards) -> None:
    """Puts the engine's part of a step around the optimizer's own methods."""
    plain_step, plain_zero = optimizer.step, optimizer.zero_grad
    plain_add = optimizer.add_param_group
    kind = type(optimizer).__name__
    rule = shards.rule
    agreement = StepAgreement(optimizer, shards.parts, [] if rule is None else [COUNT])
    run: Callable[..., Any] = plain_step
    if rule is not None:
        run = functools.partial(rule.step, optimizer, plain_step)
        count_steps_of(optimizer, rule)

    def step(self: torch.optim.Optimizer, closure: Any = None) -> Any:
        """One step on this rank's shards; publishes the new values. Collective.

        Raises ArgumentError on all ranks if their groups or frozen params differ; NonFiniteError on
        all ranks if an f16 param cannot hold its new value. StateError once another optimizer has
        replaced this one.
        """
        shards.require_current(kind)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for sharding, own in shards.of_shardings(shards.units()):
            agreement.check(sharding, own)
        try:
            units = shards.give_gradients()
            for sharding in shards.shardings:
                sharding.wait_copied()
            if units:
                shards.begin(units)
                try:
                    run()
                finally:
                    shards.publish(units)
            else:
                run()
        finally:
            shards.forget_gradients()
        shards.consume()
        for sharding, own in shards.of_shardings(shards.units()):
            check_f16_range(sharding, own, shards.parts)
        return loss

    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        """Drops gradients. All ranks must do so."""
        shards.require_current(kind)
        plain_zero(set_to_none=True)
        shards.discard()

    def add_param_group(self: torch.optim.Optimizer, group: dict[str, Any]) -> None:
        params = group["params"]
        params = [params] if isinstance(params, torch.Tensor) else list(params)
        shards.require_current(kind)
        check_alone(params, shards)
        check_known(params, shards)
        for unit in wanted_by(params):
            if trained_by(unit) is not None:
                refuse_taken(f"a new param group of {kind} has params of '{unit.name}'", [unit])
        if rule is not None:
            refuse_f16(self, params)
        numbers = number_keys(self)
        group["params"] = [
            swap_param(self, shards, param, numbers) if unit_of(param) is not None else param
            for param in params
        ]
        if rule is not None:
            group.setdefault(COUNT, 0)
        plain_add(group)
        shards.bind()

    keep_scheduler_mark(plain_step, step)
    for name, function in (
        ("step", step),
        ("zero_grad", zero_grad),
        ("add_param_group", add_param_group),
    ):
        setattr(optimizer, name, types.MethodType(run_eagerly(function), optimizer))


def count_steps_of(optimizer: torch.optim.Optimizer, rule: InPlaceRule) -> None:
    """Lets groups count their steps, and keeps f32 states of bf16 params when torch loads them."""
    plain_load = optimizer.load_state_dict
    for group in optimizer.param_groups:
        group.setdefault(COUNT, 0)
    if rule.how.states is torch.float32:
        optimizer._meron_state_dtype = torch.float32  # type: ignore[attr-defined]

    def load_state_dict(self: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
        plain_load(state_dict)
        for group in self.param_groups:
            group.setdefault(COUNT, 0)
        if rule.how.states is torch.float32:
            keep_f32_states(self, state_dict)

    optimizer.load_state_dict = types.MethodType(load_state_dict, optimizer)  # type: ignore[method-assign]


def in_place_rule(optimizer: torch.optim.Optimizer, how: InPlace) -> InPlaceRule:
    """Raises where InPlace has nothing to do, or cannot do it."""
    params = [param for group in optimizer.param_groups for param in group["params"]]
    places = [place for place in map(unit_of, params) if place is not None]
    refuse_f16(optimizer, params)
    if not isinstance(how, InPlace):
        raise errors.argument(
            f"in_place is a {type(how).__name__}",
            subject="in_place",
            advice="Pass meron.torch.InPlace(), or leave it out.",
        )
    if not any(unit.handles[i].dtype_name == "bf16" for unit, i in places):
        raise errors.argument(
            f"in_place was given, and no param of {type(optimizer).__name__} is bf16",
            subject="in_place",
            advice="Leave it out: it is about bf16 params.",
        )
    return InPlaceRule(optimizer, how)


def refuse_f16(optimizer: torch.optim.Optimizer, params: Iterable[torch.Tensor]) -> None:
    """UnsupportedError that names an f16 param, which InPlace does not update."""
    for unit, i in (place for place in map(unit_of, params) if place is not None):
        if unit.handles[i].dtype_name != "f16":
            continue
        name = unit.handles[i].name
        raise errors.UnsupportedError(
            f"in_place: '{name}' of {type(optimizer).__name__} is f16. Updated in place it loses "
            "every change below 1/4096 of a value, and the eps of Adam is 0 in f16",
            subject=name,
            advice="Leave in_place out: the optimizer then updates f32 values. Or use bf16.",
        )


def check_covered(module: torch.nn.Module) -> None:
    """Raises ArgumentError naming trainable params in no unit, as no rank would reduce them."""
    outside = [
        name
        for name, param in module.named_parameters()
        if param.requires_grad and unit_of(param) is None
    ]
    if outside:
        raise errors.argument(
            f"{len(outside)} trainable params are in no unit: {', '.join(outside[:8])}",
            subject=outside[0],
            advice="Call meron.torch.shard on the root module last, or freeze them.",
        )


def refuse_whole_params(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    """A step of an optimizer that holds sharded params themselves would silently do nothing."""
    if getattr(optimizer, "_meron_shards", None) is not None or hasattr(
        optimizer, "_meron_on_shards"
    ):
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            place = unit_of(param)
            if place is not None:
                unit, i = place
                raise errors.StateError(
                    f"{type(optimizer).__name__} holds {unit.name}.{unit.names[i]}, which is "
                    "sharded: its gradient is sharded too, and param.grad is None",
                    subject=f"{unit.name}.{unit.names[i]}",
                    advice="Call meron.torch.shard_optimizer(model, optimizer) after shard(), or "
                    "use an optimizer of meron.torch.",
                )


register_optimizer_step_pre_hook(refuse_whole_params)

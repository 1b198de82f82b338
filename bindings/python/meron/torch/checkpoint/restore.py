# SPDX-License-Identifier: Apache-2.0
"""Optimizers out of a checkpoint: what is loaded into which, by names of params.

A `Plan` is made and checked before anything changes; `apply` cannot fail for what a checkpoint has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from meron import errors
from meron.checkpoint import Checkpoint
from meron.torch.checkpoint.compare import Differences, source_of
from meron.torch.checkpoint.document import check_options
from meron.torch.checkpoint.names import Names
from meron.torch.checkpoint.reading import Reader
from meron.torch.checkpoint.shard_states import (
    NUMBER_KINDS,
    as_given,
    begin_anew,
    drop_unstepped,
    dtype_of,
    engine_kinds,
    groups_of,
    held_params,
    key_of,
    options_of,
)
from meron.torch.optim.engine import EngineOptimizer
from meron.torch.optim.packed import Counts, first_values, set_counts
from meron.torch.optim.states import write_state
from meron.torch.unit import ShardedUnit

Place = tuple[ShardedUnit, int]
STEP = "state.step"
UNCOUNTED = ("SGD",)  # classes of torch that count no steps
# The options of the manifest's groups, with torch's names.
NUMBERS = {
    "learning_rate": "lr",
    "epsilon": "eps",
    "weight_decay": "weight_decay",
    "lr_decay": "lr_decay",
}


@dataclass
class Plan:
    """The states and options that one optimizer gets.

    Attributes:
        native: the engine loads its states, as they are in files.
        groups: options of each of its param groups.
        entry: the optimizer's entry in the manifest, with its number of steps; None if it was not
            the engine's.
        counts: steps that each param of an engine's optimizer has taken.
        numbers: kinds of states that are one number per param; None if the checkpoint does not
            list them.
        prefixes: what begins the names of the states in files, its own and the other optimizers'.
        parts: states of an engine's optimizer: unit, index, torch's name, this rank's values.
        states: states of a torch optimizer, by the key of its `state`.
    """

    optimizer: torch.optim.Optimizer
    native: bool = False
    groups: list[dict[str, Any]] = field(default_factory=list)
    entry: dict[str, Any] | None = None
    counts: Counts = field(default_factory=dict)
    numbers: list[str] | None = None
    prefixes: tuple[str, frozenset[str]] = ("", frozenset())
    parts: list[tuple[ShardedUnit, int, str, torch.Tensor]] = field(default_factory=list)
    states: dict[torch.Tensor, dict[str, Any]] = field(default_factory=dict)

    def key_of(self, kind: str) -> str | None:
        """The optimizer's name of a state of a kind; None if it has no such state."""
        own, others = self.prefixes
        key = kind.removeprefix("state.")
        if own:
            return key.removeprefix(own) if key.startswith(own) and key != kind else None
        return None if key.startswith(tuple(others)) else key_of(self.optimizer, kind)


def plan_of(
    number: int,
    optimizer: torch.optim.Optimizer,
    names: Names,
    checkpoint: Checkpoint,
    own: dict[str, Any],
    strict: bool,
    found: Differences,
) -> Plan:
    """Compares an optimizer with a checkpoint; local. Adds to `found` what is missing."""
    plan = Plan(optimizer)
    listed = checkpoint.manifest["optimizers"]
    saved = own.get("optimizers")
    if saved is not None and number < len(saved):
        plan.numbers = saved[number].get("numbers")
        used = [str(each.get("prefix", "")) for each in saved]
        plan.prefixes = used[number], frozenset(used) - {""}
    plan.groups = groups_from(number, optimizer, names, saved, listed, strict)
    plan.entry = entry = entry_of(number, saved, listed)
    is_saved = entry is not None or (saved is not None and number < len(saved))
    wanted = wanted_states(plan, names, checkpoint)
    there = [source_of(names, checkpoint, *each) is not None for each in wanted]
    if not is_saved and not any(there) and (wanted or not isinstance(optimizer, EngineOptimizer)):
        found.missing.append(f"the states of {type(optimizer).__name__}")
    if not isinstance(optimizer, EngineOptimizer):
        return plan
    if entry is not None:
        plan.native = (
            entry["rule"].lower() == type(optimizer).__name__.lower()
            and len(entry["groups"]) == optimizer.engine.groups
        )
    stepped = any(source_of(names, checkpoint, name, STEP) for name, _ in wanted)
    if stepped or (entry is not None and entry["steps"]):
        found.missing += [
            f"{kind} of {name}" for (name, kind), is_there in zip(wanted, there) if not is_there
        ]
    return plan


def entry_of(
    number: int, saved: list[dict[str, Any]] | None, listed: list[dict[str, Any]]
) -> dict[str, Any] | None:
    """The manifest's entry of an optimizer; None if the engine did not save it."""
    if saved is None:  # by another language, or imported: one entry is of all params
        place = 0 if len(listed) == 1 else number
    elif number < len(saved) and saved[number]["engine"]:
        place = sum(each["engine"] for each in saved[:number])
    else:
        return None
    return listed[place] if place < len(listed) else None


def wanted_states(plan: Plan, names: Names, checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """The states that an optimizer may have, by param and kind; of one of torch, which makes them
    in its steps, those kinds that the checkpoint has of any param."""
    optimizer = plan.optimizer
    if isinstance(optimizer, EngineOptimizer):
        kinds = list(states_by_kind(plan, optimizer))
        used = [names.of_place[place] for place in places_of(optimizer) if place in names.of_place]
    else:
        there = sorted({kind for kind, _ in checkpoint.tensors})
        kinds = [kind for kind in there if plan.key_of(kind) is not None]
        used = [held.name for group in held_params(optimizer, names) for held in group]
    return [(name, kind) for name in used for kind in kinds]


def states_by_kind(plan: Plan, optimizer: EngineOptimizer) -> dict[str, str]:
    """The states of an engine's optimizer, torch's names by kind, with the groups of a plan."""
    return engine_kinds(optimizer) if optimizer.has_states(plan.groups[0]) else {}


def places_of(optimizer: EngineOptimizer) -> list[Place]:
    return [(unit, i) for unit in optimizer.sharded for i in unit.trainable]


def groups_from(
    number: int,
    optimizer: torch.optim.Optimizer,
    names: Names,
    saved: list[dict[str, Any]] | None,
    listed: list[dict[str, Any]],
    strict: bool,
) -> list[dict[str, Any]]:
    """The options of an optimizer's groups as a checkpoint has them; its own where it has none."""
    kind = type(optimizer).__name__
    current = groups_of(optimizer, names)
    if saved is None or number >= len(saved):
        groups = listed[number]["groups"] if number < len(listed) else []
        if len(groups) != len(current):
            return [options_of(optimizer, n) for n in range(len(current))]
        return [from_manifest(optimizer, n, group) for n, group in enumerate(groups)]
    groups = saved[number]["groups"]
    if len(groups) != len(current):
        raise errors.argument(
            f"the checkpoint's {saved[number]['class']} has {len(groups)} param groups, this "
            f"{kind} has {len(current)}",
            subject="optimizer",
            advice="Make the optimizer with the same groups, or load with values_only.",
        )
    out = []
    for n, (old, new) in enumerate(zip(groups, current)):
        theirs = {names.aliases.get(name, name) for name in old["params"]}
        other = sorted(theirs ^ set(new["params"]))
        if other and strict:
            raise errors.argument(
                f"param group {n} of {kind} has other params than in the checkpoint: "
                + ", ".join(other[:10]),
                subject="optimizer",
                advice="Make the groups as they were, or load with strict=False.",
            )
        known = optimizer.param_groups[n].keys()
        options = {k: v for k, v in old.items() if k != "params" and k in known}
        check_options(optimizer, n, options)
        out.append(options)
    return out


def from_manifest(
    optimizer: torch.optim.Optimizer, number: int, group: dict[str, Any]
) -> dict[str, Any]:
    options = options_of(optimizer, number)
    out = {own: group[key] for key, own in NUMBERS.items() if own in options and key in group}
    if "betas" in options:
        out["betas"] = [group["beta1"], group["beta2"]]
    if "momentum" in options:
        out["momentum"] = group["beta1"]
    return out


# ---- Reading ------------------------------------------------------------------------------------


def read_states(plan: Plan, names: Names, reader: Reader) -> None:
    """Reads what the engine does not load itself, into new tensors. Collective with rank0_only."""
    if isinstance(plan.optimizer, EngineOptimizer):
        read_engine(plan, plan.optimizer, names, reader)
    else:
        read_torch(plan, plan.optimizer, names, reader)


def read_engine(plan: Plan, optimizer: EngineOptimizer, names: Names, reader: Reader) -> None:
    """States that the checkpoint lacks begin anew, also if the engine loads the others."""
    checkpoint = reader.checkpoint
    kinds = states_by_kind(plan, optimizer)
    initial = initial_states(plan, optimizer)
    for unit, i in places_of(optimizer):
        name = names.of_place.get((unit, i))
        if name is None:
            continue
        for kind, key in kinds.items():
            source = source_of(names, checkpoint, name, kind)
            if source is None:
                first = first_values(unit, i, initial[unit, i].get(key))
                plan.parts.append((unit, i, key, first))
            elif not plan.native:
                plan.parts.append((unit, i, key, reader.part(source, kind, unit.shard_range(i))))
        sources = [source_of(names, checkpoint, name, kind) for kind in kinds]
        begun = None not in sources
        plan.counts[unit, i] = steps_in(plan, names, reader, name, sources) if begun else 0
        if plan.native:
            continue
        source = source_of(names, checkpoint, name, "master")
        if source is not None and unit.handles[i].dtype_name != "f32":
            plan.parts.append(
                (unit, i, "master", reader.part(source, "master", unit.shard_range(i)))
            )


def steps_in(plan: Plan, names: Names, reader: Reader, name: str, states: list[str | None]) -> int:
    """The steps that a param had taken whose states the checkpoint has."""
    if plan.entry is not None:
        return counted(plan.entry, source_of(names, reader.checkpoint, name))
    source = source_of(names, reader.checkpoint, name, STEP)
    if source is not None:
        return int(reader.part(source, STEP, range(1)).item())
    return int(bool(states))  # torch's SGD keeps no count


def counted(entry: dict[str, Any], source: str | None) -> int:
    """The steps of a param by the manifest: a number for all, but for those that it lists."""
    return int(entry.get("param_steps", {}).get(source, entry["steps"]))


def initial_states(plan: Plan, optimizer: EngineOptimizer) -> dict[Place, dict[str, float]]:
    """The states that are not zero before the first step, by torch's name, of each param."""
    found: dict[Place, dict[str, float]] = {place: {} for place in places_of(optimizer)}
    for group, options in zip(optimizer.param_groups, plan.groups):
        first = optimizer.initial_states({**optimizer.defaults, **group, **options})
        found.update(dict.fromkeys(optimizer._trainable(group), first))
    return found


def read_torch(plan: Plan, optimizer: torch.optim.Optimizer, names: Names, reader: Reader) -> None:
    checkpoint = reader.checkpoint
    kinds = sorted({kind for kind, _ in checkpoint.tensors})
    keys = {kind: plan.key_of(kind) for kind in kinds}
    counts = type(optimizer).__name__ not in UNCOUNTED
    if plan.entry is not None and not plan.entry["steps"] and not counts:
        return  # the engine's zeros of before the first step, which torch's would take for momentum
    for held in (one for group in held_params(optimizer, names) for one in group):
        state: dict[str, Any] = {}
        for kind, key in keys.items():
            source = source_of(names, checkpoint, held.name, kind) if key is not None else None
            if source is None or key is None:
                continue
            shape = tuple(checkpoint.tensors[kind, source]["shape"])
            if is_number(plan, kind, shape, held.shape):
                state[key] = reader.part(source, kind, range(1)).reshape(())
            else:
                value = reader.part(source, kind, held.own)
                dtype = dtype_of(optimizer, held.part, value)
                state[key] = value.reshape(held.part.shape).to(held.part.device, dtype)
        if state and counts and "step" not in state and plan.entry is not None:
            source = source_of(names, checkpoint, held.name)
            state["step"] = torch.tensor(float(counted(plan.entry, source)))
        if state:
            plan.states[held.part] = state
    drop_unstepped(plan.states)


def is_number(plan: Plan, kind: str, saved: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """True for a state that is one number; of a checkpoint that does not list these, as far as its
    kind and its shape say."""
    if plan.numbers is not None:
        return kind in plan.numbers
    return saved == () and (shape != () or kind in NUMBER_KINDS)


# ---- Applying -----------------------------------------------------------------------------------


def set_groups(plan: Plan) -> None:
    """Before the engine loads: it may have to make its optimizer anew. Collective then."""
    optimizer = plan.optimizer
    for group, options in zip(optimizer.param_groups, plan.groups):
        for key, value in options.items():
            group[key] = as_given(value, group.get(key))
    if (
        isinstance(optimizer, EngineOptimizer)
        and optimizer.common_of(optimizer.param_groups[0]) != optimizer._made_with
    ):
        optimizer.release()
        optimizer._make_engine()


def set_states(plan: Plan) -> None:
    """After the engine has loaded. Local."""
    optimizer = plan.optimizer
    if isinstance(optimizer, EngineOptimizer):
        for unit, i, key, values in plan.parts:
            write_state(optimizer, unit, i, key, values)
        set_counts(optimizer, plan.counts, plan.entry["steps"] if plan.entry is not None else None)
        # The engine's groups have the numbers of the last step; a scheduler may have set others.
        optimizer._set_numbers = [{} for _ in optimizer._set_numbers]
        return
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param in plan.states:
                optimizer.state[param] = plan.states[param]
            else:
                begin_anew(optimizer, group, param)

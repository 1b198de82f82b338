# SPDX-License-Identifier: Apache-2.0
"""Plans: the ranks and the dtype of each kind of state. Pure data."""

from __future__ import annotations

import json
from typing import Any, Literal, Union

from meron import errors
from meron._methods import PlanMethods
from meron._native import Owner, initial, lib, take_string, text

Json = Union[str, bytes, "dict[str, Any]"]
# Plans of `meron.open`. Other texts, such as "mics(4)", are for Plan.preset and Plan.parse.
Preset = Literal["zero0", "zero1", "zero2", "zero3", "mics", "hpz", "zeropp"]
PlanLike = Union["Plan", Preset, bytes, "dict[str, Any]"]


class Plan(PlanMethods, Owner):
    """A strategy as a table. Made by `Plan.preset` or `Plan.parse`; equal plans compare equal."""

    _release_function = lib.meron_plan_release

    def __init__(self, making: Any, *arguments: Any) -> None:
        """Makes it by a function of the library, whose first parameter receives it."""
        self._receive("meron_plan *", making, *arguments)

    @classmethod
    def preset(cls, name: str) -> Plan:
        """One of the named plans.

        "zero0" (everything replicated), "zero1" (optimizer states sharded), "zero2" (gradients too)
        or "zero3" (parameters too); for several nodes "mics(4)" (zero3 within groups of 4 ranks),
        "hpz(4)" (zero3 with a secondary partition of the parameters in each group) or "zeropp(4)"
        (the same, with parameters in int8 and gradients in int4 between groups). Without an
        argument a group is the ranks of a node.

        Raises ArgumentError for another name, with the known ones.
        """
        return cls(lib.meron_plan_preset, text(name, "a plan's name"))

    @classmethod
    def parse(cls, source: Json) -> Plan:
        """A plan from JSON text, or from such a dict: `{"preset": "zero2", ...}`.

        Raises ParseError with line and key, ArgumentError, or UnsupportedError.
        """
        data = json_bytes(source)
        return cls(lib.meron_plan_parse, data, len(data))

    def predict(
        self,
        model: Json,
        ranks: int,
        *,
        micro_batches: int = 1,
        gathers_per_micro_batch: int = 2,
        ranks_per_node: int = 0,
        optimizer_states: int = 2,
    ) -> Any:
        """Predicts bytes per link and step, and peak bytes per tier, per rank.

        Args:
            model: `{"parameters": N, "layers": L, "dtype": "bf16"}`, or
                `{"units": [{"name": ..., "tensors": [{"name", "shape", "dtype"}]}]}`, as a dict or
                as JSON text; `safetensors_model` reads one from a file.
            ranks: the number of ranks, at least 1.
            micro_batches: per optimizer step.
            gathers_per_micro_batch: of every unit; 2 are forward and backward.
            ranks_per_node: how many ranks share memory, side by side; 0: all of them.
            optimizer_states: that the update rule keeps of an element, besides the master: 2 for
                AdamW and Adam, 1 for Adagrad, Lion and SGD with a momentum, 0 for SGD without one.

        Returns:
            The library's JSON as dicts and lists. Raises ParseError or ArgumentError.
        """
        workload = workload_of(
            micro_batches, gathers_per_micro_batch, ranks, ranks_per_node, optimizer_states
        )
        return json.loads(self._predict(model, workload, 0))

    def predict_table(
        self,
        model: Json,
        ranks: int,
        *,
        micro_batches: int = 1,
        gathers_per_micro_batch: int = 2,
        ranks_per_node: int = 0,
        optimizer_states: int = 2,
    ) -> str:
        """The same as a table for people."""
        workload = workload_of(
            micro_batches, gathers_per_micro_batch, ranks, ranks_per_node, optimizer_states
        )
        return self._predict(model, workload, 1)

    def _predict(self, model: Json, workload: Any, table: int) -> str:
        data = json_bytes(model)
        return take_string(lib.meron_plan_predict, self._handle, data, len(data), workload, table)

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return (Plan.parse, (self.json(),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.json() == other.json()

    def __hash__(self) -> int:
        return hash(self.json())

    def __repr__(self) -> str:
        return f"meron.Plan.parse({self.json()!r})"


def as_plan(plan: PlanLike | str) -> Plan:
    """A plan from what `meron.open` takes: a Plan, a preset's name, JSON text or a dict."""
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, str) and not plan.lstrip().startswith("{"):
        return Plan.preset(plan)
    return Plan.parse(plan)


def workload_of(
    micro_batches: int, gathers: int, ranks: int = 1, node: int = 0, states: int = 2
) -> Any:
    workload = initial("meron_workload")
    try:
        workload.ranks = ranks
        workload.micro_batches = micro_batches
        workload.gathers_per_micro_batch = gathers
        workload.ranks_per_node = node
        workload.optimizer_states = states
    except OverflowError:
        raise errors.argument(
            "a workload has numbers from 0 to 4294967295, not "
            f"{ranks}, {micro_batches}, {gathers}, {node}, {states}"
        ) from None
    return workload


def json_bytes(source: Json) -> bytes:
    if isinstance(source, bytes):
        return source
    return (source if isinstance(source, str) else json.dumps(source)).encode("utf-8", "replace")

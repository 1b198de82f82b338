# SPDX-License-Identifier: Apache-2.0
# Generated from capi/api.json by tools/generate/generate.py: do not edit.
"""The operation `call`. ../README.md defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meron
from operations import finish_or_keep, number, operation, wanted
from session import Session
from table import Malformed, Statement
from values import check_equal, check_has


def flag(text: str) -> bool:
    return text == "1"


def given(statement: Statement, **kinds: Callable[[str], Any]) -> dict[str, Any]:
    """The options that a statement has."""
    return {key: kinds[key](value) for key, value in statement.arguments if key in kinds}


OF_GROUPS = {"meron_barrier_begin"}
CALLS: dict[str, Callable[[Any, Statement], Any]] = {
    "meron_context_plan_json": lambda it, s: it.plan_json(),
    "meron_context_event_fd": lambda it, s: it.event_fd(),
    "meron_checkpoint_cancel_save": lambda it, s: it.cancel_save(),
    "meron_plan_json": lambda it, s: it.json(),
    "meron_plan_table": lambda it, s: it.table(),
    "meron_barrier_begin": lambda it, s: it.barrier_begin(),
    "meron_reduce_consume": lambda it, s: it.consume(),
    "meron_reduce_scale_feedback": lambda it, s: it.scale_feedback(number(s, "factor", 0)),
    "meron_optimizer_set_max_norm": lambda it, s: it.set_max_norm(number(s, "max_norm", 0)),
    "meron_schedule_drop": lambda it, s: it.drop(),
    "meron_io_describe": lambda it, s: it.describe(),
}


@operation
def call(session: Session, statement: Statement) -> None:
    name = wanted(statement, "function")
    function = CALLS.get(name)
    if function is None:
        raise Malformed(f"there is no call of {name}")
    item = (
        session.group(statement.name)
        if name in OF_GROUPS
        else session.held(statement.name or session.current_name).item
    )
    result = function(item, statement)
    if isinstance(result, meron.Future):
        finish_or_keep(session, statement, result)
    elif isinstance(result, str):
        check_has(result, statement)
    elif result is not None:
        check_equal("the result", result, number(statement, "is", result))

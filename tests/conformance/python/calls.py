# SPDX-License-Identifier: Apache-2.0
# Generated from capi/api.json by tools/generate/generate.py: do not edit.
"""The operation `call`. ../README.md defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operations import number, operation, wanted
from session import Session
from table import Malformed, Statement
from values import check_equal, check_has

CALLS: dict[str, Callable[[Any, Statement], Any]] = {
    "meron_plan_json": lambda it, s: it.json(),
    "meron_plan_table": lambda it, s: it.table(),
    "meron_reduce_consume": lambda it, s: it.consume(),
    "meron_reduce_scale_feedback": lambda it, s: it.scale_feedback(number(s, "factor", 0)),
    "meron_optimizer_set_max_norm": lambda it, s: it.set_max_norm(number(s, "max_norm", 0)),
    "meron_schedule_drop": lambda it, s: it.drop(),
    "meron_io_describe": lambda it, s: it.describe(),
}


@operation
def call(session: Session, statement: Statement) -> None:
    function = CALLS.get(wanted(statement, "function"))
    if function is None:
        raise Malformed(f"there is no call of {statement.get('function')}")
    result = function(session.held(statement.name or session.current_name).item, statement)
    if isinstance(result, str):
        check_has(result, statement)
    elif result is not None:
        check_equal("the result", result, number(statement, "is", result))

# SPDX-License-Identifier: Apache-2.0
"""What C's types cannot say: capi/annotations.json, laid over what was read from the headers.

since      the version of functions that name none of their own
memory     by the kind of parameter (data, view): the memory space that it lies in
functions  by name: `since`, and `nullable`, the pointers for which NULL has a meaning
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model import Api, CType, Param


class AnnotationError(Exception):
    """The annotations do not fit the headers; the text has a line per offence."""


def apply(api: Api, path: Path) -> None:
    """Sets `since`, `nullable` and `memory` throughout `api`."""
    notes = json.loads(path.read_text())
    offences = [f"{path.name}: {offence}" for offence in check(api, notes)]
    if offences:
        raise AnnotationError("\n".join(offences))
    for function in api.functions:
        note = notes["functions"].get(function.name, {})
        function.since = note.get("since", notes["since"])
        for param in function.params:
            param.nullable = param.role == "error" or param.name in note.get("nullable", [])
            param.memory = notes["memory"].get(kind_of(param), "")


def kind_of(param: Param) -> str:
    """ "data" for tensor data, "view" for a view of it, else ""."""
    kind = CType.parse(param.type)
    if kind.name == "void" and param.name == "data" and kind.pointers == 1:
        return "data"
    return "view" if kind.name in ("meron_view", "struct DLManagedTensorVersioned") else ""


def check(api: Api, notes: dict[str, Any]) -> Iterator[str]:
    functions = {function.name: function for function in api.functions}
    for name, note in notes["functions"].items():
        if name not in functions:
            yield f"{name}: no such function"
            continue
        pointers = {
            param.name for param in functions[name].params if CType.parse(param.type).pointers
        }
        for param in note.get("nullable", []):
            if param not in pointers:
                yield f"{name}: {param} is no pointer parameter of it"
    for function in api.functions:
        nullable = notes["functions"].get(function.name, {}).get("nullable", [])
        for param in function.params:
            says_null = "NULL" in param.doc and "must not be NULL" not in param.doc
            if says_null and param.name not in nullable:
                yield f"{function.name}: the doc of {param.name} speaks of NULL; say `nullable`"

# SPDX-License-Identifier: Apache-2.0
"""Facts that C's types cannot express: capi/annotations.json, added to the content of the headers.

since      the version of the functions that have no `since` of their own
memory     by the kind of parameter (data, view): the memory space of its address
errors     by status, where it is not made of the status' name: `kind`, and of Python the class
           (`python`) and the built-in exception that it is too (`base`)
enums, options, records, rules
           structs and enums that languages have as types of their own (values.py). A rule's numbers
           are those of its INIT macro
functions  by name: `since`; `nullable`, the pointers for which NULL has a meaning; `callback`, true
           if callbacks may call it, as they may all _init and _release; and `method`, which makes
           it a method of its handle in every language (plain.py): the names that are not the
           function's own, by language, null where the method is by hand
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plain
import values
from model import Api, CType, Enumerator, ErrorKind, Param

# Last words of functions that callbacks may always call.
FOR_CALLBACKS = ("_init", "_release")


class AnnotationError(Exception):
    """The annotations do not fit the headers; the text has a line per offence."""


def apply(api: Api, path: Path) -> None:
    """Sets `since`, `nullable` and `memory` throughout `api`."""
    notes = json.loads(path.read_text())
    try:
        api.enum_types = values.enums_of(api, notes["enums"])
        api.value_types = values.values_of(api, notes)
    except (KeyError, values.NoValue) as error:
        raise AnnotationError(f"{path.name}: no such struct, enum or field: {error}") from None
    offences = [f"{path.name}: {offence}" for offence in check(api, notes)]
    if offences:
        raise AnnotationError("\n".join(offences))
    for function in api.functions:
        note = notes["functions"].get(function.name, {})
        function.since = note.get("since", notes["since"])
        for param in function.params:
            param.nullable = param.role == "error" or param.name in note.get("nullable", [])
            param.memory = notes["memory"].get(kind_of(param), "")
        function.callback = note.get("callback", function.name.endswith(FOR_CALLBACKS))
        if "method" in note:
            function.method = plain.names_of(function, api, note["method"])
    api.errors = [error_of(value, notes["errors"]) for value in statuses(api) if value.value < 0]


def statuses(api: Api) -> list[Enumerator]:
    return next((enum.values for enum in api.enums if enum.name == "meron_status"), [])


def error_of(value: Enumerator, notes: dict[str, Any]) -> ErrorKind:
    note = notes.get(value.name, {})
    words = value.name.removeprefix("MERON_E_").split("_")
    kind = note.get("kind", "".join(word.capitalize() for word in words))
    python = note.get("python", f"{kind}Error")
    return ErrorKind(value.name, value.value, value.doc, kind, python, note.get("base", ""))


def kind_of(param: Param) -> str:
    """ "data" for tensor data, "view" for a view of it, else ""."""
    kind = CType.parse(param.type)
    if kind.name == "void" and param.name == "data" and kind.pointers == 1:
        return "data"
    return "view" if kind.name in ("meron_view", "struct DLManagedTensorVersioned") else ""


def check(api: Api, notes: dict[str, Any]) -> Iterator[str]:
    functions = {function.name: function for function in api.functions}
    for name in notes["errors"]:
        if name not in {value.name for value in statuses(api)}:
            yield f"{name}: no such status"
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
        for language in note.get("method", {}):
            if language not in plain.LANGUAGES:
                yield f"{name}: {language!r} is no language, but {', '.join(plain.LANGUAGES)}"
        if "method" in note:
            try:
                plain.names_of(functions[name], api, note["method"])
            except plain.NotPlain as reason:
                yield f"{name}: cannot be a method: {reason}"
    for function in api.functions:
        nullable = notes["functions"].get(function.name, {}).get("nullable", [])
        for param in function.params:
            says_null = "NULL" in param.doc and "must not be NULL" not in param.doc
            if says_null and param.name not in nullable:
                yield f"{function.name}: the doc of {param.name} speaks of NULL; say `nullable`"

# SPDX-License-Identifier: Apache-2.0
"""Rules for every declaration. Returns a list of offences, empty if there are none."""

from __future__ import annotations

import re
from collections.abc import Iterator

import docs
from model import Api, Constant, CType, Function

REQUIRED = ("blocks", "threads", "errors")
# Types that a caller receives. Their ownership must be documented.
HANDED_OUT = {"char", "meron_view", "struct DLManagedTensorVersioned"}
# Names that comments may contain although no header declares them: variables of the environment,
# and the name of meron_status_name for unknown codes.
NOT_DECLARED = {"MERON_JOB", "MERON_STORE", "MERON_TOKEN", "MERON_TOKEN_FD", "MERON_E_UNKNOWN"}
# Verbs of functions whose result may be ignored: finalizers call them.
IGNORABLE = ("_release", "_close", "_free")


def check(api: Api, blocks: dict[str, docs.Block]) -> list[str]:
    known = set(api.named()) | {value.name for enum in api.enums for value in enum.values}
    known |= {struct.init.macro for struct in api.structs if struct.init}
    known |= {init.macro for struct in api.structs for init in struct.inits}
    offences = [*check_types(api)]
    for function in api.functions:
        block = blocks[function.name]
        for message in (
            *check_block(function, block),
            *check_signature(function, {handle.name for handle in api.handles}),
            *check_names(function, known),
        ):
            offences.append(f"meron/{function.header}.h: {function.name}: {message}")
    return offences


def check_types(api: Api) -> Iterator[str]:
    handles = {handle.name for handle in api.handles}
    for struct in api.structs:
        where = f"meron/{struct.header}.h: {struct.name}"
        if "id" in {field.name for field in struct.fields} or len(struct.fields) == 1:
            yield f"{where}: a handle type has exactly one field, uint64_t id"
        if struct.init and not struct.sized and struct.name not in handles:
            yield f"{where}: has an INIT macro, so its first field must be struct_size"
        if struct.sized and struct.fields[0].type != "uint32_t":
            yield f"{where}: struct_size must be uint32_t"
        for field in struct.fields:
            if CType.parse(field.type).name == "int":
                yield f"{where}: {field.name}: fields have sized types"
    for enum in api.enums:
        if enum.underlying != "int32_t":
            yield f"meron/{enum.header}.h: {enum.name}: an enum is a typedef of int32_t"
        for value in enum.values:
            if not value.name.startswith(enum.prefix):
                yield (
                    f"meron/{enum.header}.h: {enum.name}: the name of {value.name} does not begin "
                    f"with {enum.prefix}"
                )
    for item in api.named().values():
        if not isinstance(item, (Function, Constant)) and not item.doc:
            yield f"meron/{item.header}.h: {item.name}: has no comment"


def check_block(function: Function, block: docs.Block) -> Iterator[str]:
    if not block.brief:
        yield "has no doc block"
        return
    for field in REQUIRED:
        if not getattr(function, field):
            yield f"its doc block lacks '{field.capitalize()}:'"
    order = [name for name in docs.FIELDS if name in block.fields]
    if list(block.fields) != order:
        yield f"the fields stand in the order {', '.join(docs.FIELDS)}"
    names = {param.name for param in function.params}
    for name in block.params:
        if name not in names:
            yield f"@param {name}: no such parameter"
    if not function.ownership and hands_out(function):
        yield "hands something out, so its doc block needs 'Ownership:'"


def hands_out(function: Function) -> bool:
    if CType.parse(function.returns).pointers:
        return True
    for param in function.params:
        kind = CType.parse(param.type)
        if param.role == "out" and (kind.name in HANDED_OUT or is_new_handle(function, kind)):
            return True
    return False


def is_new_handle(function: Function, kind: CType) -> bool:
    return kind.name.startswith("meron_") and not re.search(r"_(stats|prediction|info)$", kind.name)


def check_signature(function: Function, handles: set[str]) -> Iterator[str]:
    roles = [param.role for param in function.params]
    if "out" in roles[1:]:
        yield "the out parameter comes first"
    if "error" in roles[:-1]:
        yield "meron_error **err comes last"
    about_errors = function.name.startswith(("meron_error_", "meron_status_"))
    if function.returns == "meron_status" and not about_errors:
        if not roles or roles[-1] != "error":
            yield "returns meron_status, so its last parameter must be meron_error **err"
        if not function.nodiscard and not function.name.endswith(IGNORABLE):
            yield "returns meron_status, so it must be MERON_NODISCARD"
    for param in function.params:
        kind = CType.parse(param.type)
        if kind.name in handles and kind.pointers and param.role == "in" and not kind.const:
            yield f"{param.name}: an array of handles that is only read must be const"


def check_names(function: Function, known: set[str]) -> Iterator[str]:
    text = " ".join(
        [
            function.brief,
            function.doc,
            function.ownership,
            function.blocks,
            function.threads,
            function.errors,
            *(param.doc for param in function.params),
        ]
    )
    for name in sorted(set(re.findall(r"\b(?:meron|MERON)_\w+", text))):
        if name not in known | NOT_DECLARED:
            yield f"speaks of {name}, which is declared nowhere"

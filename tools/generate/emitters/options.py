# SPDX-License-Identifier: Apache-2.0
"""Options structs as keyword arguments of Python and of Julia.

C++, Rust and Java have a class of each (values.py, java_options.py).
"""

from __future__ import annotations

from model import Api, EnumType, ValueField, ValueType
from plain import enum_of

PYTHON_NUMBERS = {
    "int32_t": "-(1 << 31), 1 << 31", "int64_t": "-(1 << 63), 1 << 63", "uint32_t": "0, 1 << 32",
    "uint64_t": "0, 1 << 64", "size_t": "0, 1 << 64",
}  # fmt: skip


def default_name(api: Api, field: ValueField) -> str:
    """The plain name of the value of an enum that is a field's default."""
    return next(value.name for value in enum_of(api, field).values if value.of == field.default)


# ---- Python --------------------------------------------------------------------------------------


def python_keywords(api: Api, struct: ValueType) -> list[str]:
    """The parameters of a function, behind those that are no options."""
    return ["*", *(python_keyword(api, field) for field in struct.fields)]


def python_keyword(api: Api, field: ValueField) -> str:
    if field.kind == "enum":
        return f'{field.name}: str = "{default_name(api, field)}"'
    if field.kind == "flag":
        return f"{field.name}: bool = {bool(field.default)}"
    if field.kind == "duration":
        return f"{field.name}: float | None = None"
    if field.kind == "stream":
        return f"{field.name}: int = 0"
    if field.type == "double":
        return f"{field.name}: float = {field.default!r}"
    default = "(1 << 64) - 1" if field.default == 2**64 - 1 else repr(field.default)
    return f"{field.name}: int = {default}"


def python_lines(api: Api, struct: ValueType) -> list[str]:
    """Statements that make `options` of the keywords."""
    lines = [f'options = initial("{struct.of}")']
    for field in struct.fields:
        line = f"options.{field.of} = {python_value(api, field)}"
        if field.kind == "duration":
            lines.append(f"if {field.name} is not None:")
            line = f"    {line}"
        lines.append(line)
    return lines


def python_value(api: Api, field: ValueField) -> str:
    name = field.name
    if field.kind == "enum":
        return python_enum(enum_of(api, field), name)
    if field.kind == "number" and field.type != "double":
        return f'whole({name}, "{name}", {PYTHON_NUMBERS[field.type]})'
    return {
        "flag": f"bool({name})",
        "duration": f"max(nanoseconds({name}), 1)",  # 0 would mean the default
        "stream": f"stream_pointer({name})",
    }.get(field.kind, name)


def python_enum(enum: EnumType, name: str) -> str:
    return f'code_of({enum.names["python"]}, {name}, "{name}")'


# ---- Julia ---------------------------------------------------------------------------------------


def julia_keywords(api: Api, struct: ValueType) -> list[str]:
    return [f"{field.name} = {julia_default(api, field)}" for field in struct.fields]


def julia_default(api: Api, field: ValueField) -> str:
    if field.kind == "enum":
        return f":{default_name(api, field)}"
    if field.default == 2**64 - 1:
        return "typemax(UInt64)"
    known = {"flag": str(bool(field.default)).lower(), "duration": "nothing", "stream": "C_NULL"}
    return known.get(field.kind) or repr(field.default)


def julia_lines(api: Api, struct: ValueType) -> list[str]:
    """Lines that make `options` of the keywords."""
    fields = "".join(
        f"        {field.of} = {julia_value(api, field)},\n" for field in struct.fields
    )
    return [
        "    options = Ref(changed(",
        f"        initial(LibMeron.{struct.of}, LibMeron.{struct.of}_init);",
        *fields.splitlines(),
        "    ))",
    ]


def julia_value(api: Api, field: ValueField) -> str:
    name = field.name
    if field.kind == "enum":
        return julia_enum(enum_of(api, field), name)
    return {
        "duration": f"{name} === nothing ? 0 : max(nanoseconds({name}), 1)",
        "stream": f"stream_pointer({name})",
    }.get(field.kind, name)


def julia_enum(enum: EnumType, name: str) -> str:
    known = ", ".join(f"{value.name} = LibMeron.{value.of}" for value in enum.values)
    return f'choice(({known},), {name}, "{name}")'

# SPDX-License-Identifier: Apache-2.0
"""Options structs as the conformance runners read them from a line of a case."""

from __future__ import annotations

from emitters.values import pascal
from model import Api, EnumType, ValueField, ValueType
from plain import camel, enum_of


def said(struct: ValueType) -> list[ValueField]:
    """The fields that a case can give: all but addresses."""
    return [field for field in struct.fields if field.kind != "stream"]


def c_case(api: Api, struct: ValueType) -> list[str]:
    lines = [f"{struct.of} options = {struct.of.upper()}_INIT;"]
    for field in said(struct):
        name = field.name
        number = f'static_cast<{field.type}>(statement.number("{name}", 0))'
        if field.kind == "duration":
            number = f'static_cast<{field.type}>(1e9 * statement.number("{name}", 0))'
        elif field.kind == "enum":
            number = c_enum(enum_of(api, field), name)
        lines.append(f'if (statement.has("{name}")) {{')
        lines += [f"  options.{field.of} = {number};", "}"]
    return lines


def c_enum(enum: EnumType, name: str) -> str:
    known = ", ".join(f'{{"{value.name}", {value.of}}}' for value in enum.values)
    return f'one_of(statement, "{name}", {{{known}}})'


def rust_enum(enum: EnumType, name: str, otherwise: str = "") -> str:
    """An expression for the value; `otherwise`, if it need not be given."""
    kind = enum.names["rust"]
    some = 'Some("{}")' if otherwise else '"{}"'
    arms = "".join(
        f"    {some.format(value.name)} => {kind}::{pascal(value.name)},\n" for value in enum.values
    )
    if otherwise:
        arms += f"    None => {otherwise},\n"
    found = f's.get("{name}")' if otherwise else f's.require("{name}")?'
    other = "Some(other)" if otherwise else "other"
    return (
        f"match {found} {{\n{arms}"
        f'    {other} => return Err(wrong(format!("unknown {name} {{other}}"))),\n}}'
    )


def java_enum(enum: EnumType, name: str) -> str:
    return f'{enum.names["java"]}.valueOf(statement.wanted("{name}").toUpperCase())'


PYTHON_KINDS = {"enum": "str", "flag": "flag", "duration": "float"}


def python_case(struct: ValueType) -> str:
    """The keywords of a call."""
    kinds = (f"{field.name}={python_kind(field)}" for field in said(struct))
    return f"**given(s, {', '.join(kinds)})"


def python_kind(field: ValueField) -> str:
    number = "float" if field.type == "double" else "int"
    return PYTHON_KINDS.get(field.kind, number)


def rust_case(api: Api, struct: ValueType) -> list[str]:
    lines = [f"let mut options = {struct.names['rust']}::default();"]
    for field in said(struct):
        name, own = field.name, f"options.{field.name}"
        number = f's.number("{name}", {own})?'
        if field.kind == "flag":
            number = f's.number("{name}", u8::from({own}))? == 1'
        elif field.kind == "duration":
            number = f'Duration::from_secs_f64(s.number("{name}", {own}.as_secs_f64())?)'
        elif field.kind == "enum":
            number = rust_enum(enum_of(api, field), name, own)
        lines += f"{own} = {number};".splitlines()
    return lines


def julia_case(struct: ValueType) -> str:
    kinds = (f"{field.name} = {julia_kind(field)}" for field in said(struct))
    return f"given(s; {', '.join(kinds)})..."


def julia_kind(field: ValueField) -> str:
    number = "real" if field.type == "double" else "integer"
    return {"enum": "Symbol", "flag": "flag", "duration": "real"}.get(field.kind, number)


def java_case(api: Api, struct: ValueType) -> list[str]:
    name = struct.names["java"]
    lines = [f"final {name} options = new {name}();"]
    for field in said(struct):
        number = f'statement.number("{field.name}", 0)'
        if field.kind == "enum":
            number = java_enum(enum_of(api, field), field.name)
        elif field.kind == "flag":
            number = f"{number} == 1"
        elif field.kind == "duration":
            number = f"Operations.seconds({number})"
        elif field.type != "double":
            number = f"({'int' if '32' in field.type else 'long'}) {number}"
        lines.append(f'if (statement.get("{field.name}") != null) {{')
        lines += [f"    options.{camel(field.name)}({number});", "}"]
    return lines

# SPDX-License-Identifier: Apache-2.0
"""Structs, enums and update rules as types of the Rust crate `meron`: src/values/, a file for each
header. Structs are non-exhaustive, those that a caller fills have setters."""

from __future__ import annotations

import textwrap

from emitters.methods import LICENSE, NOTE, RUST_NUMBERS
from emitters.options import default_name
from emitters.rust import documented
from emitters.values import enum_names, hidden_of, init_of, pascal
from model import Api, EnumType, ValueField, ValueType
from plain import sentence

FOLDER = "bindings/rust/meron/src/values"

ROOT = """\
// {license}
// {note}
//! Structs that callers fill, structs that the library fills, and enums: a module for each header.

{modules}
{exports}"""

FILE = """\
// {license}
// {note}
//! Structs and enums of meron/{header}.h.

{imports}{items}"""


def emit(api: Api) -> dict[str, str]:
    headers = headers_of(api)
    enums = enum_names(api, "rust")
    items: dict[str, list[EnumType | ValueType]] = {}
    types: list[EnumType | ValueType] = [*api.enum_types, *api.value_types]
    for item in types:
        if "rust" in item.names:
            items.setdefault(headers[item.of], []).append(item)
    modules = sorted(items)
    root = ROOT.format(
        license=LICENSE,
        note=NOTE,
        modules="".join(f"mod {module};\n" for module in modules),
        exports="".join(f"pub use {module}::*;\n" for module in modules),
    )
    files = {f"{FOLDER}/mod.rs": root}
    for header, of_header in items.items():
        texts = [rust_item(api, item, enums) for item in of_header]
        files[f"{FOLDER}/{header}.rs"] = FILE.format(
            license=LICENSE,
            note=NOTE,
            header=header,
            imports=imports(of_header, enums, headers),
            items="\n".join(texts),
        )
    return files


def headers_of(api: Api) -> dict[str, str]:
    headers = {enum.name: enum.header for enum in api.enums}
    return {**headers, **{struct.name: struct.header for struct in api.structs}}


def imports(
    types: list[EnumType | ValueType], enums: dict[str, str], headers: dict[str, str]
) -> str:
    """The names that the types' fields need."""
    fields = [f for item in types if isinstance(item, ValueType) for f in item.fields]
    kinds = {field.kind for field in fields}
    own = headers[types[0].of]
    crate = []
    if "duration" in kinds:
        crate.append("use crate::call::nanoseconds;\n")
    if "stream" in kinds:
        crate.append("use crate::device::Stream;\n")
    used = {field.type for field in fields if field.kind == "enum"}
    others = {f"{headers[of]}::{enums[of]}" for of in used if headers[of] != own}
    crate += [f"use crate::values::{name};\n" for name in sorted(others)]
    groups = ["use std::time::Duration;\n"] if "duration" in kinds else []
    groups += ["use meron_sys as sys;\n", *(["".join(crate)] if crate else [])]
    return "\n".join(groups) + "\n"


def rust_item(api: Api, item: EnumType | ValueType, enums: dict[str, str]) -> str:
    return rust_enum(item) if isinstance(item, EnumType) else rust_struct(api, item, enums)


def rust_enum(enum: EnumType) -> str:
    name = enum.names["rust"]
    derives = "Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash"
    variants = arms = codes = ""
    for value in enum.values:
        variants += textwrap.indent(documented(sentence(value.doc or value.name)), "    ")
        if value.of == enum.default:
            variants += "    #[default]\n"
            derives = f"{derives}, Default"
        variants += f"    {pascal(value.name)},\n"
        arms += f"            sys::{value.of} => {name}::{pascal(value.name)},\n"
        codes += f"            {name}::{pascal(value.name)} => sys::{value.of},\n"
    if enum.open:
        variants += (
            "    /// Something that this version of the crate does not know.\n    Other(i32),\n"
        )
        arms += f"            other => {name}::Other(other),\n"
        codes += f"            {name}::Other(other) => other,\n"
    else:
        last = pascal(enum.values[-1].name)
        arms = "".join(arms.splitlines(keepends=True)[:-1]) + f"            _ => {name}::{last},\n"
    return (
        f"{documented(enum.doc)}#[derive({derives})]\n#[non_exhaustive]\n"
        f"pub enum {name} {{\n{variants}}}\n\n"
        f"#[allow(dead_code)]\nimpl {name} {{\n"
        f"    pub(crate) fn code(self) -> sys::{enum.of} {{\n        match self {{\n{codes}"
        f"        }}\n    }}\n\n"
        f"    pub(crate) fn of(code: sys::{enum.of}) -> {name} {{\n        match code {{\n{arms}"
        f"        }}\n    }}\n}}\n"
    )


def rust_struct(api: Api, value: ValueType, enums: dict[str, str]) -> str:
    name = value.names["rust"]
    kinds = {field.kind for field in value.fields}
    derives = ["Clone", "Copy", "Debug", "PartialEq"]
    if all(field.type != "double" for field in value.fields):
        derives.append("Eq")
    if not value.options and kinds <= {"number", "flag"}:
        derives.insert(3, "Default")
    fields = "".join(
        textwrap.indent(documented(field.doc + "."), "    ")
        + f"    pub {field.name}: {rust_type(field, enums)},\n"
        for field in value.fields
    )
    hidden = hidden_of(value)
    fields += "".join(f"    pub(crate) {name}: u32,\n" for name in hidden)
    text = (
        f"{documented(value.doc.rstrip('.') + '.')}#[derive({', '.join(derives)})]\n"
        f"#[non_exhaustive]\npub struct {name} {{\n{fields}}}\n\n"
    )
    if not value.options:
        return text + rust_of(value, name, enums)
    defaults = "".join(
        f"            {field.name}: {rust_default(api, field, enums)},\n" for field in value.fields
    )
    defaults += "".join(f"            {name}: sys::{init_of(value)}.{name},\n" for name in hidden)
    text += (
        f"impl Default for {name} {{\n    fn default() -> {name} {{\n        {name} {{\n{defaults}"
        f"        }}\n    }}\n}}\n\nimpl {name} {{\n"
    )
    for field in value.fields:
        text += textwrap.indent(documented(field.doc + "."), "    ") + "    #[must_use]\n"
        taken = rust_taken(field, enums)
        made = "value.into()" if field.kind == "duration" else "value"
        text += (
            f"    pub fn {field.name}(mut self, value: {taken}) -> {name} {{\n"
            f"        self.{field.name} = {made};\n        self\n    }}\n\n"
        )
    raw = "".join(f"            {field.of}: {rust_raw(field)},\n" for field in value.fields)
    raw += "".join(f"            {name}: self.{name},\n" for name in hidden)
    init = init_of(value)
    text += (
        f"    pub(crate) fn raw(&self) -> sys::{value.of} {{\n        sys::{value.of} {{\n{raw}"
        f"            ..sys::{init}\n        }}\n    }}\n}}\n"
    )
    if value.of == "meron_optimizer_group":
        text += "\n" + rust_of(value, name, enums)
    return text


def rust_of(value: ValueType, name: str, enums: dict[str, str]) -> str:
    made = ""
    for field in value.fields:
        known = {
            "flag": f"raw.{field.of} != 0",
            "enum": f"{enums.get(field.type)}::of(raw.{field.of})",
        }
        made += f"            {field.name}: {known.get(field.kind, f'raw.{field.of}')},\n"
    made += "".join(f"            {name}: raw.{name},\n" for name in hidden_of(value))
    return (
        f"impl {name} {{\n    pub(crate) fn of(raw: &sys::{value.of}) -> {name} {{\n"
        f"        {name} {{\n{made}        }}\n    }}\n}}\n"
    )


def rust_type(field: ValueField, enums: dict[str, str]) -> str:
    known = {"flag": "bool", "duration": "Option<Duration>", "stream": "Stream"}
    if field.kind == "enum":
        return enums[field.type]
    return known.get(field.kind) or RUST_NUMBERS[field.type]


def rust_taken(field: ValueField, enums: dict[str, str]) -> str:
    """The type that a setter takes."""
    kind = rust_type(field, enums)
    return f"impl Into<{kind}>" if field.kind == "duration" else kind


def rust_default(api: Api, field: ValueField, enums: dict[str, str]) -> str:
    if field.kind == "enum":
        return f"{enums[field.type]}::{pascal(default_name(api, field))}"
    known = {"flag": str(bool(field.default)).lower(), "duration": "None"}
    known["stream"] = "Stream::default()"
    if field.default == 2**64 - 1:
        return "u64::MAX"
    return known.get(field.kind) or repr(field.default)


def rust_raw(field: ValueField) -> str:
    known = {
        "flag": f"u32::from(self.{field.name})",
        # 0 would mean the default.
        "duration": f"self.{field.name}.map_or(0, |time| nanoseconds(time).max(1))",
        "stream": f"self.{field.name}.as_raw()",
        "enum": f"self.{field.name}.code()",
    }
    return known.get(field.kind, f"self.{field.name}")

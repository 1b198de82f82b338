# SPDX-License-Identifier: Apache-2.0
"""Structs and enums of the C interface as the plain types that languages have of them.

capi/annotations.json names them: `enums`, `options` (structs that a caller fills), `records`
(structs that the library fills) and `rules` (update rules: options of an optimizer with their own
numbers alone, whose defaults are those of the rule's INIT macro). All others are written by hand.
"""

from __future__ import annotations

from typing import Any

from model import Api, CType, Enum, EnumType, EnumTypeValue, Struct, Value, ValueField, ValueType

IGNORED = ("struct_size", "reserved_0", "reserved_1", "initialized", "defaults_of")


class NoValue(Exception):
    """A type of the annotations is not plain."""


def enums_of(api: Api, notes: dict[str, Any]) -> list[EnumType]:
    known = {enum.name: enum for enum in api.enums}
    return [enum_of(known[name], note) for name, note in notes.items()]


def enum_of(enum: Enum, note: dict[str, Any]) -> EnumType:
    names = note.get("names", {})
    values = [
        EnumTypeValue(
            value.name,
            names.get(value.name, value.name.removeprefix(enum.prefix).lower()),
            note.get("docs", {}).get(value.name, value.doc),
        )
        for value in enum.values
    ]
    return EnumType(
        enum.name, enum.doc, note["types"], values, note.get("default", ""), note.get("open", False)
    )


def values_of(api: Api, notes: dict[str, Any]) -> list[ValueType]:
    structs = {struct.name: struct for struct in api.structs}
    enums = {enum.name for enum in api.enums}
    made = []
    for group in ("options", "records"):
        for name, note in notes.get(group, {}).items():
            struct = structs[name]
            left_out = (*IGNORED, *note.get("left_out", ()))
            fields = [
                field_of(struct, field.name, field.name, note, enums)
                for field in struct.fields
                if field.name not in left_out
            ]
            doc = note.get("doc", struct.doc)
            grows = note.get("grows", [])
            for field in grows:
                field_of(struct, field, field, note, enums)
            made.append(ValueType(note["types"], name, doc, group == "options", fields, "", grows))
    rules = notes.get("rules", {})
    if rules:
        check_rules(api, structs["meron_optimizer_options"], rules)
    for name, note in rules.items():
        made.append(rule_of(structs["meron_optimizer_options"], name, note, notes, enums))
    return made


def check_rules(api: Api, struct: Struct, rules: dict[str, Any]) -> None:
    """Every rule has an INIT macro, which names the rule, and a note that lists its numbers. Those
    that are not its own have the struct's initial value."""
    enum = next(enum for enum in api.enums if enum.name == "meron_optimizer_kind")
    kinds = {value.name: value.value for value in enum.values}
    inits = {init.macro: init.values for init in struct.inits}
    if rules.keys() != kinds.keys() or inits.keys() != {f"{kind}_INIT" for kind in kinds}:
        raise NoValue(f"rules, and INIT macros of {struct.name}, for {', '.join(kinds)}")
    common = struct.init.values if struct.init else {}
    for kind, number in kinds.items():
        values = inits[f"{kind}_INIT"]
        if (values["kind"], values["defaults_of"]) != (kind, number + 1):
            raise NoValue(f"{kind}_INIT with kind {kind} and defaults_of {number + 1}")
        own = {rules[kind].get("of", {}).get(name, name) for name in rules[kind]["fields"]}
        for name in values.keys() - own - {"kind", "defaults_of"}:
            if values[name] != common[name]:
                raise NoValue(f"{name} among the fields of {kind}, which {kind}_INIT sets")


def rule_of(
    struct: Struct, kind: str, note: dict[str, Any], notes: dict[str, Any], enums: set[str]
) -> ValueType:
    docs = notes.get("rule_fields", {})
    defaults = next(init.values for init in struct.inits if init.macro == f"{kind}_INIT")
    fields = []
    for name in note["fields"]:
        own = note.get("of", {}).get(name, name)
        field = field_of(struct, own, name, {"flags": notes.get("rule_flags", ())}, enums)
        field.default = defaults[own]
        field.doc = note.get("docs", {}).get(name, docs.get(name, field.doc))
        fields.append(field)
    names = {language: note["name"] for language in ("rust", "cpp", "java")}
    return ValueType(names, struct.name, note["doc"], True, fields, kind)


def field_of(
    struct: Struct, of: str, name: str, note: dict[str, Any], enums: set[str]
) -> ValueField:
    found = next((field for field in struct.fields if field.name == of), None)
    if found is None:
        raise NoValue(f"{struct.name} has no field {of}")
    ctype = CType.parse(found.type)
    default: Value = struct.init.values.get(of) if struct.init else None
    if of == "stream":
        kind = "stream"
    elif ctype.name in enums:
        kind = "enum"
    elif of.endswith("timeout_ns"):
        kind, name = "duration", name.removesuffix("_ns")
    elif of in note.get("flags", ()):
        kind = "flag"
    elif not ctype.pointers and ctype.array is None:
        kind = "number"
    else:
        raise NoValue(f"{struct.name}.{of} is {found.type}")
    if kind == "number" and isinstance(default, str):
        raise NoValue(f"{struct.name}.{of} begins as {default}: write the number of it")
    doc = note.get("docs", {}).get(of, found.doc)
    return ValueField(name, of, kind, ctype.name, default, doc)

# SPDX-License-Identifier: Apache-2.0
"""Options of Java: a class with a setter per field, and the calls that take it.

Fields of the struct are parameters of SWIG's function, so the class makes the call: no other code
knows how many there are.
"""

from __future__ import annotations

from emitters.methods import JAVA_NUMBERS, LICENSE, NOTE
from emitters.values import enum_names, java_doc
from model import Api, CType, EnumType, Function, ValueField, ValueType
from plain import camel

FOLDER = "bindings/swig/java/org/meron"
# SWIG's types of lists of these.
LISTS = {"meron_unit": "long[]", "meron_source": "meron_source_list"}


def emit(api: Api) -> dict[str, str]:
    return {
        f"{FOLDER}/{value.names['java']}.java": options(api, value)
        for value in api.value_types
        if "java" in value.names and value.options and not value.rule
    }


def options(api: Api, value: ValueType) -> str:
    name = value.names["java"]
    enums = enum_names(api, "java")
    nested = "".join(
        nested_enum(enum)
        for enum in api.enum_types
        if enum.names.get("java", "").startswith(f"{name}.")
    )
    fields = "".join(f"    private {kind(f, enums)} {camel(f.name)};\n" for f in value.fields)
    initial = "".join(
        f"        {camel(f.name)} = {initial_of(f, enums)};\n"
        for f in value.fields
        if initial_of(f, enums)
    )
    setters = "".join(setter(name, field, enums) for field in value.fields)
    calls = "".join(
        call(api, function, value) for function in api.functions if takes(function, value)
    )
    imports = ["org.meron.abi.Abi", f"org.meron.abi.{value.of}"]
    imports += [
        f"org.meron.abi.{each}"
        for each in LISTS.values()
        if f"{each} " in calls and each[-1] != "]"
    ]
    if "Duration " in setters:
        imports.append("java.time.Duration")
    lines = "".join(f"import {each};\n" for each in sorted(imports))
    places = [f for f in value.fields if f.kind == "enum" and "." not in enums[f.type]]
    getters = "".join(
        f"\n    {kind(f, enums)} {camel(f.name)}() {{\n        return {camel(f.name)};\n    }}\n"
        for f in places
    )
    return (
        f"// {LICENSE}\n// {NOTE}\npackage org.meron;\n\n{lines}\n{java_doc(value.doc)}"
        f"public final class {name} {{\n{nested}{fields}\n    /** The library's defaults. */\n"
        f"    public {name}() {{\n"
        f"        final {value.of} initial = Abi.{value.of}_init();\n{initial}"
        f"        initial.delete();\n    }}\n{setters}{getters}{calls}}}\n"
    )


def nested_enum(enum: EnumType) -> str:
    values = ",\n".join(
        java_doc(value.doc or value.name, "        ") + f"        {value.name.upper()}"
        for value in enum.values
    )
    name = enum.names["java"].rpartition(".")[2]
    return f"{java_doc(enum.doc, '    ')}    public enum {name} {{\n{values}\n    }}\n\n"


def kind(field: ValueField, enums: dict[str, str]) -> str:
    known = {"flag": "boolean", "stream": "long", "duration": "long"}
    if field.kind == "enum":
        return enums[field.type].rpartition(".")[2]
    return known.get(field.kind) or JAVA_NUMBERS[field.type]


def initial_of(field: ValueField, enums: dict[str, str]) -> str:
    """The field's initial value; "" for those that are 0."""
    value = f"initial.get{field.of.capitalize()}()"
    known = {"flag": f"{value} != 0", "stream": "", "duration": ""}
    if field.kind == "enum":
        return f"{kind(field, enums)}.values()[{value}]"
    return known.get(field.kind, value)


def setter(name: str, field: ValueField, enums: dict[str, str]) -> str:
    own, taken, value = camel(field.name), kind(field, enums), "value"
    if field.kind == "duration":
        taken, value = "Duration", "Math.max(Operation.nanoseconds(value), 1)"
    elif field.kind == "enum":
        value = 'Arguments.required(value, "value")'
    elif field.type == "uint64_t" and field.kind == "number":
        value = f'ContextOptions.notNegative("{own}", value)'
    return (
        f"\n{java_doc(field.doc, '    ')}    public {name} {own}({taken} value) {{\n"
        f"        {own} = {value};\n        return this;\n    }}\n"
    )


def takes(function: Function, value: ValueType) -> bool:
    return any(param.type == f"const {value.of} *" for param in function.params)


def call(api: Api, function: Function, value: ValueType) -> str:
    taken, passed, counted = [], [], False
    for param in function.params:
        ctype = CType.parse(param.type)
        if param.role in ("out", "error") or counted:
            counted = False
        elif ctype.name == value.of:
            passed += [raw(field) for field in value.fields]
        elif ctype.pointers and ctype.name in LISTS:
            taken.append(f"{LISTS[ctype.name]} {camel(param.name)}")
            passed.append(camel(param.name))
            counted = True
        elif ctype.pointers and param.type != "const char *":
            return ""  # by hand
        else:
            kind = "String" if ctype.pointers else JAVA_NUMBERS.get(ctype.name, "long")
            kind = "int" if ctype.name in {enum.name for enum in api.enums} else kind
            taken.append(f"{kind} {camel(param.name)}")
            passed.append(camel(param.name))
    name = camel(function.name.removeprefix("meron_"))
    arguments = ",\n                ".join(passed)
    return (
        f"\n    long {name}({', '.join(taken)}) {{\n"
        f"        return Abi.{function.name}(\n                {arguments});\n    }}\n"
    )


def raw(field: ValueField) -> str:
    own = camel(field.name)
    return {"flag": f"{own} ? 1 : 0", "enum": f"{own}.ordinal()"}.get(field.kind, own)

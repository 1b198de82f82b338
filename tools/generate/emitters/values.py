# SPDX-License-Identifier: Apache-2.0
"""Structs, enums and update rules as types of each language.

C++      cpp/values.hpp       aggregates, and enum classes
Python   meron/_values.py     dataclasses of results, and tables of enums
Java     <Class>.java         classes of results, update rules, and enums

Rust's are in rust_values.py.
"""

from __future__ import annotations

from emitters.methods import JAVA_NUMBERS, LICENSE, NOTE, fill, java_text
from emitters.options import default_name
from model import Api, EnumType, ValueField, ValueType
from plain import camel, sentence

JAVA_FOLDER = "bindings/swig/java/org/meron"


def emit(api: Api) -> dict[str, str]:
    files = {
        "include/meron/cpp/values.hpp": cpp(api),
        "bindings/python/meron/_values.py": python(api),
    }
    for enum in api.enum_types:
        if "." not in enum.names.get("java", "."):  # those within a class are java_options.py's
            files[f"{JAVA_FOLDER}/{enum.names['java']}.java"] = java_enum(enum)
    for value in api.value_types:
        if "java" in value.names and (value.rule or not value.options):
            text = java_rule(value) if value.rule else java_record(value)
            files[f"{JAVA_FOLDER}/{value.names['java']}.java"] = text
    return files


def pascal(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def init_of(value: ValueType) -> str:
    """The macro with the defaults."""
    return f"{value.rule or value.of.upper()}_INIT"


def hidden_of(value: ValueType) -> list[str]:
    """Fields that the library gives in one call and reads in another: not a program's to set."""
    return ["defaults_of"] if value.of == "meron_optimizer_group" else []


def enum_names(api: Api, language: str) -> dict[str, str]:
    """The language's types of enums."""
    return {e.of: e.names[language] for e in api.enum_types if language in e.names}


# ---- C++ -----------------------------------------------------------------------------------------

CPP = """\
// {license}
// {note}
// meron/cpp/values.hpp: what callers fill, and enums.
#ifndef MERON_CPP_VALUES_HPP
#define MERON_CPP_VALUES_HPP

#include <chrono>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "meron/cpp/config.hpp"
#include "meron/meron.h"

namespace meron {{
inline namespace MERON_CPP_NAMESPACE {{

{items}
// Prints the name of an enum's value, as name_of returns it.
template <class Stream, class Enum, class = std::enable_if_t<std::is_enum_v<Enum>>,
          class = decltype(std::declval<Stream&>() << name_of(std::declval<Enum>()))>
Stream& operator<<(Stream& out, Enum value) {{
  out << name_of(value);
  return out;
}}

}}  // namespace MERON_CPP_NAMESPACE
}}  // namespace meron

#endif  // MERON_CPP_VALUES_HPP
"""


def cpp(api: Api) -> str:
    enums = enum_names(api, "cpp")
    items = [cpp_enum(enum) for enum in api.enum_types if "cpp" in enum.names]
    for value in api.value_types:
        if "cpp" in value.names:
            items.append(cpp_struct(api, value, enums))
    return CPP.format(license=LICENSE, note=NOTE, items="\n".join(items))


def cpp_name(name: str) -> str:
    return "automatic" if name == "auto" else name


def cpp_enum(enum: EnumType) -> str:
    text = fill(enum.doc, "// ") + f"\nenum class {enum.names['cpp']} : {enum.of} {{\n"
    for value in enum.values:
        if value.doc:
            text += fill(sentence(value.doc), "  // ") + "\n"
        text += f"  {cpp_name(value.name)} = {value.of},\n"
    name = enum.names["cpp"]
    text += f"}};\nconstexpr const char* name_of({name} value) noexcept {{\n  switch (value) {{\n"
    for value in enum.values:
        own = cpp_name(value.name)
        text += f'    case {name}::{own}:\n      return "{own}";\n'
    return text + '  }\n  return "?";\n}\n'


def cpp_struct(api: Api, value: ValueType, enums: dict[str, str]) -> str:
    text = fill(value.doc.rstrip(".") + ".", "// ") + f"\nstruct {value.names['cpp']} {{\n"
    sets = ""
    for field in value.fields:
        if field.doc:
            text += fill(sentence(field.doc), "  // ") + "\n"
        kind, default, raw = cpp_field(api, field, enums)
        text += f"  {kind} {field.name} = {default};\n"
        sets += f"    made.{field.of} = {raw};\n"
    for hidden in hidden_of(value):
        initial = next(s.init for s in api.structs if s.name == value.of and s.init)
        text += "  // The rule, for the library. Only Optimizer::group gives that of another one.\n"
        text += f"  uint32_t {hidden} = {initial.values[hidden]};\n"
        sets += f"    made.{hidden} = {hidden};\n"
    init = init_of(value)
    return (
        f"{text}\n  {value.of} raw() const noexcept {{\n    {value.of} made = {init};\n{sets}"
        "    return made;\n  }\n};\n"
    )


def cpp_field(api: Api, field: ValueField, enums: dict[str, str]) -> tuple[str, str, str]:
    """A field's type, its default and what the struct of C has of it."""
    if field.kind == "enum":
        name = enums[field.type]
        default = f"{name}::{cpp_name(default_name(api, field))}"
        return name, default, f"static_cast<{field.type}>({field.name})"
    if field.kind == "flag":
        return "bool", str(bool(field.default)).lower(), f"{field.name} ? 1 : 0"
    if field.kind == "duration":
        kind = "std::chrono::nanoseconds"
        return kind, f"{kind}::zero()", f"{field.name}.count()"
    if field.kind == "stream":
        return "void*", "nullptr", field.name
    default = "UINT64_MAX" if field.default == 2**64 - 1 else repr(field.default)
    return field.type, default, field.name


# ---- Python --------------------------------------------------------------------------------------


def python(api: Api) -> str:
    items = []
    for enum in api.enum_types:
        if "python" in enum.names:
            numbers = {v.name: v.value for e in api.enums if e.name == enum.of for v in e.values}
            table = ", ".join(f'"{value.name}": {numbers[value.of]}' for value in enum.values)
            name = enum.names["python"]
            listed = ", ".join(f'"{value.name}"' for value in enum.values)
            items.append(
                f"# {sentence(enum.doc)}\n{python_literal(name)} = Literal[{listed}]\n"
                f"{name}: dict[str, int] = {{{table}}}\n"
            )
    for value in api.value_types:
        if "python" in value.names:
            items.append(python_class(value))
    return (
        f"# {LICENSE}\n# {NOTE}\n"
        '"""Structs that the library fills, and the names of enums\' values."""\n\n'
        "from __future__ import annotations\n\nfrom dataclasses import dataclass\n"
        "from typing import Literal\n\n" + "\n".join(items)
    )


def python_literal(table: str) -> str:
    """The type of an enum's names: ReduceOp for REDUCE_OPS."""
    return "".join(word.capitalize() for word in table.removesuffix("S").split("_"))


def python_class(value: ValueType) -> str:
    text = f"\n@dataclass(frozen=True)\nclass {value.names['python']}:\n"
    text += f'    """{sentence(value.doc)}"""\n\n'
    for field in value.fields:
        kind = {"flag": "bool", "enum": "str"}.get(field.kind, "int")
        text += (
            fill(field.doc, "    # ") + "\n" if field.doc else ""
        ) + f"    {field.name}: {kind}\n"
    return text


# ---- Java ----------------------------------------------------------------------------------------


def java_doc(text: str, indent: str = "") -> str:
    line = f"{indent}/** {java_text(sentence(text))} */"
    if len(line) <= 100:
        return line + "\n"
    return f"{indent}/**\n{fill(java_text(sentence(text)), f'{indent} * ')}\n{indent} */\n"


def java_enum(enum: EnumType) -> str:
    values = ",\n".join(
        java_doc(value.doc or value.name, "    ") + f"    {value.name.upper()}"
        for value in enum.values
    )
    return (
        f"// {LICENSE}\n// {NOTE}\npackage org.meron;\n\n{java_doc(enum.doc)}"
        f"public enum {enum.names['java']} {{\n{values};\n\n"
        "    /** The number, as in the headers. */\n"
        "    public int code() {\n        return ordinal();\n    }\n}\n"
    )


def java_record(value: ValueType) -> str:
    fields = "\n".join(
        java_doc(field.doc, "    ") + f"    public final {java_type(field)} {camel(field.name)};\n"
        for field in value.fields
    )
    sets = "".join(
        f"        {camel(field.name)} = from.get{field.of.capitalize()}();\n"
        for field in value.fields
    )
    name = value.names["java"]
    return (
        f"// {LICENSE}\n// {NOTE}\npackage org.meron;\n\nimport org.meron.abi.{value.of};\n\n"
        f"{java_doc(value.doc)}public final class {name} {{\n{fields}\n"
        f"    {name}({value.of} from) {{\n{sets}        from.delete();\n    }}\n}}\n"
    )


def java_type(field: ValueField) -> str:
    return "boolean" if field.kind == "flag" else JAVA_NUMBERS[field.type]


# Numbers that each rule has, in UpdateRule.
JAVA_COMMON = ("learning_rate", "weight_decay", "max_norm")


def java_rule(value: ValueType) -> str:
    name = value.names["java"]
    fields = {field.name: field for field in value.fields}
    setters = ""
    if "beta2" in fields:
        doc = f"First: {fields['beta1'].doc}; second: {fields['beta2'].doc}"
        setters += java_setter(
            name, doc, "betas", ["beta1", "beta2"], "double first, double second"
        )
    for field in value.fields:
        if field.name not in (*JAVA_COMMON, "beta1", "beta2"):
            taken = f"{java_type(field)} value"
            setters += java_setter(name, field.doc, camel(field.name), [camel(field.of)], taken)
    return (
        f"// {LICENSE}\n// {NOTE}\npackage org.meron;\n\nimport org.meron.abi.Abi;\n\n"
        f"{java_doc(value.doc)}public final class {name} extends UpdateRule<{name}> {{\n"
        f"    /** The defaults. */\n    public {name}() {{\n"
        f"        super(Abi.{value.rule});\n    }}\n\n"
        f"    @Override\n    {name} self() {{\n        return this;\n    }}\n{setters}}}\n"
    )


def java_setter(name: str, doc: str, method: str, fields: list[str], taken: str) -> str:
    values = [part.split()[-1] for part in taken.split(", ")]
    sets = "".join(f"        {f} = {value};\n" for f, value in zip(fields, values))
    return (
        f"\n{java_doc(doc, '    ')}    public {name} {method}({taken}) {{\n{sets}"
        "        return this;\n    }\n"
    )

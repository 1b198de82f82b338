# SPDX-License-Identifier: Apache-2.0
"""The operation `call` of the conformance runners: the plain calls that all languages generate; and
which figures of meron_stats `counted` knows.

`call OBJECT function=meron_... ARGUMENT=... is=NUMBER has=WORDS future=NAME`; without an object the
context.
"""

from __future__ import annotations

import re
import textwrap

from emitters import case_options
from emitters.methods import LICENSE, aligned
from model import Api, ValueType
from plain import ENUM, FUTURE, LANGUAGES, OPTIONS, TEXT, Argument, Method, class_name, methods

NOTE = "Generated from capi/api.json by tools/generate/generate.py: do not edit."
FOLDER = "tests/conformance"


def emit(api: Api) -> dict[str, str]:
    common = [
        method
        for some in methods(api, "python").values()
        for method in some
        if len(method.function.method) == len(LANGUAGES)
    ]
    stats = next(value for value in api.value_types if value.of == "meron_stats")
    return {
        f"{FOLDER}/c/calls.cpp": c(api, common),
        f"{FOLDER}/c/counters.cpp": c_counters(stats),
        f"{FOLDER}/python/calls.py": python(common),
        f"{FOLDER}/python/growing.py": python_counters(stats),
        f"{FOLDER}/rust/src/calls.rs": rust(api, common),
        f"{FOLDER}/rust/src/counters.rs": rust_counters(stats),
        f"{FOLDER}/julia/calls.jl": julia(common),
        f"{FOLDER}/julia/counters.jl": julia_counters(stats),
        f"{FOLDER}/java/Calls.java": java(api, common),
        f"{FOLDER}/java/Counters.java": java_counters(stats),
    }


# ---- Figures of meron_stats ----------------------------------------------------------------------


def c_counters(stats: ValueType) -> str:
    lines = "".join(
        f'  if (name == "{field.name}") return {{&meron_stats::{field.name}, '
        f"{str(field.name in stats.grows).lower()}}};\n"
        for field in stats.fields
    )
    return (
        f'// {LICENSE}\n// {NOTE}\n#include "operations.h"\n\nnamespace conformance {{\n\n'
        f"Counter counter_of(const std::string& name) {{\n{lines}"
        '  throw Malformed{"unknown counter \'" + name + "\'"};\n}\n\n'
        "}  // namespace conformance\n"
    )


def python_counters(stats: ValueType) -> str:
    names = "".join(f'    "{name}",\n' for name in stats.grows)
    return (
        f'# {LICENSE}\n# {NOTE}\n"""Counters that only grow. Other figures can shrink."""\n\n'
        f"from __future__ import annotations\n\nGROWING = {{\n{names}}}\n"
    )


def rust_counters(stats: ValueType) -> str:
    arms = "".join(
        f'        "{field.name}" => (stats.{field.name}, '
        f"{str(field.name in stats.grows).lower()}),\n"
        for field in stats.fields
    )
    return (
        f"// {LICENSE}\n// {NOTE}\n//! Figures by their names.\n\nuse meron::Stats;\n\n"
        "/// A figure, and true if it is a counter that only grows.\n"
        "pub fn counter(stats: &Stats, name: &str) -> Option<(u64, bool)> {\n"
        f"    Some(match name {{\n{arms}        _ => return None,\n    }})\n}}\n"
    )


def julia_counters(stats: ValueType) -> str:
    names = "".join(f"    :{name},\n" for name in stats.grows)
    return (
        f"# {LICENSE}\n# {NOTE}\n# Counters that only grow. Other figures can shrink.\n"
        f"const GROWING = (\n{names})\n"
    )


def java_counters(stats: ValueType) -> str:
    names = ",\n            ".join(f'"{name}"' for name in stats.grows)
    return (
        f"// {LICENSE}\n// {NOTE}\nimport java.util.Set;\n\n"
        "/** Counters that only grow. Other figures can shrink. */\nfinal class Counters {\n"
        f"    static final Set<String> GROWING = Set.of(\n            {names});\n\n"
        "    private Counters() {}\n}\n"
    )


# ---- C -------------------------------------------------------------------------------------------

C = """\
// {license}
// {note}
#include "operations.h"

namespace conformance {{
namespace {{

void call_function(Session& session, const Statement& statement) {{
  const std::string& function = statement.get("function");
{cases}  throw Malformed{{"there is no call of '" + function + "'"}};
}}

}}  // namespace

Operations call_operations() {{
  return {{{{"call", call_function}}}};
}}

}}  // namespace conformance
"""


def c(api: Api, common: list[Method]) -> str:
    cases = "".join(c_case(api, method) for method in common)
    return C.format(license=LICENSE, note=NOTE, cases=cases)


def c_case(api: Api, method: Method) -> str:
    found = {
        "context": "session.current().handle",
        "group": "session.group(statement.name).handle",
    }.get(method.noun, f"session.find<{class_name(method.noun)}>(statement.name).handle")
    name = method.function.name
    passed = [name, *(["&out"] if method.result else []), found, *map(c_argument, method.arguments)]
    lines = aligned("    call(", passed, ");").replace("\n    ", "\n").strip().splitlines()
    if method.options:
        lines = [*case_options.c_case(api, method.options), *lines]
    if method.result == TEXT:
        lines.insert(0, f"{'' if method.owned else 'const '}char* out = nullptr;")
        if method.owned:
            lines.append("const std::string text = out;")
            lines.append("meron_string_free(out);")
            lines.append("check_has(text, statement);")
        else:
            lines.append("check_has(out, statement);")
    elif method.result == FUTURE:
        lines.insert(0, "meron_future out{};")
        lines.append("finish_or_keep(session, statement, out);")
    elif method.result:
        lines.insert(0, f"{method.result} out = 0;")
        lines.append("const auto seen = static_cast<double>(out);")
        lines.append('check_equal("the result", seen, statement.number("is", seen));')
    lines.append("return;")
    body = "".join(f"    {line}\n" for line in lines)
    return f'  if (function == "{name}") {{\n{body}  }}\n'


def c_argument(item: Argument) -> str:
    if item.kind == OPTIONS:
        return "&options"
    if item.enum:
        return case_options.c_enum(item.enum, item.name)
    if item.kind == TEXT:
        text = f'statement.get("{item.name}").c_str()'
        return f'statement.has("{item.name}") ? {text} : nullptr' if item.nullable else text
    return f'static_cast<{item.kind}>(statement.number("{item.name}", 0))'


# ---- Python --------------------------------------------------------------------------------------

PYTHON = '''\
# {license}
# {note}
"""The operation `call`. ../README.md defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import meron
from operations import finish_or_keep, number, operation, wanted
from session import Session
from table import Malformed, Statement
from values import check_equal, check_has


def flag(text: str) -> bool:
    return text == "1"


def given(statement: Statement, **kinds: Callable[[str], Any]) -> dict[str, Any]:
    """The options that a statement has."""
    return {{key: kinds[key](value) for key, value in statement.arguments if key in kinds}}


OF_GROUPS = {{{groups}}}
CALLS: dict[str, Callable[[Any, Statement], Any]] = {{
{table}}}


@operation
def call(session: Session, statement: Statement) -> None:
    name = wanted(statement, "function")
    function = CALLS.get(name)
    if function is None:
        raise Malformed(f"there is no call of {{name}}")
    item = (
        session.group(statement.name)
        if name in OF_GROUPS
        else session.held(statement.name or session.current_name).item
    )
    result = function(item, statement)
    if isinstance(result, meron.Future):
        finish_or_keep(session, statement, result)
    elif isinstance(result, str):
        check_has(result, statement)
    elif result is not None:
        check_equal("the result", result, number(statement, "is", result))
'''


def of_groups(common: list[Method]) -> str:
    """The functions of groups, which may be the world."""
    return ", ".join(f'"{it.function.name}"' for it in common if it.noun == "group")


def python(common: list[Method]) -> str:
    table = ""
    for method in common:
        passed = [
            case_options.python_case(item.struct)
            if item.struct
            else f's.get("{item.name}")'
            if item.kind == TEXT and item.nullable
            else f'wanted(s, "{item.name}")'
            if item.kind in (TEXT, ENUM)
            else f'number(s, "{item.name}", 0)'
            if item.kind == "double"
            else f'int(number(s, "{item.name}", 0))'
            for item in method.arguments
        ]
        call = f"it.{method.name('python')}({', '.join(passed)})"
        line = f'    "{method.function.name}": lambda it, s: {call},\n'
        if len(line) > 101:
            inner = "".join(f"        {item},\n" for item in passed)
            call = f"it.{method.name('python')}(\n{inner}    )"
            line = f'    "{method.function.name}": lambda it, s: {call},\n'
        table += line
    return PYTHON.format(license=LICENSE, note=NOTE, table=table, groups=of_groups(common))


# ---- Rust ----------------------------------------------------------------------------------------

RUST = """\
// {license}
// {note}
//! The operation `call`. `../README.md` defines it.

{uses}use crate::session::{{Object, Session}};
use crate::table::Statement;
{ends}
pub fn execute(session: &mut Session, s: &Statement) -> Done {{
{groups}    let name = s.object.clone().unwrap_or_else(|| session.current.clone());
    match (s.require("function")?, session.object(&name)?) {{
{arms}        (function, _) => Err(wrong(format!("{{name}} has no {{function}}"))),
    }}
}}
"""
PATTERNS = {"schedule": "Object::Schedule((it, _))"}


def rust(api: Api, common: list[Method]) -> str:
    arms = groups = ""
    for method in common:
        lines = rust_case(api, method)
        name = method.function.name
        if method.noun == "group":  # which may be the world
            body = textwrap.indent("\n".join(lines), "        ")
            groups += f'    if s.require("function")? == "{name}" {{\n{body}\n    }}\n'
            continue
        pattern = PATTERNS.get(method.noun, f"Object::{class_name(method.noun)}(it)")
        code = f"{lines[0]}," if len(lines) == 1 else ""
        if not code:
            body = textwrap.indent("\n".join(lines), " " * 12)
            code = f"{{\n{body}\n        }}"
        arms += f'        ("{name}", {pattern}) => {code}\n'
    text = f"{groups}{arms}"
    uses = "use std::time::Duration;\n\n" if "Duration::" in text else ""
    own = [name for name in rust_types(api, common) if re.search(rf"\b{name}::", text)]
    uses += f"use meron::{{{', '.join(own)}}};\n\n" if own else ""
    uses += "use crate::checking::has;\n" if " has(" in text else ""
    uses += f"use crate::failure::{{{'check, ' if ' check(' in text else ''}wrong, Done}};\n"
    uses += "use crate::groups::with_group;\n" if groups else ""
    ends = "use crate::waiting::finish;\n" if "finish(" in text else ""
    return RUST.format(license=LICENSE, note=NOTE, uses=uses, ends=ends, arms=arms, groups=groups)


def rust_types(api: Api, common: list[Method]) -> list[str]:
    """The options that the functions take, and all enums."""
    structs = {method.options.names["rust"] for method in common if method.options}
    return sorted(structs | {e.names["rust"] for e in api.enum_types if "rust" in e.names})


def rust_case(api: Api, method: Method) -> list[str]:
    passed = [
        "&options"
        if item.kind == OPTIONS
        else item.name
        if item.kind == ENUM
        else f's.require("{item.name}")?'
        if item.kind == TEXT and not item.nullable
        else f's.get("{item.name}")'
        if item.kind == TEXT
        else f's.number("{item.name}", {"0.0" if item.kind == "double" else "0"})?'
        for item in method.arguments
    ]
    call = f"it.{method.name('rust')}({', '.join(passed)})?"
    if method.noun == "group":
        call = f"with_group(session, s, |it| Ok({call}))?"
    lines = case_options.rust_case(api, method.options) if method.options else []
    for item in method.arguments:
        if item.enum:
            code = f"let {item.name} = {case_options.rust_enum(item.enum, item.name)};"
            lines += code.splitlines()
    if method.result == FUTURE:
        lines += [f"let begun = {call};", "finish(session, s, begun)"]
    elif method.result == TEXT:
        lines.append(f"has(&{call}, s)")
    elif method.result:
        lines.append(f"let result = {call};")
        lines.append('check(s.number("is", result)? == result, format!("it is {result}"))')
    else:
        lines.append(f"Ok({call})")
    if method.noun == "group":
        lines[-1] = f"return {lines[-1]};"
    return lines


# ---- Julia ---------------------------------------------------------------------------------------

JULIA = """\
# {license}
# {note}
# The operation `call`. ../README.md defines it.

flag(text) = text == "1"
real(text) = parse(Float64, text)
integer(text) = parse(Int, text)

# The options that a statement has.
given(statement; kinds...) = Dict{{Symbol,Any}}(
    key => kind(wanted(statement, string(key))) for
    (key, kind) in kinds if has(statement, string(key)))

const OF_GROUPS = String[{groups}]
const CALLS = Dict{{String,Function}}(
{table})

operation("call") do session, statement
    name = wanted(statement, "function")
    haskey(CALLS, name) || throw(Malformed("there is no call of $name"))
    object = isempty(statement.name) ? session.current : statement.name
    item = name in OF_GROUPS ? group_of(session, statement.name) : held(session, object).item
    result = CALLS[name](item, statement)
    result isa Meron.Future && return finish_or_keep(session, statement, result)
    result isa AbstractString && return check_has(result, statement)
    result === nothing && return
    has(statement, "is") && check_equal("the result", result, number(statement, "is", 0))
end
"""


def julia(common: list[Method]) -> str:
    table = ""
    for method in common:
        passed = ["it"] + [
            f'get(s, "{item.name}", nothing)'
            if item.kind == TEXT and item.nullable
            else f'wanted(s, "{item.name}")'
            if item.kind == TEXT
            else f'Symbol(wanted(s, "{item.name}"))'
            if item.kind == ENUM
            else f'number(s, "{item.name}", 0)'
            if item.kind == "double"
            else f'whole(s, "{item.name}", 0)'
            for item in method.given
        ]
        call = f"Meron.{method.name('julia')}({', '.join(passed)})"
        if method.options:
            keywords = case_options.julia_case(method.options)
            call = f"{call[:-1]};\n        {keywords})"
        table += f'    "{method.function.name}" => (it, s) -> {call},\n'
    return JULIA.format(license=LICENSE, note=NOTE, table=table, groups=of_groups(common))


# ---- Java ----------------------------------------------------------------------------------------

JAVA = """\
// {license}
// {note}
{imports}
/** The operation "call". ../README.md defines it. */
final class Calls {{
    private Calls() {{}}

    /** Executes the statement and returns true if this class has its operation. */
    static boolean execute(Session session, Table.Statement statement) {{
        if (!statement.operation.equals("call")) return false;
        final String name = statement.name.isEmpty() ? session.currentName : statement.name;
        switch (statement.wanted("function")) {{
{cases}            default:
                throw new Table.Malformed("there is no call of " + statement.get("function"));
        }}
    }}
{number}}}
"""
JAVA_NUMBER = """
    private static void equal(double found, Table.Statement statement) {
        Values.equal("the result", found, statement.number("is", found));
    }
"""


def java(api: Api, common: list[Method]) -> str:
    cases = "".join(java_case(api, method) for method in common)
    own = {class_name(method.noun) for method in common if method.noun != "group"}
    enums = {e.names["java"].partition(".")[0] for e in api.enum_types if "java" in e.names}
    own |= {name for name in enums if re.search(rf"\b{name}\.", cases)}
    own |= {method.options.names["java"] for method in common if method.options}
    return JAVA.format(
        license=LICENSE, note=NOTE, cases=cases, number=JAVA_NUMBER if " equal(" in cases else "",
        imports="".join(f"import org.meron.{name};\n" for name in sorted(own)),
    )  # fmt: skip


def java_case(api: Api, method: Method) -> str:
    passed = []
    for item in method.arguments:
        if item.kind == OPTIONS:
            passed.append("options")
            continue
        if item.enum:
            passed.append(case_options.java_enum(item.enum, item.name))
            continue
        if item.kind == TEXT:
            getter = "get" if item.nullable else "wanted"
            passed.append(f'statement.{getter}("{item.name}")')
            continue
        cast = {"double": "", "int32_t": "(int) ", "uint32_t": "(int) "}.get(item.kind, "(long) ")
        passed.append(f'{cast}statement.number("{item.name}", 0)')
    found = f"session.find({class_name(method.noun)}.class, name)"
    if method.noun == "group":  # which may be the world
        found = "session.group(statement.name)"
    call = f"{found}.{method.name('java')}({', '.join(passed)})"
    if method.result == TEXT:
        call = f"Values.has({call}, statement)"
    elif method.result == FUTURE:
        gap = " " if len(call) < 40 else "\n" + " " * 24
        call = f"Operations.finishOrKeep(session, statement,{gap}{call})"
    elif method.result:
        call = f"equal({call}, statement)"
    lines = case_options.java_case(api, method.options) if method.options else []
    body = "".join(f"                {line}\n" for line in [*lines, f"{call};", "return true;"])
    brace, end = (" {", "            }\n") if lines else ("", "")
    return f'            case "{method.function.name}":{brace}\n{body}{end}'

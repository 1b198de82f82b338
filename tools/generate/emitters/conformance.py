# SPDX-License-Identifier: Apache-2.0
"""The operation `call` of the conformance runners: the plain calls that all languages generate; and
which figures of meron_stats `counted` knows.

`call OBJECT function=meron_... ARGUMENT=... is=NUMBER has=WORDS`; without an object the context.
"""

from __future__ import annotations

from emitters.methods import LICENSE
from model import Api, ValueType
from plain import LANGUAGES, TEXT, Method, class_name, methods

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
        f"{FOLDER}/c/calls.cpp": c(common),
        f"{FOLDER}/c/counters.cpp": c_counters(stats),
        f"{FOLDER}/python/calls.py": python(common),
        f"{FOLDER}/python/growing.py": python_counters(stats),
        f"{FOLDER}/rust/src/calls.rs": rust(common),
        f"{FOLDER}/rust/src/counters.rs": rust_counters(stats),
        f"{FOLDER}/julia/calls.jl": julia(common),
        f"{FOLDER}/julia/counters.jl": julia_counters(stats),
        f"{FOLDER}/java/Calls.java": java(common),
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


def c(common: list[Method]) -> str:
    return C.format(license=LICENSE, note=NOTE, cases="".join(map(c_case, common)))


def c_call(arguments: list[str]) -> list[str]:
    """A call in lines of at most 96 columns, broken as clang-format breaks them."""
    lines = ["call("]
    for number, argument in enumerate(arguments):
        end = ");" if number == len(arguments) - 1 else ","
        if len(f"{lines[-1]} {argument}{end}") > 96:
            lines.append("     ")
        space = "" if lines[-1].endswith(("(", "     ")) else " "
        lines[-1] += f"{space}{argument}{end}"
    return lines


def c_case(method: Method) -> str:
    found = {
        "context": "session.current().handle",
        "group": "session.group(statement.name).handle",
    }.get(method.noun, f"session.find<{class_name(method.noun)}>(statement.name).handle")
    passed = ["&out"] if method.result else []
    passed.append(found)
    for item in method.arguments:
        passed.append(
            f'statement.get("{item.name}").c_str()'
            if item.kind == TEXT
            else f'static_cast<{item.kind}>(statement.number("{item.name}", 0))'
        )
    name = method.function.name
    lines = c_call([name, *passed])
    if method.result == TEXT:
        lines.insert(0, f"{'' if method.owned else 'const '}char* out = nullptr;")
        if method.owned:
            lines.append("const std::string text = out;")
            lines.append("meron_string_free(out);")
            lines.append("check_has(text, statement);")
        else:
            lines.append("check_has(out, statement);")
    elif method.result:
        lines.insert(0, f"{method.result} out = 0;")
        lines.append("const auto seen = static_cast<double>(out);")
        lines.append('check_equal("the result", seen, statement.number("is", seen));')
    lines.append("return;")
    body = "".join(f"    {line}\n" for line in lines)
    return f'  if (function == "{name}") {{\n{body}  }}\n'


# ---- Python --------------------------------------------------------------------------------------

PYTHON = '''\
# {license}
# {note}
"""The operation `call`. ../README.md defines it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from operations import number, operation, wanted
from session import Session
from table import Malformed, Statement
from values import check_equal, check_has

CALLS: dict[str, Callable[[Any, Statement], Any]] = {{
{table}}}


@operation
def call(session: Session, statement: Statement) -> None:
    function = CALLS.get(wanted(statement, "function"))
    if function is None:
        raise Malformed(f"there is no call of {{statement.get('function')}}")
    result = function(session.held(statement.name or session.current_name).item, statement)
    if isinstance(result, str):
        check_has(result, statement)
    elif result is not None:
        check_equal("the result", result, number(statement, "is", result))
'''


def python(common: list[Method]) -> str:
    table = ""
    for method in common:
        passed = [
            f'wanted(s, "{item.name}")'
            if item.kind == TEXT
            else f'number(s, "{item.name}", 0)'
            if item.kind == "double"
            else f'int(number(s, "{item.name}", 0))'
            for item in method.arguments
        ]
        call = f"it.{method.name('python')}({', '.join(passed)})"
        table += f'    "{method.function.name}": lambda it, s: {call},\n'
    return PYTHON.format(license=LICENSE, note=NOTE, table=table)


# ---- Rust ----------------------------------------------------------------------------------------

RUST = """\
// {license}
// {note}
//! The operation `call`. `../README.md` defines it.

{uses}use crate::session::{{Object, Session}};
use crate::table::Statement;

pub fn execute(session: &mut Session, s: &Statement) -> Done {{
    let name = s.object.clone().unwrap_or_else(|| session.current.clone());
    match (s.require("function")?, session.object(&name)?) {{
{arms}        (function, _) => Err(wrong(format!("{{name}} has no {{function}}"))),
    }}
}}
"""
PATTERNS = {"group": "Object::Group(Some(it))", "schedule": "Object::Schedule((it, _))"}


def rust(common: list[Method]) -> str:
    arms, failure, checking = "", {"wrong", "Done"}, set()
    for method in common:
        passed = [
            f's.require("{item.name}")?'
            if item.kind == TEXT and not item.nullable
            else f's.get("{item.name}")'
            if item.kind == TEXT
            else f's.number("{item.name}", {"0.0" if item.kind == "double" else "0"})?'
            for item in method.arguments
        ]
        call = f"it.{method.name('rust')}({', '.join(passed)})?"
        if method.result == TEXT:
            checking.add("has")
            call = f"has(&{call}, s)"
        elif method.result:
            failure.add("check")
            call = (
                "{\n"
                f"            let result = {call};\n"
                '            check(s.number("is", result)? == result, format!("it is {result}"))\n'
                "        }"
            )
        else:
            call = f"Ok({call})"
        pattern = PATTERNS.get(method.noun, f"Object::{class_name(method.noun)}(it)")
        end = "" if call.endswith("}") else ","
        arms += f'        ("{method.function.name}", {pattern}) => {call}{end}\n'
    order = ", ".join(sorted(failure, key=lambda word: (word[0].isupper(), word)))
    uses = "".join(f"use crate::checking::{name};\n" for name in sorted(checking))
    uses += f"use crate::failure::{{{order}}};\n"
    return RUST.format(license=LICENSE, note=NOTE, uses=uses, arms=arms)


# ---- Julia ---------------------------------------------------------------------------------------

JULIA = """\
# {license}
# {note}
# The operation `call`. ../README.md defines it.

const CALLS = Dict{{String,Function}}(
{table})

operation("call") do session, statement
    name = wanted(statement, "function")
    haskey(CALLS, name) || throw(Malformed("there is no call of $name"))
    object = isempty(statement.name) ? session.current : statement.name
    result = CALLS[name](held(session, object).item, statement)
    result isa AbstractString && return check_has(result, statement)
    result === nothing && return
    has(statement, "is") && check_equal("the result", result, number(statement, "is", 0))
end
"""


def julia(common: list[Method]) -> str:
    table = ""
    for method in common:
        passed = ["it"] + [
            f'wanted(s, "{item.name}")'
            if item.kind == TEXT
            else f'number(s, "{item.name}", 0)'
            if item.kind == "double"
            else f'whole(s, "{item.name}", 0)'
            for item in method.arguments
        ]
        call = f"Meron.{method.name('julia')}({', '.join(passed)})"
        table += f'    "{method.function.name}" => (it, s) -> {call},\n'
    return JULIA.format(license=LICENSE, note=NOTE, table=table)


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


def java(common: list[Method]) -> str:
    cases, numbers = "", False
    for method in common:
        passed = []
        for item in method.arguments:
            if item.kind == TEXT:
                passed.append(f'statement.wanted("{item.name}")')
                continue
            cast = {"double": "", "int32_t": "(int) ", "uint32_t": "(int) "}.get(
                item.kind, "(long) "
            )
            passed.append(f'{cast}statement.number("{item.name}", 0)')
        found = f"session.find({class_name(method.noun)}.class, name)"
        call = f"{found}.{method.name('java')}({', '.join(passed)})"
        if method.result == TEXT:
            call = f"Values.has({call}, statement)"
        elif method.result:
            call, numbers = f"equal({call}, statement)", True
        cases += f'            case "{method.function.name}":\n'
        cases += f"                {call};\n                return true;\n"
    used = sorted({class_name(method.noun) for method in common})
    return JAVA.format(
        license=LICENSE, note=NOTE, cases=cases, number=JAVA_NUMBER if numbers else "",
        imports="".join(f"import org.meron.{name};\n" for name in used),
    )  # fmt: skip

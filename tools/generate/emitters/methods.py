# SPDX-License-Identifier: Apache-2.0
"""The plain calls as methods, in the form that each language gives them.

Python   meron/_methods.py    a class per handle, a base of the class that users have
C++      cpp/methods.hpp      the same, as a template of that class
Rust     src/methods.rs       an impl block per type
Julia    src/methods.jl       functions
Java     <Class>Methods.java  a class per handle, between Handle and the class that users have
"""

from __future__ import annotations

import re
import textwrap

from emitters.julia import PRIMITIVES, docstring, identifier
from emitters.rust import documented
from model import Api
from plain import TEXT, Argument, Method, Prose, class_name, methods

LICENSE = "SPDX-License-Identifier: Apache-2.0"
NOTE = "Generated from include/meron/*.h by tools/generate/generate.py: do not edit."


def emit(api: Api) -> dict[str, str]:
    files = {
        "bindings/python/meron/_methods.py": python(methods(api, "python"), Prose(api, "python")),
        "include/meron/cpp/methods.hpp": cpp(methods(api, "cpp"), Prose(api, "cpp")),
        "bindings/rust/meron/src/methods.rs": rust(methods(api, "rust"), Prose(api, "rust")),
        "bindings/julia/src/methods.jl": julia(methods(api, "julia"), Prose(api, "julia")),
    }
    for noun, some in methods(api, "java").items():
        name = f"bindings/swig/java/org/meron/{class_name(noun)}Methods.java"
        files[name] = java(noun, some, Prose(api, "java"))
    return files


def fill(text: str, indent: str, width: int = 96) -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


# ---- Python --------------------------------------------------------------------------------------

PYTHON_NUMBERS = {
    "int32_t": "-(1 << 31), 1 << 31", "int64_t": "-(1 << 63), 1 << 63", "uint32_t": "0, 1 << 32",
    "uint64_t": "0, 1 << 64", "size_t": "0, 1 << 64",
}  # fmt: skip


def python(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    classes = "".join(
        f"\n\nclass {class_name(noun)}Methods(Handled):\n"
        + f'    """Calls of meron_{noun} that need nothing of Python\'s own."""\n'
        + "".join(f"\n{python_method(method, prose)}" for method in some)
        for noun, some in by_noun.items()
    )
    words = ("NULL", "Handled", "call", "lib", "receive", "string", "take_string", "text", "whole")
    used = [word for word in words if re.search(rf"\b{word}[(.]|\({word}\)|else {word}\b", classes)]
    return (
        f'# {LICENSE}\n# {NOTE}\n"""Calls of the library as methods."""\n\n'
        "from __future__ import annotations\n\n"
        f"from meron._native import {', '.join(used)}\n{classes}"
    )


def python_method(method: Method, prose: Prose) -> str:
    result = {"": "None", TEXT: "str", "double": "float"}.get(method.result, "int")
    taken = ["self", *(f"{item.name}: {python_type(item)}" for item in method.arguments)]
    passed = [f"lib.{method.function.name}", "self._for_call()"]
    passed += [python_value(item) for item in method.arguments]
    inner = ", ".join(passed)
    if method.result == TEXT:
        line = (
            f"return take_string({inner})"
            if method.owned
            else (f'return string(receive("const char **", {inner}))')
        )
    elif method.result:
        line = f'return {result}(receive("{method.result} *", {inner}))'
    else:
        line = f"call({inner})"
    parts = [*prose.paragraphs(method), f"Raises {prose.errors(method)}."]
    doc = "\n\n".join(fill(text, " " * 8) for text in parts).strip()
    return (
        f"    def {method.name('python')}({', '.join(taken)}) -> {result}:\n"
        f'        """{doc}\n        """\n        {line}\n'
    )


def python_type(item: Argument) -> str:
    if item.kind == TEXT:
        return "str | None = None" if item.nullable else "str"
    return "float" if item.kind == "double" else "int"


def python_value(item: Argument) -> str:
    if item.kind == TEXT:
        value = f'text({item.name}, "{item.name}")'
        return f"{value} if {item.name} is not None else NULL" if item.nullable else value
    if item.kind == "double":
        return item.name
    return f'whole({item.name}, "{item.name}", {PYTHON_NUMBERS[item.kind]})'


# ---- C++ -----------------------------------------------------------------------------------------

CPP = """\
// SPDX-License-Identifier: Apache-2.0
// {note}
// meron/cpp/methods.hpp: calls of the C interface as methods of the handle's owner.
#ifndef MERON_CPP_METHODS_HPP
#define MERON_CPP_METHODS_HPP

#include "meron/cpp/base.hpp"
#include "meron/meron.h"

namespace meron {{
inline namespace v1 {{
namespace detail {{

{classes}
}}  // namespace detail
}}  // namespace v1
}}  // namespace meron

#endif  // MERON_CPP_METHODS_HPP
"""


def cpp(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    return CPP.format(
        note=NOTE, classes="\n".join(cpp_class(*item, prose) for item in by_noun.items())
    )


def cpp_class(noun: str, some: list[Method], prose: Prose) -> str:
    body = "".join(cpp_method(method, prose) for method in some)
    if not body:
        return f"template <class Self>\nclass {class_name(noun)}Methods {{}};\n"
    return (
        f"template <class Self>\nclass {class_name(noun)}Methods {{\n public:\n{body}\n private:\n"
        f"  meron_{noun} raw() const noexcept {{ "
        "return static_cast<const Self*>(this)->handle(); }\n};\n"
    )


def cpp_method(method: Method, prose: Prose) -> str:
    result = {"": "void", TEXT: "String" if method.owned else "const char*"}.get(
        method.result, method.result
    )
    nullable_from = len(method.arguments)
    while nullable_from and method.arguments[nullable_from - 1].nullable:
        nullable_from -= 1
    taken = [
        (f"Text {item.name}" if item.kind == TEXT else f"{item.kind} {item.name}")
        + (" = nullptr" if at >= nullable_from else "")
        for at, item in enumerate(method.arguments)
    ]
    passed = [method.function.name, "raw()"]
    passed += [
        f"{item.name}.c_str()" if item.kind == TEXT else item.name for item in method.arguments
    ]
    call = f"detail::{'receive' if method.result else 'call'}({', '.join(passed)})"
    if result == "String":
        call = f"String({call})"
    body = f"return {call};" if method.result else f"{call};"
    head = f"  {result} {method.name('cpp')}({', '.join(taken)}) const {{"
    text = f"{head} {body} }}"
    if len(text) > 100:
        text = f"{head}\n    {body}\n  }}"
    doc = fill(" ".join([*prose.paragraphs(method), f"Throws {prose.errors(method)}."]), "  // ")
    return f"{doc}\n{text}\n"


# ---- Rust ----------------------------------------------------------------------------------------

RUST_NUMBERS = {
    "int32_t": "i32", "int64_t": "i64", "uint32_t": "u32", "uint64_t": "u64", "size_t": "usize",
    "double": "f64",
}  # fmt: skip
RUST = """\
// SPDX-License-Identifier: Apache-2.0
// {note}
//! Calls of the library as methods.

use meron_sys as sys;

use crate::call::{{{calls}}};
use crate::home::ForCall;
use crate::{{{classes}}};

{blocks}"""


def rust(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    blocks = {
        class_name(noun): "\n".join(rust_method(method, prose) for method in some)
        for noun, some in by_noun.items()
        if some
    }
    text = "\n".join(f"impl {name} {{\n{body}}}\n" for name, body in blocks.items())
    calls = [
        word for word in ("c_string", "check", "receive", "receive_text") if f"{word}(" in text
    ]
    return RUST.format(
        note=NOTE,
        calls=", ".join(calls),
        classes=", ".join(sorted([*blocks, "Result"])),
        blocks=text,
    )


def rust_method(method: Method, prose: Prose) -> str:
    taken = ["&mut self" if method.function.method["rust"].startswith("set_") else "&self"]
    before = ["let handle = self.for_call()?;"]
    passed = ["handle"]
    for item in method.arguments:
        name = item.name
        if item.kind == TEXT and item.nullable:
            taken.append(f"{name}: Option<&str>")
            before.append(f'let {name} = {name}.map(|text| c_string(text, "{name}")).transpose()?;')
            before.append(
                f"let {name} = {name}.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());"
            )
            passed.append(name)
        elif item.kind == TEXT:
            taken.append(f"{name}: &str")
            before.append(f'let {name} = c_string({name}, "{name}")?;')
            passed.append(f"{name}.as_ptr()")
        else:
            taken.append(f"{name}: {RUST_NUMBERS[item.kind]}")
            passed.append(name)
    if method.result == TEXT and not method.owned:
        raise ValueError(f"{method.function.name}: Rust has no lifetime for its text: say null")
    result = {"": "()", TEXT: "String"}.get(method.result) or RUST_NUMBERS[method.result]
    out = "out, " if method.result else ""
    call = f"unsafe {{ sys::{method.function.name}({out}{', '.join(passed)}, err) }}"
    if method.result == TEXT:
        line = f"receive_text(|out, err| {call})"
    elif method.result:
        line = f"receive({'0.0' if result == 'f64' else '0'}, |out, err| {call})"
    else:
        line = f"check(|err| {call})"
    if len(line) > 92:
        line = line.replace("unsafe { ", "unsafe {\n    ").replace(" })", "\n})")
    parts = [*prose.paragraphs(method), "# Errors", f"{prose.errors(method)}."]
    doc = "///\n".join(documented(text) for text in parts)
    code = (
        f"{doc}pub fn {method.name('rust')}({', '.join(taken)}) -> Result<{result}> {{\n"
        + textwrap.indent("\n".join(before), "    ")
        + "\n    // SAFETY: a wrong handle gives an error; texts live during the call.\n"
        + textwrap.indent(line, "    ")
        + "\n}\n"
    )
    return textwrap.indent(code, "    ")


# ---- Julia ---------------------------------------------------------------------------------------


def julia(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    text = "".join(
        f"\n{julia_method(method, prose)}" for some in by_noun.values() for method in some
    )
    return f"# {LICENSE}\n# {NOTE}\n# Calls of the library as functions.\n{text}"


def julia_method(method: Method, prose: Prose) -> str:
    noun, name = method.noun, method.name("julia")
    taken = [f"{noun}::{class_name(noun)}"]
    passed = [f"raw({noun})"]
    for item in method.arguments:
        own = identifier(item.name)
        if item.kind == TEXT:
            value = f'text({own}, "{own}")'
            passed.append(f"{own} === nothing ? C_NULL : {value}" if item.nullable else value)
            taken.append(f"{own} = nothing" if item.nullable else own)
        elif item.kind == "double":
            taken.append(own)
            passed.append(own)
        else:
            taken.append(own)
            passed.append(f'convert_field({PRIMITIVES[item.kind]}, {own}, "{own}")')
    function = f"LibMeron.{method.function.name}"
    if method.result == TEXT:
        body = (
            f"take_string({function}, {', '.join(passed)})"
            if method.owned
            else (f"unsafe_string(receive(Ptr{{UInt8}}, {function}, {', '.join(passed)}))")
        )
    elif method.result:
        body = f"receive({PRIMITIVES[method.result]}, {function}, {', '.join(passed)})"
    else:
        body = f"@check {function}({', '.join(passed)})"
    shown = ", ".join([noun, *(item.name for item in method.arguments)])
    parts = [*prose.paragraphs(method), f"Throws {prose.errors(method)}."]
    export = "" if name.endswith("!") else "Meron."
    doc = "\n\n".join([f"    {export}{name}({shown})", *(fill(text, "") for text in parts)])
    end = "    return\n" if not method.result else ""
    begin = "    return " if method.result else "    "
    exported = "" if export else f"export {name}\n"
    return (
        f"{exported}{docstring(doc)}function {name}({', '.join(taken)})\n{begin}{body}\n{end}end\n"
    )


# ---- Java ----------------------------------------------------------------------------------------

JAVA_NUMBERS = {
    "int32_t": "int", "uint32_t": "int", "int64_t": "long", "uint64_t": "long", "size_t": "long",
    "double": "double",
}  # fmt: skip
JAVA = """\
// SPDX-License-Identifier: Apache-2.0
// {note}
package org.meron;
{imports}
/** Calls of meron_{noun} that need nothing of Java's own. */
abstract class {name}Methods extends Handle {{
    {name}Methods(Release release) {{
        super(release);
    }}
{body}}}
"""


def java(noun: str, some: list[Method], prose: Prose) -> str:
    return JAVA.format(
        note=NOTE,
        noun=noun,
        name=class_name(noun),
        imports="\nimport org.meron.abi.Abi;\n" if some else "",
        body="".join(f"\n{java_method(method, prose)}" for method in some),
    )


def java_method(method: Method, prose: Prose) -> str:
    result = {"": "void", TEXT: "String"}.get(method.result) or JAVA_NUMBERS[method.result]
    taken = [
        f"{'String' if item.kind == TEXT else JAVA_NUMBERS[item.kind]} {camel(item.name)}"
        for item in method.arguments
    ]
    passed = ["handle", *(camel(item.name) for item in method.arguments)]
    call = f"call(handle -> Abi.{method.function.name}({', '.join(passed)}));"
    parts = [*prose.paragraphs(method), f"Throws {prose.errors(method)}."]
    doc = "\n     *\n".join(fill(java_text(text), "     * ") for text in parts)
    doc = doc.replace("     *\n     * ", "     *\n     * <p>")
    return (
        f"    /**\n{doc}\n     */\n"
        f"    public {result} {method.name('java')}({', '.join(taken)}) {{\n"
        f"        requireOpen();\n        {'return ' if method.result else ''}{call}\n    }}\n"
    )


def java_text(text: str) -> str:
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    )


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)

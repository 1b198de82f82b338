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
from emitters.options import (
    PYTHON_NUMBERS,
    julia_enum,
    julia_keywords,
    julia_lines,
    python_enum,
    python_keywords,
    python_lines,
)
from emitters.rust import documented
from model import Api
from plain import ALONE, FUTURE, OPTIONS, TEXT, Argument, Method, Prose, camel, class_name, methods

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


def listed(opening: str, items: list[str], closing: str, indent: str) -> str:
    """A call or declaration: on one line, or if that is too long with one for the items."""
    line = f"{indent}{opening}{', '.join(items)}{closing}"
    if len(line) <= 100:
        return line
    inner = f"{indent}    {', '.join(items)}"
    if len(inner) < 100:
        return f"{indent}{opening}\n{inner}\n{indent}{closing}"
    inner = "".join(f"{indent}    {item},\n" for item in items)
    return f"{indent}{opening}\n{inner}{indent}{closing}"


def aligned(opening: str, items: list[str], closing: str) -> str:
    """The same as clang-format does it: items that do not fit are below the first one."""
    lines = [opening]
    for at, item in enumerate(items):
        end = closing if at == len(items) - 1 else ","
        space = "" if at == 0 else " "
        if at and len(f"{lines[-1]}{space}{item}{end}") > 100:
            lines.append(" " * len(opening))
            space = ""
        lines[-1] += f"{space}{item}{end}"
    return "\n".join(lines) if items else f"{opening}{closing}"


# ---- Python --------------------------------------------------------------------------------------


def python(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    classes = "".join(
        f"\n\nclass {class_name(noun)}Methods(Handled):\n"
        + f'    """Calls of meron_{noun} that need nothing of Python\'s own."""\n'
        + "".join(f"\n{python_method(method, prose)}" for method in some)
        for noun, some in by_noun.items()
    )
    tables = sorted(enum.names["python"] for enum in prose.api.enum_types if "python" in enum.names)
    imports = "".join(
        f"from {module} import {', '.join(used)}\n"
        for module, words in {**PYTHON_IMPORTS, "meron._values": tables}.items()
        if (used := [word for word in words if uses(classes, word)])
    )
    return (
        f'# {LICENSE}\n# {NOTE}\n"""Calls of the library as methods."""\n\n'
        f"from __future__ import annotations\n\n{imports}{classes}"
    )


PYTHON_IMPORTS = {
    "meron._native": [
        "NULL", "Handled", "call", "code_of", "initial", "lib", "nanoseconds", "receive", "string",
        "take_string", "text", "whole",
    ],
    "meron._values": [],
    "meron.device": ["stream_pointer"],
    "meron.future": ["Future", "begin"],
}  # fmt: skip


def uses(classes: str, word: str) -> bool:
    """Whether code, without its docstrings, has a word that is not defined in it."""
    code = re.sub(r'""".*?"""', "", classes, flags=re.DOTALL)
    return bool(re.search(rf"(?<!def )(?<![.\w]){word}\b", code))


def python_method(method: Method, prose: Prose) -> str:
    kinds = {"": "None", TEXT: "str", "double": "float", FUTURE: "Future"}
    result = kinds.get(method.result, "int")
    taken = ["self", *(f"{item.name}: {python_type(item)}" for item in method.given)]
    passed = [f"lib.{method.function.name}", "self._for_call()"]
    passed += [python_value(item) for item in method.arguments]
    lines = []
    if method.options:
        taken += python_keywords(prose.api, method.options)
        lines = python_lines(prose.api, method.options)
    inner = ", ".join(passed)
    if method.result == TEXT:
        line = (
            f"return take_string({inner})"
            if method.owned
            else (f'return string(receive("const char **", {inner}))')
        )
    elif method.result == FUTURE:
        home = "self" if method.noun == "context" else "self._context"
        line = listed("return begin(", [home, *passed], ")", " " * 8).strip()
    elif method.result:
        line = f'return {result}(receive("{method.result} *", {inner}))'
    else:
        line = f"call({inner})"
    parts = [*prose.paragraphs(method), f"Raises {prose.errors(method)}."]
    doc = "\n\n".join(fill(text, " " * 8) for text in parts).strip()
    body = "".join(f"        {line}\n" for line in [*lines, line])
    head = listed(f"def {method.name('python')}(", taken, f") -> {result}:", " " * 4)
    code = f'{head}\n        """{doc}\n        """\n{body}'
    if not method.twin("python"):
        return code
    begun = method.name("python")
    head = listed(f"def {method.twin('python')}(", taken, ") -> None:", " " * 4)
    names = [item.name for item in method.given]
    names += [f"{f.name}={f.name}" for f in method.options.fields] if method.options else []
    call = listed(f"self.{begun}(", names, ").wait()", " " * 8)
    return (
        f'{code}\n{head}\n        """As `{begun}`, and waits for its end.\n\n'
        f"        Blocks as `Future.wait`, and raises what the two of them raise.\n"
        f'        """\n{call}\n'
    )


def python_type(item: Argument) -> str:
    if item.enum:
        return "str"
    if item.kind == TEXT:
        return "str | None = None" if item.nullable else "str"
    return "float" if item.kind == "double" else "int"


def python_value(item: Argument) -> str:
    if item.kind == OPTIONS:
        return "options"
    if item.enum:
        return python_enum(item.enum, item.name)
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

#include <string_view>

#include "meron/cpp/base.hpp"
#include "meron/cpp/future.hpp"
#include "meron/cpp/values.hpp"
#include "meron/meron.h"

namespace meron {{
inline namespace MERON_CPP_NAMESPACE {{
namespace detail {{

{classes}
}}  // namespace detail
}}  // namespace MERON_CPP_NAMESPACE
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
    borrowed = method.result == TEXT and not method.owned
    kinds = {"": "void", TEXT: "std::string_view" if borrowed else "String", FUTURE: "Future"}
    result = kinds.get(method.result, method.result)
    nullable_from = len(method.arguments)
    while nullable_from and cpp_default(method.arguments[nullable_from - 1]):
        nullable_from -= 1
    taken = [
        cpp_parameter(item) + (cpp_default(item) if at >= nullable_from else "")
        for at, item in enumerate(method.arguments)
    ]
    passed = [method.function.name, "raw()"]
    passed += [cpp_value(item) for item in method.arguments]
    call = f"detail::{'receive' if method.result else 'call'}({', '.join(passed)})"
    if result in ("String", "Future"):
        call = f"{result}(adopt, {call})"
    lines = []
    if method.options:
        lines = [f"const {method.options.of} given = {method.arguments[-1].name}.raw();"]
    lines.append(f"return {call};" if method.result else f"{call};")
    discard = "[[nodiscard]] " if method.result == FUTURE else ""
    doc = fill(" ".join([*prose.paragraphs(method), f"Throws {prose.errors(method)}."]), "  // ")
    head = f"{discard}{result} {method.name('cpp')}"
    code = f"{doc}\n{cpp_function(head, taken, lines, 'const&' if borrowed else 'const')}"
    if borrowed:
        code += aligned(f"  {head}(", taken, ") const&& = delete;  // it would dangle") + "\n"
    if not method.twin("cpp"):
        return code
    names = ", ".join(item.name for item in method.arguments)
    line = f"{method.name('cpp')}({names}).wait();"
    doc = fill(f"As {method.name('cpp')}, and waits for its end as Future::wait does.", "  // ")
    return f"{code}{doc}\n{cpp_function('void ' + method.twin('cpp'), taken, [line])}"


def cpp_function(name: str, taken: list[str], lines: list[str], const: str = "const") -> str:
    head = aligned(f"  {name}(", taken, f") {const} {{")
    text = f"{head} {lines[0]} }}"
    if len(lines) > 1 or len(text) > 100:
        text = "\n".join([head, *(f"    {line}" for line in lines), "  }"])
    return f"{text}\n"


def cpp_value(item: Argument) -> str:
    if item.enum:
        return f"static_cast<{item.enum.of}>({item.name})"
    return {TEXT: f"{item.name}.c_str()", OPTIONS: "&given"}.get(item.kind, item.name)


def cpp_parameter(item: Argument) -> str:
    if item.enum:
        return f"{item.enum.names['cpp']} {item.name}"
    if item.struct:
        return f"const {item.struct.names['cpp']}& {item.name}"
    return f"const Text& {item.name}" if item.kind == TEXT else f"{item.kind} {item.name}"


def cpp_default(item: Argument) -> str:
    if item.struct:
        return " = {}"
    return " = nullptr" if item.nullable else ""


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
{begin}use crate::{{{classes}}};

{blocks}"""


def rust(by_noun: dict[str, list[Method]], prose: Prose) -> str:
    blocks = {
        class_name(noun): "\n".join(rust_method(method, prose) for method in some)
        for noun, some in by_noun.items()
        if some
    }
    text = "\n".join(f"impl {name} {{\n{body}}}\n" for name, body in blocks.items())
    calls = [
        word
        for word in ("c_string", "check", "copy_text", "receive", "receive_text")
        if f" {word}(" in text
    ]
    return RUST.format(
        note=NOTE,
        calls=", ".join(calls),
        begin="use crate::operation::begin;\n" if " begin(" in text else "",
        classes=", ".join(sorted({*blocks, *rust_types(by_noun), "Result"})),
        blocks=text,
    )


def rust_types(by_noun: dict[str, list[Method]]) -> set[str]:
    """The types that methods take and return."""
    every = [method for some in by_noun.values() for method in some]
    arguments = [item for method in every for item in method.arguments]
    types = {item.struct.names["rust"] for item in arguments if item.struct}
    types |= {item.enum.names["rust"] for item in arguments if item.enum}
    return types | {"Operation" for method in every if method.result == FUTURE}


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
        elif item.enum:
            taken.append(f"{name}: {item.enum.names['rust']}")
            passed.append(f"{name}.code()")
        elif item.struct:
            taken.append(f"{name}: &{item.struct.names['rust']}")
            before.append(f"let {name} = {name}.raw();")
            passed.append(f"&{name}")
        else:
            taken.append(f"{name}: {RUST_NUMBERS[item.kind]}")
            passed.append(name)
    kinds = {"": "()", TEXT: "String", FUTURE: "Operation"}
    result = kinds.get(method.result) or RUST_NUMBERS[method.result]
    out = "out, " if method.result else ""
    call = f"unsafe {{ sys::{method.function.name}({out}{', '.join(passed)}, err) }}"
    if method.result == TEXT:
        line = f"{'receive' if method.owned else 'copy'}_text(|out, err| {call})"
    elif method.result == FUTURE:
        line = f"begin(self.shared(), |out, err| {call})"
    elif method.result:
        line = f"receive({'0.0' if result == 'f64' else '0'}, |out, err| {call})"
    else:
        line = f"check(|err| {call})"
    if len(line) > 92:
        line = line.replace("unsafe { ", "unsafe {\n    ").replace(" })", "\n})")
    parts = [*prose.paragraphs(method), "# Errors", f"{prose.errors(method)}."]
    doc = "///\n".join(documented(text) for text in parts)
    head = listed(f"pub fn {method.name('rust')}(", taken, f") -> Result<{result}> {{", "")
    code = (
        f"{doc}{head}\n"
        + textwrap.indent("\n".join(before), "    ")
        + "\n    // SAFETY: a wrong handle gives an error; texts live during the call.\n"
        + textwrap.indent(line, "    ")
        + "\n}\n"
    )
    if method.twin("rust"):
        begun = method.name("rust")
        names = ", ".join(item.name for item in method.arguments)
        doc = documented(
            f"As `{begun}`, and waits for its end. Blocks as `Operation::wait`, and gives the "
            "errors of both."
        )
        head = listed(f"pub fn {method.twin('rust')}(", taken, ") -> Result<()> {", "")
        code += f"\n{doc}{head}\n    self.{begun}({names})?.wait()\n}}\n"
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
        if item.kind == OPTIONS:
            passed.append("options")
        elif item.kind == TEXT:
            value = f'text({own}, "{own}")'
            passed.append(f"{own} === nothing ? C_NULL : {value}" if item.nullable else value)
            taken.append(f"{own} = nothing" if item.nullable else own)
        elif item.enum:
            taken.append(own)
            passed.append(julia_enum(item.enum, own))
        elif item.kind == "double":
            taken.append(own)
            passed.append(own)
        else:
            taken.append(own)
            passed.append(f'convert_field({PRIMITIVES[item.kind]}, {own}, "{own}")')
    function = f"LibMeron.{method.function.name}"
    begin, end = "    return ", ""
    if method.result == FUTURE:
        home = noun if noun == "context" else f"{noun}.context"
        passed[0] = "handle"
        line = listed(f"@check {function}(", ["out", *passed], ")", " " * 8)
        body = f"begin_operation({home}) do out\n{line}\n    end"
        begin = f"    handle = raw({noun})\n{begin}"
    elif method.result == TEXT:
        body = (
            f"take_string({function}, {', '.join(passed)})"
            if method.owned
            else (f"unsafe_string(receive(Ptr{{UInt8}}, {function}, {', '.join(passed)}))")
        )
    elif method.result:
        body = f"receive({PRIMITIVES[method.result]}, {function}, {', '.join(passed)})"
    else:
        body = f"@check {function}({', '.join(passed)})"
        begin, end = "    ", "    return\n"
    keywords = julia_keywords(prose.api, method.options) if method.options else []
    if method.options:
        begin = "\n".join([*julia_lines(prose.api, method.options), begin])
    parts = [*prose.paragraphs(method), f"Throws {prose.errors(method)}."]
    code = (
        f"{julia_head(method, name, keywords, [fill(text, '') for text in parts])}"
        f"{julia_signature(f'function {name}(', taken, keywords)}\n{begin}{body}\n{end}end\n"
    )
    twin = method.twin("julia")
    if not twin:
        return code
    doc = fill(f"As `{name}`, and waits for its end. Throws what `{name}` and `wait` throw.", "")
    passed = [noun, *(identifier(item.name) for item in method.given)]
    options = ["options..."] if keywords else []
    head = f"{julia_signature(f'{twin}(', taken, options)} ="
    call = f"finish({julia_signature(f'{name}(', passed, options)})"
    line = f"{head} {call}" if len(f"{head} {call}") <= 100 else f"{head}\n    {call}"
    return f"{code}\n{julia_head(method, twin, keywords, [doc])}{line}\n"


def julia_signature(opening: str, items: list[str], keywords: list[str]) -> str:
    tail = f"; {', '.join(keywords)}" if keywords else ""
    line = f"{opening}{', '.join(items)}{tail})"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {keyword},\n" for keyword in keywords)
    return f"{opening}{', '.join(items)};\n{inner})"


def julia_head(method: Method, name: str, keywords: list[str], parts: list[str]) -> str:
    """The export, if the name has the mark of what changes its argument; and the docs."""
    shown = [method.noun, *(item.name for item in method.given)]
    changing = name.endswith("!")
    call = julia_signature(f"{'' if changing else 'Meron.'}{name}(", shown, keywords)
    doc = "\n\n".join([textwrap.indent(call, "    "), *parts])
    return (f"export {name}\n" if changing else "") + docstring(doc)


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
{home}{body}}}
"""
JAVA_HOME = """
    /** The context that it is of. */
    abstract Context context();

    @Override
    void requireOpen() {
        context().requireOpen();
    }
"""


def java(noun: str, some: list[Method], prose: Prose) -> str:
    body = "".join(f"\n{java_method(method, prose)}" for method in some)
    return JAVA.format(
        note=NOTE,
        noun=noun,
        name=class_name(noun),
        imports="\nimport org.meron.abi.Abi;\n" if "Abi." in body else "",
        home="" if noun in (*ALONE, "context") else JAVA_HOME,
        body=body,
    )


def java_method(method: Method, prose: Prose) -> str:
    kinds = {"": "void", TEXT: "String", FUTURE: "Operation"}
    result = kinds.get(method.result) or JAVA_NUMBERS[method.result]
    taken = [f"{java_type(item)} {camel(item.name)}" for item in method.arguments]
    names = [camel(item.name) for item in method.given]
    codes = [f"{camel(i.name)}.ordinal()" if i.enum else camel(i.name) for i in method.given]
    passed = ", ".join(["handle", *codes])
    call = f"call(handle -> Abi.{method.function.name}({passed}))"
    if method.options:  # the class of the options makes the call
        own = camel(method.function.name.removeprefix("meron_"))
        call = f"call(handle -> {camel(method.arguments[-1].name)}.{own}({passed}))"
    checks = "".join(
        f'        Arguments.required({camel(item.name)}, "{camel(item.name)}");\n'
        for item in method.arguments
        if item.enum or item.struct or (item.kind == TEXT and not item.nullable)
    )
    checks += "        requireOpen();\n"
    body = f"{checks}        {'return ' if method.result else ''}{call};\n"
    if method.result == FUTURE:
        home = "this" if method.noun == "context" else "context()"
        body = f"{checks}        final long future = {call};\n"
        body += f"        return new Operation({home}, future, null);\n"
    parts = [*prose.paragraphs(method), f"Throws {prose.errors(method)}."]
    code = java_function(parts, f"{result} {method.name('java')}", taken, body)
    forms = [(method.name("java"), result, taken)]
    if method.twin("java"):
        parts = [f"As {method.name('java')}, and waits for its end as Operation.await does."]
        inner = ", ".join(camel(item.name) for item in method.arguments)
        body = f"        {method.name('java')}({inner}).finish();\n"
        code += "\n" + java_function(parts, f"void {method.twin('java')}", taken, body)
        forms.append((method.twin("java"), "void", taken))
    if not method.options:
        return code
    default = f"new {method.options.names['java']}()"
    for name, kind, all_taken in forms:
        again = "" if kind == "void" else "return "
        body = f"        {again}{name}({', '.join([*names, default])});\n"
        parts = ["The same with the library's default options."]
        code += "\n" + java_function(parts, f"{kind} {name}", all_taken[:-1], body)
    return code


def java_function(parts: list[str], name: str, taken: list[str], body: str) -> str:
    doc = "\n     *\n".join(fill(java_text(text), "     * ") for text in parts)
    doc = doc.replace("     *\n     * ", "     *\n     * <p>")
    doc = f"    /**\n{doc}\n     */" if "\n" in doc else f"    /** {doc.strip(' *')} */"
    return f"{doc}\n{listed(f'public {name}(', taken, ') {', ' ' * 4)}\n{body}    }}\n"


def java_type(item: Argument) -> str:
    if item.enum:
        return item.enum.names["java"]
    if item.struct:
        return item.struct.names["java"]
    return "String" if item.kind == TEXT else JAVA_NUMBERS[item.kind]


def java_text(text: str) -> str:
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "&#64;")
    )

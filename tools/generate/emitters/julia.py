# SPDX-License-Identifier: Apache-2.0
"""The module LibMeron of the Julia package: mirrors of the structs, and a method per function."""

from __future__ import annotations

import textwrap

from model import (
    Api,
    Callback,
    Constant,
    CType,
    Enum,
    Function,
    Handle,
    Opaque,
    Struct,
)

PRIMITIVES = {
    "int32_t": "Int32",
    "int64_t": "Int64",
    "uint8_t": "UInt8",
    "uint32_t": "UInt32",
    "uint64_t": "UInt64",
    "size_t": "Csize_t",
    "float": "Float32",
    "double": "Float64",
    "char": "UInt8",
    "void": "Cvoid",
}

# Words of the language, which get an underscore behind them.
KEYWORDS = {
    "abstract", "baremodule", "begin", "const", "do", "else", "end", "export", "for", "function",
    "global", "if", "import", "in", "let", "local", "macro", "module", "mutable", "quote",
    "struct", "try", "type", "using", "where", "while",
}  # fmt: skip

TEMPLATE = '''\
# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""
The C interface as it is: structs with C's layout, constants, a method per function.

Out parameters take a `Ref` or a `Ptr`; `err` takes a `Ref{{Ptr{{meron_error}}}}` or `C_NULL`.
Nothing is checked here, and text must be a `String` without NUL or a pointer. A function that may
wait does not hold up the garbage collection of other threads while it does (blocking.jl).
"""
module LibMeron

include("blocking.jl")

# The version of the headers that this was made from.
const VERSION_TEXT = "{version}"

{declarations}
# The entry points of the library; null until `bind` was called.
mutable struct Functions
{entries}
    Functions() = new({nulls})
end
const functions = Functions()

# Fills `functions` by `find(name::Symbol)`, which returns the address or throws.
function bind(find)
    for name in fieldnames(Functions)
        setfield!(functions, name, convert(Ptr{{Cvoid}}, find(name)))
    end
end

# For tests: every struct, and every handle.
const structs = ({structs})

{functions}
end # module
'''


def emit(api: Api) -> dict[str, str]:
    named = api.named()
    items = [named[name] for name in api.order]
    functions = [item for item in items if isinstance(item, Function)]
    declarations = "\n".join(
        text for item in items if not isinstance(item, Function) for text in [declare(item)] if text
    )
    structs = [item.name for item in items if isinstance(item, (Struct, Handle))]
    text = TEMPLATE.format(
        version=api.version,
        declarations=declarations,
        entries="\n".join(f"    {function.name}::Ptr{{Cvoid}}" for function in functions),
        nulls=wrap(", ".join(["C_NULL"] * len(functions)), " " * 8).strip(),
        structs=wrap(", ".join(structs), " " * 4).strip(),
        functions="\n".join(define(function) for function in functions),
    )
    return {"bindings/julia/src/generated.jl": text}


def wrap(text: str, indent: str) -> str:
    return textwrap.fill(
        text, 96, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )


def julia_type(spelling: str) -> str:
    kind = CType.parse(spelling)
    name = kind.name[len("struct ") :] if kind.name.startswith("struct ") else kind.name
    text = PRIMITIVES.get(name, name)
    for _ in range(kind.pointers):
        text = f"Ptr{{{text}}}"
    return text if kind.array is None else f"NTuple{{{kind.array}, {text}}}"


def identifier(name: str) -> str:
    return f"{name}_" if name in KEYWORDS else name


def docstring(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("$", "\\$").replace('"""', '\\"\\"\\"')
    return f'"""\n{escaped}\n"""\n'


def documented(doc: str, code: str) -> str:
    return (docstring(wrap(doc, "")) if doc else "") + code


def declare(item: Constant | Handle | Opaque | Enum | Struct | Callback | Function) -> str:
    if isinstance(item, Constant):
        return documented(item.doc, f"const {item.name} = {item.value}\n")
    if isinstance(item, Handle):
        return documented(item.doc, f"struct {item.name}\n    id::UInt64\nend\n")
    if isinstance(item, Opaque):
        return documented(item.doc, f"mutable struct {julia_type(item.name)} end\n")
    if isinstance(item, Enum):
        lines = [f"const {item.name} = {PRIMITIVES[item.underlying]}"]
        for value in item.values:
            line = f"const {value.name} = {item.name}({value.value})"
            lines.append(f"{line} # {value.doc}" if value.doc else line)
        return documented(item.doc, "\n".join(lines) + "\n")
    if isinstance(item, Callback):
        signature = ", ".join(f"{identifier(p.name)}::{julia_type(p.type)}" for p in item.params)
        doc = f"A pointer to a function ({signature}) -> {julia_type(item.returns)}. {item.doc}"
        return documented(doc, f"const {item.name} = Ptr{{Cvoid}}\n")
    if isinstance(item, Struct):
        lines = [f"struct {item.name}"]
        for field in item.fields:
            line = f"    {identifier(field.name)}::{julia_type(field.type)}"
            lines.append(f"{line} # {field.doc}" if field.doc else line)
        return documented(item.doc, "\n".join([*lines, "end"]) + "\n")
    raise TypeError(item)


def define(function: Function) -> str:
    names = ", ".join(identifier(param.name) for param in function.params)
    paragraphs = [f"    {function.name}({names})"]
    paragraphs.append(wrap(" ".join(filter(None, (function.brief, function.doc))), ""))
    paragraphs += [
        wrap(f"- `{identifier(param.name)}`: {param.doc}", "")
        for param in function.params
        if param.doc
    ]
    rules = (
        ("Ownership", function.ownership),
        ("Blocks", function.blocks),
        ("Threads", function.threads),
        ("Errors", function.errors),
    )
    paragraphs.append("\n".join(wrap(f"{name}: {text}", "") for name, text in rules if text))

    types = ", ".join(julia_type(param.type) for param in function.params)
    comma = "," if len(function.params) == 1 else ""
    lead = f"functions.{function.name}, {julia_type(function.returns)}, ("
    tail = f"){', ' if names else ''}{names}"
    text = wrap(f"{lead}{types}{comma}{tail}", " " * 8)
    call = "@blocking_ccall" if function.may_block else "ccall"
    code = f"@inline {function.name}({names}) = {call}(\n{text})\n"
    return docstring("\n\n".join(paragraphs)) + code

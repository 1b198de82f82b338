# SPDX-License-Identifier: Apache-2.0
"""The declarations of the Rust crate meron-sys."""

from __future__ import annotations

import re
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
    Param,
    Struct,
    Value,
)

Item = Constant | Handle | Opaque | Enum | Struct | Callback | Function

HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.

use std::marker::{PhantomData, PhantomPinned};
use std::mem::size_of;
use std::os::raw::{c_char, c_void};
use std::ptr;
"""

SCALARS = {
    "void": "c_void",
    "char": "c_char",
    "double": "f64",
    "float": "f32",
    "int8_t": "i8",
    "int16_t": "i16",
    "int32_t": "i32",
    "int64_t": "i64",
    "uint8_t": "u8",
    "uint16_t": "u16",
    "uint32_t": "u32",
    "uint64_t": "u64",
    "size_t": "usize",
}
# Words that Rust keeps to itself, as far as a C parameter may be called so.
KEYWORDS = {"as", "fn", "in", "loop", "mod", "move", "ref", "self", "type", "use", "where"}
# Sizes and alignments in bytes of the data models that Meron runs on (LP64).
SIZES = {
    "c_void": 1, "c_char": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "f32": 4,
    "i64": 8, "u64": 8, "f64": 8, "usize": 8,
}  # fmt: skip
POINTER = 8


def emit(api: Api) -> dict[str, str]:
    named = api.named()
    items = [named[name] for name in api.order]
    layouts = Layouts(items)
    parts = [declare(item) for item in items if not isinstance(item, Function)]
    functions = [function(item) for item in items if isinstance(item, Function)]
    parts.append('extern "C" {\n' + indent("\n".join(functions)) + "}\n")
    parts.append(layouts.assertions())
    parts.append(layouts.tests())
    return {"bindings/rust/meron-sys/src/generated.rs": "\n".join([HEAD, *parts])}


# ---- Names and types ---------------------------------------------------------------------------


def rust_name(name: str) -> str:
    """A type's name: C's tag without its `struct`."""
    return name.removeprefix("struct ")


def identifier(name: str) -> str:
    return f"r#{name}" if name in KEYWORDS else name


def rust_type(spelling: str) -> str:
    ctype = CType.parse(spelling)
    base = SCALARS.get(ctype.name, rust_name(ctype.name))
    if ctype.pointers:
        # const binds to what the first star points at; further stars are of mutable pointers.
        base = f"*{'const' if ctype.const else 'mut'} {base}"
        base = "*mut " * (ctype.pointers - 1) + base
    return base if ctype.array is None else f"[{base}; {ctype.array}]"


def indent(text: str, by: str = "    ") -> str:
    return textwrap.indent(text, by)


# ---- Documentation -----------------------------------------------------------------------------


def escaped(text: str) -> str:
    """Text that rustdoc's Markdown shows as it stands; what is between backticks is code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\[\]<>*])", r"\\\1", part) for part in parts[::2]]
    parts[::2] = [re.sub(r"(https?://[^\s)]+)", r"<\1>", part) for part in parts[::2]]
    return "`".join(parts)


def doc_lines(text: str, width: int = 94) -> str:
    lines: list[str] = []
    for paragraph in text.splitlines():
        if not paragraph.strip():
            lines.append("///")
            continue
        wrapped = textwrap.wrap(
            escaped(paragraph), width - 4, break_long_words=False, break_on_hyphens=False
        )
        # A line that begins as an item does would open a list.
        lines += ["/// " + re.sub(r"^([-+]|[0-9]+(?=[.)]))", r"\\\1", line) for line in wrapped]
    return "".join(line + "\n" for line in lines)


def documented(doc: str, fallback: str = "") -> str:
    text = doc or fallback
    if not text:
        return ""
    is_name = re.match(r"\w*[_(]", text)
    return doc_lines(text if is_name else text[:1].upper() + text[1:])


def function_doc(item: Function) -> str:
    text = documented(f"{item.brief} {item.doc}".strip())
    params = [param for param in item.params if param.doc]
    if params:
        text += "///\n"
        for param in params:
            lines = doc_lines(f"{param.name}: {param.doc}").splitlines()
            first = lines[0].removeprefix("/// ").removeprefix(f"{param.name}: ")
            text += f"/// - `{param.name}`: {first}\n"
            text += "".join(f"///   {line.removeprefix('/// ')}\n" for line in lines[1:])
    for title, content in (
        ("Ownership", item.ownership),
        ("Blocks", item.blocks),
        ("Threads", item.threads),
        ("Errors", item.errors),
    ):
        if content:
            text += "///\n" + doc_lines(f"{title}: {content}").replace(
                f"/// {title}: ", f"/// **{title}**: ", 1
            )
    return text


# ---- Declarations ------------------------------------------------------------------------------


def declare(item: Item) -> str:
    if isinstance(item, Constant):
        kind = "i32" if item.value < 0 else "u32"
        text = documented(item.doc, f"`{item.expression}` of the header.")
        return f"{text}pub const {item.name}: {kind} = {item.value};\n"
    if isinstance(item, Handle):
        return (
            documented(item.doc)
            + "#[repr(C)]\n#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]\n"
            + f"pub struct {item.name} {{\n    /// 0 is null.\n    pub id: u64,\n}}\n"
        )
    if isinstance(item, Opaque):
        return (
            documented(item.doc)
            + f"#[repr(C)]\n#[derive(Debug)]\npub struct {rust_name(item.name)} {{\n"
            + "    _data: [u8; 0],\n"
            + "    _marker: PhantomData<(*mut u8, PhantomPinned)>,\n}\n"
        )
    if isinstance(item, Enum):
        kind = rust_type(item.underlying)
        text = documented(item.doc) + f"pub type {item.name} = {kind};\n"
        for value in item.values:
            text += documented(value.doc, f"A value of {item.name}.")
            text += f"pub const {value.name}: {item.name} = {value.value};\n"
        return text
    if isinstance(item, Struct):
        return struct(item)
    if isinstance(item, Callback):
        result = returns(item.returns)
        pointer = f'unsafe extern "C" fn({parameters(item.params)}){result}'
        return documented(item.doc) + f"pub type {item.name} =\n    Option<{pointer}>;\n"
    raise TypeError(item)


def struct(item: Struct) -> str:
    fields = "".join(
        documented(field.doc, "See the struct.")
        + f"pub {identifier(field.name)}: {rust_type(field.type)},\n"
        for field in item.fields
    )
    text = documented(item.doc) + "#[repr(C)]\n#[derive(Clone, Copy, Debug)]\n"
    text += f"pub struct {item.name} {{\n{indent(fields)}}}\n"
    for init in [item.init, *item.inits] if item.init else item.inits:
        values = "".join(
            f"    {identifier(field.name)}: "
            f"{initial(item, field.type, init.values.get(field.name))},\n"
            for field in item.fields
        )
        text += f"\n/// Initial value of a [`{item.name}`].\n"
        text += f"pub const {init.macro}: {item.name} = {item.name} {{\n{values}}};\n"
    return text


def initial(item: Struct, spelling: str, value: Value) -> str:
    ctype = CType.parse(spelling)
    if value == "sizeof":
        return f"size_of::<{item.name}>() as {rust_type(spelling)}"
    if value is None:
        if ctype.array is not None:
            return f"[0; {ctype.array}]"
        if ctype.pointers:
            return "ptr::null()" if ctype.const else "ptr::null_mut()"
        if ctype.name.endswith("_fn"):
            return "None"
        return f"{ctype.name} {{ id: 0 }}"
    if isinstance(value, float):
        return repr(value)
    return str(value)


def returns(spelling: str) -> str:
    return "" if spelling == "void" else f" -> {rust_type(spelling)}"


def parameters(params: list[Param]) -> str:
    return ", ".join(f"{identifier(param.name)}: {rust_type(param.type)}" for param in params)


def function(item: Function) -> str:
    text = function_doc(item)
    if item.nodiscard:
        text += "#[must_use]\n"
    line = f"pub fn {item.name}({parameters(item.params)}){returns(item.returns)};"
    if len(line) > 94:
        inner = "".join(
            f"    {identifier(param.name)}: {rust_type(param.type)},\n" for param in item.params
        )
        line = f"pub fn {item.name}(\n{inner}){returns(item.returns)};"
    return text + line + "\n"


# ---- Layout ------------------------------------------------------------------------------------


class Layouts:
    """Sizes and offsets by C's rules, which the compiler has to agree with."""

    def __init__(self, items: list[Item]) -> None:
        self.of: dict[str, tuple[int, int]] = {name: (size, size) for name, size in SIZES.items()}
        self.offsets: dict[str, list[tuple[str, int]]] = {}
        for item in items:
            if isinstance(item, Handle):
                self.of[item.name] = (8, 8)
                self.offsets[item.name] = [("id", 0)]
            elif isinstance(item, Enum):
                self.of[item.name] = self.of[rust_type(item.underlying)]
            elif isinstance(item, Callback):
                self.of[item.name] = (POINTER, POINTER)
            elif isinstance(item, Struct):
                self.add(item)

    def add(self, item: Struct) -> None:
        end, widest, offsets = 0, 1, []
        for field in item.fields:
            ctype = CType.parse(field.type)
            size, align = (
                (POINTER, POINTER)
                if ctype.pointers
                else self.of[SCALARS.get(ctype.name, ctype.name)]
            )
            end = -(-end // align) * align
            offsets.append((identifier(field.name), end))
            end += size * (ctype.array or 1)
            widest = max(widest, align)
        self.of[item.name] = (-(-end // widest) * widest, widest)
        self.offsets[item.name] = offsets

    def assertions(self) -> str:
        lines = [
            f"const _: () = assert!(size_of::<{name}>() == {self.of[name][0]});"
            for name in self.offsets
        ]
        return "// Sizes on the data model that the library is built for.\n" + "".join(
            f'#[cfg(target_pointer_width = "64")]\n{line}\n' for line in lines
        )

    def tests(self) -> str:
        lines = [
            f"check!({name}, {', '.join(f'{field}: {offset}' for field, offset in offsets)});"
            for name, offsets in self.offsets.items()
        ]
        body = "\n".join(
            textwrap.fill(line, 92, subsequent_indent="    ", break_long_words=False)
            for line in lines
        )
        return TESTS.format(body=indent(body, " " * 8))


TESTS = """\
#[cfg(all(test, target_pointer_width = "64"))]
mod layout {{
    use super::*;
    use std::mem::MaybeUninit;
    use std::ptr::addr_of;

    // The offset of each field, from the compiler.
    macro_rules! check {{
        ($name:ident, $($field:ident: $offset:expr),*) => {{
            let value = MaybeUninit::<$name>::uninit();
            let begin = value.as_ptr();
            $(
                // SAFETY: only an address is taken; nothing is read.
                let at = unsafe {{ addr_of!((*begin).$field) }} as usize - begin as usize;
                assert_eq!(at, $offset, concat!(stringify!($name), ".", stringify!($field)));
            )*
        }};
    }}

    #[test]
    fn fields_lie_where_c_puts_them() {{
{body}
    }}
}}
"""

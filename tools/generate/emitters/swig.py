# SPDX-License-Identifier: Apache-2.0
"""The interface that SWIG reads.

Per function of the library a function that any language of SWIG can call: it returns what the C
function writes through its out parameter, throws meron_swig::failure where that returns an error,
takes the fields of an options struct as parameters, and memory with its size as one. What a
parameter is follows from its type, its role and its neighbours:

    error parameter                     an exception
    out parameter                       the returned value
    handle, uint64_t, size_t            int64_t (many languages have no unsigned 64-bit number)
    void * without a size               int64_t: an address, such as a stream's
    const char * with a size            const char *
    void *, float * with a size         writable_memory; const: readable_memory
    handles or integers with a count    int64_array, int32_array
    const options struct *              its fields; callbacks among them: callbacks *;
                                        a table of functions among them: an object of TABLES,
                                        but for those LEFT_OUT, which stay null
    structs with a count                a class of LISTS *, or
                                        <struct>_list *, with a method add; add_at takes the address
                                        of memory that no object of the language is for

Ownership decides who frees a returned string, `Blocks:` which calls give up a lock such as
Python's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from model import Api, CType, Function, Param, Struct

PATH = "bindings/swig/meron.i"
# The runtime alone deals with errors and with strings that the library handed out.
HIDDEN = ("meron_error_", "meron_string_free")
INTEGERS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t"}
WIDE = {"int64_t", "uint64_t", "size_t"}
# Fields that are not the caller's: set by the struct's initial value.
FIXED = {"struct_size"}
# Structs of functions, and the classes of the runtime whose methods those are.
TABLES = {"meron_transport": "custom_transport"}
# Structs that say their size and are taken by count, and the class of the runtime for each.
LISTS = {"meron_checkpoint_tensor": "checkpoint_tensors"}
# Structs that no language is given: a pool of the library's own takes the allocator's place.
LEFT_OUT = {"meron_allocator"}

TEMPLATE = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from capi/api.json by tools/generate/generate.py: do not edit.
%module(directors="1", threads="1") meron_swig

%{{
#include <meron/meron.h>

// Every function of the library, for the table that runtime.i fills when it loads it.
#define MERON_SWIG_FUNCTIONS(X) \\
{functions}
%}}

%include "runtime.i"

{enums}
// Values as a C++ compiler finds them in the headers.
{constants}
// ---- Structs, as they are returned; what only C can use is left out ----------------------------

%immutable;
%nodefaultctor;
{structs}
%clearnodefaultctor;
%mutable;

// ---- Lists of structs --------------------------------------------------------------------------

%inline %{{
namespace meron_swig {{
{lists}
}}  // namespace meron_swig
%}}

// ---- Functions ---------------------------------------------------------------------------------

{features}
%inline %{{
namespace meron_swig {{
{shims}
}}  // namespace meron_swig
%}}
"""


@dataclass
class Slot:
    """One parameter of a generated function, and what it gives to C."""

    declaration: str | None  # None: nothing that the caller passes
    values: dict[str, str]  # C parameter or field -> C++ expression


class Unsupported(Exception):
    """Something that no rule above covers."""


def emit(api: Api) -> dict[str, str]:
    return {PATH: Interface(api).text()}


class Interface:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.handles = {handle.name for handle in api.handles}
        self.enums = {enum.name for enum in api.enums}
        self.structs = {struct.name: struct for struct in api.structs}
        self.callbacks = {callback.name for callback in api.callbacks}
        self.opaques = {opaque.name for opaque in api.opaques}
        self.listed: dict[str, Struct] = {}  # taken by count
        self.returned: dict[str, Struct] = {}

    def text(self) -> str:
        shims, features = [], []
        for function in self.api.functions:
            if function.name.startswith(HIDDEN):
                continue
            try:
                shims.append(self.shim(function))
            except Unsupported as reason:
                shims.append(f"// {function.name} is not here: {reason}.\n")
                continue
            features += self.features(function)
        names = [function.name for function in self.api.functions]
        return TEMPLATE.format(
            functions=" \\\n".join(f"  X({name})" for name in names),
            enums="".join(f"typedef {enum.underlying} {enum.name};\n" for enum in self.api.enums),
            constants="".join(self.constants()),
            structs="\n".join(self.struct(item) for item in self.returned.values()),
            lists="\n".join(self.list_class(item) for item in self.listed.values()),
            features="\n".join(features),
            shims="\n".join(shims).rstrip("\n"),
        )

    def constants(self) -> Iterator[str]:
        for constant in self.api.constants:
            yield f"%constant int32_t {constant.name} = {constant.name};\n"
        for enum in self.api.enums:
            for value in enum.values:
                yield f"%constant int32_t {value.name} = {value.name};\n"
        for struct in self.api.structs:
            yield f"%constant int32_t SIZEOF_{struct.name} = sizeof({struct.name});\n"

    # ---- Structs -------------------------------------------------------------------------------

    def struct(self, struct: Struct) -> str:
        lines, accessors = [], []
        for field in struct.fields:
            ctype = CType.parse(field.type)
            plain = ctype.name in INTEGERS | self.enums | {"double"} and not ctype.pointers
            if ctype.array is not None:
                accessors.append(
                    f"  /** {field.name}[index]; 0 from {ctype.array} on. */\n"
                    f"  int64_t {field.name}_at(int32_t index) const {{\n"
                    f"    return index >= 0 && index < {ctype.array} ? "
                    f"$self->{field.name}[index] : 0;\n  }}\n"
                )
            elif plain or field.type == "const char *":
                doc = f" /**< {field.doc} */" if field.doc else ""
                lines.append(f"  {ctype.declare(field.name)};{doc}\n")
        text = f"/** {struct.doc} */\nstruct {struct.name} {{\n{''.join(lines)}}};\n"
        if accessors:
            text += f"%extend {struct.name} {{\n{''.join(accessors)}}}\n"
        return text

    def list_class(self, struct: Struct) -> str:
        fields = [(field.name, field.type) for field in struct.fields]
        add = self.adder("add", struct, list(self.slots(fields)))
        if any(CType.parse(spelling).name == "void" for _, spelling in fields):
            single = [
                self.single(name, CType.parse(spelling))
                for name, spelling in fields
                if not name.startswith("reserved_")
            ]
            add += self.adder("add_at", struct, single)
        name = f"{struct.name}_list"
        return (
            f"/** Values of {struct.name}. They point to memory that the caller keeps. */\n"
            f"class {name} {{\n public:\n{add}"
            f"#ifndef SWIG\n"
            f"  const ::{struct.name} *data() const {{ return items_.data(); }}\n"
            f"  size_t size() const {{ return items_.size(); }}\n"
            f"#endif\n"
            f" private:\n  std::vector< ::{struct.name}> items_;\n}};\n"
        )

    def adder(self, name: str, struct: Struct, slots: list[Slot]) -> str:
        values = {field: value for slot in slots for field, value in slot.values.items()}
        sets = "".join(f"    item.{field} = {value};\n" for field, value in values.items())
        return (
            f"  void {name}({declarations(slots)}) {{\n"
            f"    ::{struct.name} item = {{}};\n{sets}    items_.push_back(item);\n  }}\n"
        )

    # ---- Functions -----------------------------------------------------------------------------

    def shim(self, function: Function) -> str:
        before: list[str] = []
        out = next((item for item in function.params if is_returned(item)), None)
        items = [
            (item.name, item.type)
            for item in function.params
            if item.role != "error" and item is not out
        ]
        initial = self.initial_of(function)
        slots = [] if initial else list(self.slots(items, before.append))
        values = {name: value for slot in slots for name, value in slot.values.items()}

        if initial:
            self.returned[initial.name] = initial
            returns, body = f"::{initial.name}", f"  return initial(api().{function.name});\n"
        elif out is None:
            call = f"api().{function.name}({arguments(function, values)})"
            returns, body = self.plain(function, call)
        else:
            make, returns, result = self.result(CType.parse(out.type).name, out.type)
            values[out.name] = "&out"
            call = f"api().{function.name}({arguments(function, values)})"
            body = f"  {make}\n  error_slot error;\n  error.check({call});\n  return {result};\n"
        head = f"inline {returns}{'' if returns.endswith('*') else ' '}{function.name}"
        return f"{comment(function)}{head}({declarations(slots)}) {{\n{''.join(before)}{body}}}\n"

    def initial_of(self, function: Function) -> Struct | None:
        """The struct that a function such as meron_workload_init fills."""
        struct = self.structs.get(function.name.removesuffix("_init"))
        return struct if function.name.endswith("_init") else None

    def plain(self, function: Function, call: str) -> tuple[str, str]:
        """Return type and body of a function without an out parameter."""
        if any(item.role == "error" for item in function.params):
            return "int32_t", f"  error_slot error;\n  return error.check({call});\n"
        returned = CType.parse(function.returns)
        if function.returns == "const char *":
            return "const char *", f"  return {call};\n"
        if returned.pointers or returned.name not in INTEGERS:
            raise Unsupported(f"it returns {function.returns}")
        narrow = returned.name not in WIDE
        to = "int32_t" if narrow else "int64_t"
        return to, f"  return static_cast<{to}>({call});\n"

    def result(self, name: str, spelling: str) -> tuple[str, str, str]:
        """Of an out parameter: how it is made, the type that is returned, and its value."""
        if name in self.handles:
            return f"::{name} out = {{}};", "int64_t", "static_cast<int64_t>(out.id)"
        if spelling in ("char **", "const char **"):
            const = spelling.removesuffix("**")
            return f"{const}*out = nullptr;", f"{const}*", "out"
        if name in self.structs:
            struct = self.structs[name]
            self.returned[name] = struct
            size = " out.struct_size = sizeof out;" if struct.sized else ""
            return f"::{name} out = {{}};{size}", f"::{name}", "out"
        if name in self.opaques:
            return f"{name} *out = nullptr;", "int64_t", "reinterpret_cast<int64_t>(out)"
        if name in INTEGERS:
            to = "int64_t" if name in WIDE else "int32_t"
            return f"{name} out = 0;", to, f"static_cast<{to}>(out)"
        raise Unsupported(f"its out parameter is {spelling}")

    def features(self, function: Function) -> list[str]:
        lines = []
        if "meron_string_free" in function.ownership:
            lines.append(f"%newobject meron_swig::{function.name};")
        if function.may_block:
            lines.append(f'%feature("nothread", "0") meron_swig::{function.name};')
        return lines

    # ---- Parameters and fields -----------------------------------------------------------------

    def slots(
        self,
        items: list[tuple[str, str]],
        before: Callable[[str], None] | None = None,
        nested: bool = False,
    ) -> Iterator[Slot]:
        """Takes parameters, or fields, as slots. `before` receives statements that must run before
        the call; without it nothing that needs some is accepted."""
        types = [(name, CType.parse(spelling)) for name, spelling in items]
        dtype = next((name for name, ctype in types if ctype.name == "meron_dtype"), None)
        at = 0
        while at < len(types):
            name, ctype = types[at]
            follower = types[at + 1] if at + 1 < len(types) else None
            count = follower[0] if follower and is_count(follower[1]) else ""
            if ctype.name == "char" and not is_length(count):
                count = ""
            if count and ctype.pointers == 1 and ctype.name in LISTS:
                yield self.list_slot(name, LISTS[ctype.name], count)
                at += 2
                continue
            if count and ctype.pointers and not self.sized(ctype):
                yield self.sized_slot(name, ctype, count, dtype)
                at += 2
                continue
            at += 1
            if name in FIXED or name.startswith("reserved_") or name.endswith("_user"):
                continue
            if ctype.name in self.callbacks:
                # All of them are methods of one object, which is asked for once.
                if before and self.first_callback(types) == name:
                    yield Slot("callbacks *hooks", {"": "hooks"})
                continue
            if ctype.name in LEFT_OUT:
                continue
            if ctype.pointers == 1 and ctype.const and ctype.name in self.structs and before:
                if nested:
                    yield self.table(name, ctype)
                else:
                    yield from self.options(name, self.structs[ctype.name], before)
                continue
            yield self.single(name, ctype)

    def table(self, name: str, ctype: CType) -> Slot:
        """A table of functions within options: an object that connects itself to them."""
        if ctype.name not in TABLES:
            raise Unsupported(f"{name} is {ctype.declare('')}")
        return Slot(f"{TABLES[ctype.name]} *{name}", {"": name})

    def list_slot(self, name: str, kind: str, count: str) -> Slot:
        data, size = f"{name} ? {name}->data() : nullptr", f"{name} ? {name}->size() : 0"
        return Slot(f"const {kind} *{name}", {name: data, count: size})

    def sized(self, ctype: CType) -> bool:
        """Whether this is a struct that comes alone, never as one of many."""
        return ctype.name in self.structs and self.structs[ctype.name].sized

    def first_callback(self, types: list[tuple[str, CType]]) -> str:
        return next(name for name, ctype in types if ctype.name in self.callbacks)

    def sized_slot(self, name: str, ctype: CType, count: str, dtype: str | None) -> Slot:
        """A pointer that its size follows."""
        const, pointers = ctype.const, ctype.pointers
        if pointers != 1:
            raise Unsupported(f"{name} is a pointer to pointers")
        if ctype.name == "char" and const:
            return Slot(f"const char *{name}", {name: name, count: f"length_of({name})"})
        if ctype.name in ("void", "float"):
            kind = "readable_memory" if const else "writable_memory"
            data, of = f"{name}.data", dtype
            if ctype.name == "float":
                data, of = f"static_cast<{ctype.declare('')}>({name}.data)", "MERON_F32"
            size = f"{name}.bytes" if count == "bytes" else f"elements({name}.bytes, {of})"
            return Slot(f"{kind} {name}", {name: data, count: size})
        if ctype.name in self.structs and const:
            self.listed[ctype.name] = self.structs[ctype.name]
            return self.list_slot(name, f"{ctype.name}_list", count)
        if ctype.name in self.handles and const:
            items = f"reinterpret_cast<const ::{ctype.name} *>({name}.items)"
            return Slot(f"int64_array {name}", {name: items, count: f"{name}.count"})
        if ctype.name in ("int32_t", "int64_t") and const:
            kind = ctype.name.replace("_t", "_array")
            return Slot(f"{kind} {name}", {name: f"{name}.items", count: f"{name}.count"})
        raise Unsupported(f"{name} is {ctype.declare('')}")

    def options(self, name: str, struct: Struct, before: Callable[[str], None]) -> Iterator[Slot]:
        """An options struct as its fields, over its initial value."""
        if struct.init is None:
            raise Unsupported(f"{struct.name} has no initial value")
        before(f"  ::{struct.name} {name} = initial(api().{struct.name}_init);\n")
        fields = [(field.name, field.type) for field in struct.fields]
        for slot in self.slots(fields, before, nested=True):
            for field, value in slot.values.items():
                if field:
                    before(f"  {name}.{field} = {value};\n")
                else:
                    before(f"  if ({value}) {value}->connect({name});\n")
            yield Slot(slot.declaration, {})
        yield Slot(None, {name: f"&{name}"})

    def single(self, name: str, ctype: CType) -> Slot:
        if ctype.name in self.handles and not ctype.pointers:
            value = f"::{ctype.name}{{static_cast<uint64_t>({name})}}"
            return Slot(f"int64_t {name}", {name: value})
        if ctype.name in INTEGERS | self.enums and not ctype.pointers:
            to = "int64_t" if ctype.name in WIDE else "int32_t"
            return Slot(f"{to} {name}", {name: f"static_cast<{ctype.name}>({name})"})
        if ctype.name == "double" and not ctype.pointers:
            return Slot(f"double {name}", {name: name})
        if ctype.name == "char" and ctype.const and ctype.pointers == 1:
            return Slot(f"const char *{name}", {name: name})
        if ctype.name == "void" and ctype.pointers == 1:
            pointer = ctype.declare("").strip()
            return Slot(f"int64_t {name}", {name: f"reinterpret_cast<{pointer}>({name})"})
        raise Unsupported(f"{name} is {ctype.declare('')}")


def is_returned(item: Param) -> bool:
    """Whether a function writes one value there; elements go into memory of the caller's."""
    return item.role == "out" and CType.parse(item.type).name != "float"


def is_count(ctype: CType) -> bool:
    return ctype.name in {"size_t", "uint64_t", "uint32_t"} and not ctype.pointers


def is_length(name: str) -> bool:
    """Whether a number behind a text is the text's length."""
    return name == "bytes" or name.endswith("_bytes")


def declarations(slots: list[Slot]) -> str:
    return ", ".join(slot.declaration for slot in slots if slot.declaration)


def arguments(function: Function, values: dict[str, str]) -> str:
    return ", ".join(
        "error" if item.role == "error" else values[item.name] for item in function.params
    )


def comment(function: Function) -> str:
    """What the headers say, for the documentation that SWIG writes (-doxygen)."""
    parts = [
        function.brief,
        function.doc,
        f"Ownership: {function.ownership}" if function.ownership else "",
        f"Blocks: {function.blocks} Threads: {function.threads} Errors: {function.errors}",
    ]
    text = " ".join(part for part in parts if part).replace("*/", "* /").replace("@", "@@")
    lines = textwrap.wrap(text, 97, break_long_words=False, break_on_hyphens=False)
    return "/**\n" + "".join(f" * {line}\n" for line in lines) + " */\n"

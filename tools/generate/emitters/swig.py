# SPDX-License-Identifier: Apache-2.0
"""The interface that SWIG reads.

Per function of the library a function that any language of SWIG can call: it returns the C
function's out parameter, throws meron_swig::failure for an error, takes the fields of an options
struct as parameters, and memory with its size as one. `swig_parameters.py` converts the parameters.

Ownership determines the owner of a returned string, and `Blocks:` the calls that release a lock
such as Python's.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from model import Api, CType, Function, Param, Struct
from swig_parameters import INTEGERS, WIDE, Parameters, Slot, Unsupported

PATH = "bindings/swig/meron.i"
# Only the runtime handles errors and strings that the library returned.
HIDDEN = ("meron_error_", "meron_string_free")
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


def emit(api: Api) -> dict[str, str]:
    return {PATH: Interface(api).text()}


class Interface:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.parameters = Parameters(api)
        self.opaques = {opaque.name for opaque in api.opaques}
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
            lists="\n".join(self.list_class(item) for item in self.parameters.listed.values()),
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
            plain = (
                ctype.name in INTEGERS | self.parameters.enums | {"double"} and not ctype.pointers
            )
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
        add = self.adder("add", struct, list(self.parameters.slots(fields)))
        if any(CType.parse(spelling).name == "void" for _, spelling in fields):
            single = [
                self.parameters.single(name, CType.parse(spelling))
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
        if initial:
            items = items[2:]  # what follows the struct and its size
        slots = list(self.parameters.slots(items, before.append))
        values = {name: value for slot in slots for name, value in slot.values.items()}

        if initial:
            self.returned[initial.name] = initial
            given = "".join(f", {values[name]}" for name, _ in items)
            returns = f"::{initial.name}"
            body = f"  return initial(api().{function.name}{given});\n"
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
        if not function.name.endswith("_init"):
            return None
        return self.parameters.structs.get(CType.parse(function.params[0].type).name)

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
        if name in self.parameters.handles:
            return f"::{name} out = {{}};", "int64_t", "static_cast<int64_t>(out.id)"
        if spelling in ("char **", "const char **"):
            const = spelling.removesuffix("**")
            return f"{const}*out = nullptr;", f"{const}*", "out"
        if name in self.parameters.structs:
            struct = self.parameters.structs[name]
            self.returned[name] = struct
            size = " out.struct_size = sizeof out;" if struct.sized else ""
            return f"::{name} out = {{}};{size}", f"::{name}", "out"
        if name in self.opaques:
            return f"{name} *out = nullptr;", "int64_t", "reinterpret_cast<int64_t>(out)"
        if name in INTEGERS:
            to = "int64_t" if name in WIDE else "int32_t"
            return f"{name} out = 0;", to, f"static_cast<{to}>(out)"
        if name == "double":
            return "double out = 0;", "double", "out"
        raise Unsupported(f"its out parameter is {spelling}")

    def features(self, function: Function) -> list[str]:
        lines = []
        if "meron_string_free" in function.ownership:
            lines.append(f"%newobject meron_swig::{function.name};")
        if function.may_block:
            lines.append(f'%feature("nothread", "0") meron_swig::{function.name};')
        return lines


def is_returned(item: Param) -> bool:
    """True if a function writes one value there; elements go into the caller's memory."""
    return item.role == "out" and CType.parse(item.type).name != "float"


def declarations(slots: list[Slot]) -> str:
    return ", ".join(slot.declaration for slot in slots if slot.declaration)


def arguments(function: Function, values: dict[str, str]) -> str:
    return ", ".join(
        "error" if item.role == "error" else values[item.name] for item in function.params
    )


def comment(function: Function) -> str:
    """The headers' text, for the documentation that SWIG writes (-doxygen)."""
    parts = [
        function.brief,
        function.doc,
        f"Ownership: {function.ownership}" if function.ownership else "",
        f"Blocks: {function.blocks} Threads: {function.threads} Errors: {function.errors}",
    ]
    text = " ".join(part for part in parts if part).replace("*/", "* /").replace("@", "@@")
    lines = textwrap.wrap(text, 97, break_long_words=False, break_on_hyphens=False)
    return "/**\n" + "".join(f" * {line}\n" for line in lines) + " */\n"

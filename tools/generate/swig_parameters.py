# SPDX-License-Identifier: Apache-2.0
"""Converts parameters and fields of C to those of the functions that SWIG reads.

That follows from its type, its role and its neighbours:

    error parameter                     an exception
    out parameter                       the returned value
    handle                              int64_t
    uint64_t, size_t                    int64_t (many languages have no unsigned 64-bit number); one
                                        below 0 is refused by its name
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
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from model import Api, CType, Struct

INTEGERS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t"}
WIDE = {"int64_t", "uint64_t", "size_t"}
UNSIGNED = {"uint32_t", "uint64_t", "size_t"}
# Fields that are not the caller's: set by the struct's initial value.
FIXED = {"struct_size", "initialized"}
# Structs of functions, and the classes of the runtime whose methods those are.
TABLES = {"meron_transport": "custom_transport"}
# Structs that say their size and are taken by count, and the class of the runtime for each.
LISTS = {"meron_checkpoint_tensor": "checkpoint_tensors"}
# Structs that no language is given: a pool of the library's own takes the allocator's place.
LEFT_OUT = {"meron_allocator"}


@dataclass
class Slot:
    """One parameter of a generated function, and what it gives to C."""

    declaration: str | None  # None: nothing that the caller passes
    values: dict[str, str]  # C parameter or field -> C++ expression


class Unsupported(Exception):
    """Something that no rule above covers."""


class Parameters:
    """Takes parameters, and fields, of C as slots."""

    def __init__(self, api: Api) -> None:
        self.handles = {handle.name for handle in api.handles}
        self.enums = {enum.name for enum in api.enums}
        self.structs = {struct.name: struct for struct in api.structs}
        self.callbacks = {callback.name for callback in api.callbacks}
        self.functions = {function.name for function in api.functions}
        self.listed: dict[str, Struct] = {}  # taken by count

    def slots(
        self,
        items: list[tuple[str, str]],
        before: Callable[[str], None] | None = None,
        nested: str = "",
    ) -> Iterator[Slot]:
        """Converts parameters, or fields, to slots. `before` receives statements that must run
        before the call; without it, types that need such statements are rejected. `nested`: the
        options struct whose fields these are; it has its initial value."""
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
                # All of them are methods of one object, which is one argument.
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
            yield self.single(name, ctype, f"{nested}.{name}" if nested else "")

    def table(self, name: str, ctype: CType) -> Slot:
        """A table of functions within options: an object that connects itself to them."""
        if ctype.name not in TABLES:
            raise Unsupported(f"{name} is {ctype.declare('')}")
        return Slot(f"{TABLES[ctype.name]} *{name}", {"": name})

    def list_slot(self, name: str, kind: str, count: str) -> Slot:
        data, size = f"{name} ? {name}->data() : nullptr", f"{name} ? {name}->size() : 0"
        return Slot(f"const {kind} *{name}", {name: data, count: size})

    def sized(self, ctype: CType) -> bool:
        """True if this is a struct that is passed alone, never as one of many."""
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
        init = f"{struct.name}_init"
        initial = f"initial(api().{init})" if init in self.functions else struct.init.macro
        before(f"  ::{struct.name} {name} = {initial};\n")
        fields = [(field.name, field.type) for field in struct.fields]
        for slot in self.slots(fields, before, nested=name):
            for field, value in slot.values.items():
                if field:
                    before(f"  {name}.{field} = {value};\n")
                else:
                    before(f"  if ({value}) {value}->connect({name});\n")
            yield Slot(slot.declaration, {})
        yield Slot(None, {name: f"&{name}"})

    def single(self, name: str, ctype: CType, initial: str = "") -> Slot:
        if ctype.name in self.handles and not ctype.pointers:
            value = f"::{ctype.name}{{static_cast<uint64_t>({name})}}"
            return Slot(f"int64_t {name}", {name: value})
        if ctype.name in INTEGERS | self.enums and not ctype.pointers:
            to = "int64_t" if ctype.name in WIDE else "int32_t"
            value = f"static_cast<{ctype.name}>({name})"
            if ctype.name in UNSIGNED:
                given = f'{name}, "{name}"' + (f", {initial}" if initial else "")
                value = f"unsigned_of<{ctype.name}>({given})"
            return Slot(f"{to} {name}", {name: value})
        if ctype.name == "double" and not ctype.pointers:
            return Slot(f"double {name}", {name: name})
        if ctype.name == "char" and ctype.const and ctype.pointers == 1:
            return Slot(f"const char *{name}", {name: name})
        if ctype.name == "void" and ctype.pointers == 1:
            pointer = ctype.declare("").strip()
            return Slot(f"int64_t {name}", {name: f"reinterpret_cast<{pointer}>({name})"})
        raise Unsupported(f"{name} is {ctype.declare('')}")


def is_count(ctype: CType) -> bool:
    return ctype.name in {"size_t", "uint64_t", "uint32_t"} and not ctype.pointers


def is_length(name: str) -> bool:
    """True if a number after a text is the text's length."""
    return name == "bytes" or name.endswith("_bytes")

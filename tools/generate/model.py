# SPDX-License-Identifier: Apache-2.0
"""The declarations of the public headers as data: the content of capi/api.json.

Types are C spellings in one canonical form ("const meron_unit *", "int64_t[16]"); `CType` takes
them apart for emitters of other languages.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from typing import Any

Value = int | float | str | None


@dataclass(frozen=True)
class CType:
    """A type in parts: `const char **` is name "char", const, two pointers deep."""

    name: str
    const: bool
    pointers: int
    array: int | None

    SPELLING = re.compile(r"(const )?((?:struct )?\w+)(?: (\*+))?(?:\[(\d+)\])?")

    @staticmethod
    def parse(spelling: str) -> CType:
        match = CType.SPELLING.fullmatch(spelling)
        if not match:
            raise ValueError(f"not a type in the form that api.json uses: {spelling!r}")
        const, name, stars, array = match.groups()
        return CType(name, bool(const), len(stars or ""), int(array) if array else None)

    def declare(self, name: str) -> str:
        """The C declaration of a variable of this type."""
        text = f"{'const ' if self.const else ''}{self.name} {'*' * self.pointers}{name}"
        return text if self.array is None else f"{text}[{self.array}]"


@dataclass
class Header:
    name: str
    summary: str
    text: str


@dataclass
class Constant:
    name: str
    header: str
    doc: str
    expression: str
    value: int


@dataclass
class Handle:
    """A value type `struct { uint64_t id; }`."""

    name: str
    header: str
    doc: str


@dataclass
class Opaque:
    """A type that is only ever seen through a pointer."""

    name: str
    header: str
    doc: str


# Enums whose constants are written so often that they have no word of the enum's name.
SHORT_ENUMS = ("meron_status", "meron_dtype")
# Last words of an enum's name that its constants leave out.
LEFT_OUT_WORDS = ("kind", "level", "mode")


@dataclass
class Enumerator:
    name: str
    value: int
    doc: str


@dataclass
class Enum:
    name: str
    header: str
    doc: str
    underlying: str
    values: list[Enumerator]

    @property
    def prefix(self) -> str:
        """The first words of the constants' names: MERON_REDUCE_OP_ of meron_reduce_op."""
        if self.name in SHORT_ENUMS:
            return "MERON_"
        *words, last = self.name.split("_")
        return "_".join(words if last in LEFT_OUT_WORDS else (*words, last)).upper() + "_"


@dataclass
class Field:
    name: str
    type: str
    doc: str


@dataclass
class Initializer:
    """Content of an INIT macro: per field its value; "sizeof" is the struct's size, a name
    for an enumerator or a constant, null for a null pointer, a null handle or an array of
    zeros."""

    macro: str
    values: dict[str, Value]


@dataclass
class Struct:
    name: str
    header: str
    doc: str
    fields: list[Field]
    init: Initializer | None = None
    inits: list[Initializer] = field(default_factory=list)  # of macros with another name

    @property
    def sized(self) -> bool:
        """True if it may grow: its first field is its own size, set by the caller."""
        return self.fields[0].name == "struct_size"


@dataclass
class Param:
    name: str
    type: str
    role: str  # "in", "out" (written by the call), "error" (the optional meron_error **)
    doc: str = ""
    nullable: bool = False  # whether a null pointer has a meaning
    memory: str = ""  # of a pointer to tensor data, or a view of it: the space it must lie in


@dataclass
class Callback:
    name: str
    header: str
    doc: str
    returns: str
    params: list[Param]


@dataclass
class Function:
    name: str
    header: str
    returns: str
    nodiscard: bool
    params: list[Param]
    brief: str
    doc: str  # what follows the brief sentence
    ownership: str
    blocks: str
    may_block: bool  # whether the call can wait: for peers, or for other threads
    threads: str
    errors: str
    error_codes: list[str]  # of `errors`, with "as meron_..." and "-3xx" resolved
    since: str = ""  # the version that has it first
    # A plain call's name as a method, by language; without those that have it by hand (plain.py).
    method: dict[str, str] = field(default_factory=dict)
    callback: bool = False  # whether callbacks may call it


@dataclass
class ErrorKind:
    """A status below 0, as languages that have exceptions or kinds of errors call it."""

    status: str  # "MERON_E_NO_MEMORY"
    code: int
    doc: str
    kind: str  # "NoMemory"
    python: str  # the exception's class
    base: str  # the exception of Python that it is too, or ""


@dataclass
class EnumTypeValue:
    of: str  # "MERON_IO_BACKEND_URING"
    name: str  # "io_uring", which each language spells its own way
    doc: str


@dataclass
class EnumType:
    """An enum as a type of each language that it is generated for."""

    of: str  # "meron_io_backend"
    doc: str
    names: dict[str, str]  # of the type, by language
    values: list[EnumTypeValue]
    default: str  # of these the default, or ""
    open: bool  # whether the library may give values that a program does not know


@dataclass
class ValueField:
    name: str
    of: str  # the struct's field
    kind: str  # "number", "flag", "enum", "duration", "stream"
    type: str  # in C
    default: Value
    doc: str


@dataclass
class ValueType:
    """A struct, or an update rule, as a type of each language that it is generated for."""

    names: dict[str, str]  # of the type, by language
    of: str  # "meron_io_options"
    doc: str
    options: bool  # whether the caller fills it; else the library does
    fields: list[ValueField]
    rule: str  # of an update rule its "MERON_OPTIMIZER_ADAMW", else ""
    grows: list[str] = field(default_factory=list)  # fields that count, and never fall


@dataclass
class Api:
    version: str
    headers: list[Header] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    opaques: list[Opaque] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    structs: list[Struct] = field(default_factory=list)
    callbacks: list[Callback] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    errors: list[ErrorKind] = field(default_factory=list)
    enum_types: list[EnumType] = field(default_factory=list)
    value_types: list[ValueType] = field(default_factory=list)
    # Names of everything above (and of no header) in the order of declaration: a type is
    # before its first use.
    order: list[str] = field(default_factory=list)

    def named(self) -> dict[str, Constant | Handle | Opaque | Enum | Struct | Callback | Function]:
        """Every declared thing by its name."""
        return {
            item.name: item
            for items in (
                self.constants,
                self.handles,
                self.opaques,
                self.enums,
                self.structs,
                self.callbacks,
                self.functions,
            )
            for item in items
        }

    def to_json(self) -> str:
        """One line per item of each list, keys in the order of the fields."""
        parts = []
        for key, value in dataclasses.asdict(self).items():
            head = f"{line_of(key)}: "
            if isinstance(value, list):
                parts.append(head + "[\n" + ",\n".join(map(line_of, value)) + "\n]")
            else:
                parts.append(head + line_of(value))
        return "{\n" + ",\n".join(parts) + "\n}\n"

    @staticmethod
    def from_json(text: str) -> Api:
        return Api(**{key: build(key, value) for key, value in json.loads(text).items()})


def line_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


ELEMENT_TYPES: dict[str, Any] = {
    "headers": Header,
    "constants": Constant,
    "handles": Handle,
    "opaques": Opaque,
    "enums": lambda **data: Enum(
        **data | {"values": [Enumerator(**value) for value in data["values"]]}
    ),
    "structs": lambda **data: Struct(
        **data
        | {
            "fields": [Field(**item) for item in data["fields"]],
            "init": Initializer(**data["init"]) if data["init"] else None,
            "inits": [Initializer(**item) for item in data["inits"]],
        }
    ),
    "callbacks": lambda **data: Callback(
        **data | {"params": [Param(**param) for param in data["params"]]}
    ),
    "functions": lambda **data: Function(
        **data | {"params": [Param(**param) for param in data["params"]]}
    ),
    "errors": ErrorKind,
    "enum_types": lambda **data: EnumType(
        **data | {"values": [EnumTypeValue(**value) for value in data["values"]]}
    ),
    "value_types": lambda **data: ValueType(
        **data | {"fields": [ValueField(**item) for item in data["fields"]]}
    ),
}


def build(key: str, value: Any) -> Any:
    if key not in ELEMENT_TYPES:
        return value
    return [ELEMENT_TYPES[key](**element) for element in value]

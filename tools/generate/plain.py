# SPDX-License-Identifier: Apache-2.0
"""Plain calls: functions that are a method of their handle in every language, without more.

A function is plain if it takes a handle, then numbers, texts and enums, then perhaps an options
struct, and returns nothing, a number, a text or a future. capi/annotations.json says `method` for
those that the generator emits. One that returns a future and has a name that ends in `_begin` has a
twin without that, which begins and waits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from model import Api, CType, EnumType, Function, ValueField, ValueType

LANGUAGES = ("python", "cpp", "rust", "julia", "java")
NUMBERS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t", "double"}
TEXT = "text"
ENUM = "enum"
OPTIONS = "options"
FUTURE = "future"
# The handles that are one class in every language; a gather, for one, is several in Rust.
NOUNS = (
    "context", "plan", "group", "param", "unit", "optimizer", "checkpoint", "schedule", "io",
)  # fmt: skip
# Those of no context: what they begin is no future of a context.
ALONE = ("plan", "checkpoint", "io")


class NotPlain(Exception):
    """Why a function cannot be emitted as a method."""


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str  # of NUMBERS, TEXT, ENUM or OPTIONS
    nullable: bool
    doc: str
    struct: ValueType | None = None  # of OPTIONS
    enum: EnumType | None = None  # of ENUM


@dataclass(frozen=True)
class Method:
    function: Function
    noun: str  # "schedule" of meron_schedule
    arguments: tuple[Argument, ...]
    result: str  # of NUMBERS, TEXT, FUTURE, or "" for nothing
    owned: bool  # whether a resulting text is the caller's to free

    def name(self, language: str) -> str:
        return self.function.method[language]

    def twin(self, language: str) -> str:
        """The name of the method that begins and waits, or "" if there is none."""
        name = self.name(language)
        short = re.sub(r"(_begin|Begin)\b", "", name)
        return short if self.result == FUTURE and short != name else ""

    @property
    def given(self) -> tuple[Argument, ...]:
        """The arguments without options."""
        return tuple(item for item in self.arguments if item.kind != OPTIONS)

    @property
    def options(self) -> ValueType | None:
        return next((item.struct for item in self.arguments if item.struct), None)


def methods(api: Api, language: str) -> dict[str, list[Method]]:
    """The methods of a language, by noun; of some nouns there are none."""
    found: dict[str, list[Method]] = {noun: [] for noun in NOUNS}
    for function in api.functions:
        if language in function.method:
            method = method_of(function, api)
            found[method.noun].append(method)
    return found


def method_of(function: Function, api: Api) -> Method:
    if function.returns != "meron_status":
        raise NotPlain(f"it returns {function.returns}")
    handles = {handle.name for handle in api.handles}
    structs = {value.of: value for value in api.value_types if value.options and not value.rule}
    enums = {enum.of: enum for enum in api.enum_types}
    noun, result, owned = "", "", False
    arguments: list[Argument] = []
    for param in function.params:
        kind = CType.parse(param.type)
        if param.role == "error":
            continue
        if any(item.kind == OPTIONS for item in arguments):
            raise NotPlain(f"{param.name} comes after the options")
        if param.role == "out":
            result, owned = result_of(param.type)
        elif kind.name in handles and not kind.pointers and not noun:
            noun = kind.name.removeprefix("meron_")
        elif kind.name in NUMBERS and not kind.pointers and noun:
            if param.name.endswith("bytes") and arguments and arguments[-1].kind == TEXT:
                raise NotPlain(f"{param.name} is the length of a text")
            arguments.append(Argument(param.name, kind.name, False, param.doc))
        elif param.type == "const char *" and noun:
            arguments.append(Argument(param.name, TEXT, param.nullable, param.doc))
        elif kind.name in enums and not kind.pointers and noun:
            enum = enums[kind.name]
            arguments.append(Argument(param.name, ENUM, False, param.doc, enum=enum))
        elif kind.name in structs and kind.const and kind.pointers == 1 and noun:
            struct = structs[kind.name]
            arguments.append(Argument(param.name, OPTIONS, param.nullable, param.doc, struct))
        else:
            raise NotPlain(f"{param.name} is {param.type}")
    if noun not in NOUNS:
        raise NotPlain(f"it takes no handle of {', '.join(NOUNS)}")
    if result == FUTURE and noun in ALONE:
        raise NotPlain(f"it hands out a future, and a {noun} is of no context")
    return Method(function, noun, tuple(arguments), result, owned)


def result_of(spelling: str) -> tuple[str, bool]:
    kind = CType.parse(spelling)
    if kind.name in NUMBERS and kind.pointers == 1 and not kind.const:
        return kind.name, False
    if spelling in ("char **", "const char **"):
        return TEXT, spelling == "char **"
    if spelling == "meron_future *":
        return FUTURE, True
    raise NotPlain(f"it hands out {spelling}")


def names_of(function: Function, api: Api, given: dict[str, str | None]) -> dict[str, str]:
    """The method's name in each language that has it generated.

    `given`: names that are not the function's own; null for languages that have it by hand.
    """
    method = method_of(function, api)
    own = function.name.removeprefix("meron_").removeprefix(f"{method.noun}_")
    names = {language: given.get(language, spelled(own, language)) for language in LANGUAGES}
    found = {language: name for language, name in names.items() if name}
    for language in found:
        for item in method.arguments:
            require_types(api, item, language)
    return found


def require_types(api: Api, item: Argument, language: str) -> None:
    """Raises NotPlain if a language has no type for an enum, or for an options struct."""
    enums = [item.enum] if item.enum else []
    if item.struct:
        if language in ("cpp", "rust", "java") and language not in item.struct.names:
            raise NotPlain(f"{item.struct.of} has no type for {language}: name one under `options`")
        enums = [enum_of(api, field) for field in item.struct.fields if field.kind == "enum"]
    for enum in enums:
        if language != "julia" and language not in enum.names:
            raise NotPlain(f"{enum.of} has no type for {language}: name one under `enums`")


def enum_of(api: Api, field: ValueField) -> EnumType:
    """The enum that a field is of."""
    for enum in api.enum_types:
        if enum.of == field.type:
            return enum
    raise NotPlain(f"{field.type} has no types: name them under `enums`")


def spelled(name: str, language: str) -> str:
    return camel(name) if language == "java" else name


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def class_name(noun: str) -> str:
    return noun.capitalize()


class Prose:
    """The headers' text, in the terms of a language."""

    def __init__(self, api: Api, language: str) -> None:
        self.api = api
        self.language = language
        self.words = {
            "NULL": {"python": "None", "rust": "None", "julia": "nothing"}.get(language, "null")
        }
        for error in api.errors:
            self.words[error.status] = {
                "python": error.python,
                "rust": f"`ErrorKind::{error.kind}`",
                "java": error.status.removeprefix("MERON_E_"),
                "julia": f"`{error.status}`",
            }.get(language, error.status)
        for function in api.functions:
            if language in function.method:
                self.words[function.name] = f"`{function.method[language]}`"

    def text(self, text: str) -> str:
        """A text with the language's names of errors, functions and null."""
        return re.sub(r"\b\w+\b", lambda word: self.words.get(word.group(), word.group()), text)

    def paragraphs(self, method: Method) -> list[str]:
        """Of a method: brief and text; each argument; waits; errors, without their verb."""
        function = method.function
        lines = [f"{function.brief} {function.doc}".strip()]
        lines += [f"`{name}`: {doc.rstrip('.')}." for name, doc in self.arguments(method) if doc]
        blocks = f"blocks {function.blocks}"
        lines.append(sentence(re.sub(r"^blocks never\b", "never blocks", blocks)))
        return [self.text(line) for line in lines]

    def arguments(self, method: Method) -> list[tuple[str, str]]:
        """The parameters of a method, each with its text in the headers."""
        said = [(item.name, item.doc) for item in method.given]
        for item in method.arguments:
            if item.struct and self.language in ("python", "julia"):
                said += [(field.name, field.doc) for field in item.struct.fields]
            elif item.struct:  # never null here
                said.append((item.name, re.sub(r"[^.;]*\bNULL\b[^.;]*[.;]?", "", item.doc).strip()))
        return said

    def errors(self, method: Method) -> str:
        """The errors of a method, as a list in words."""
        return self.errors_of(method.function)

    def errors_of(self, function: Function) -> str:
        said = function.errors
        if re.search(r"as meron_|-\dxx", said):
            said = ", ".join(function.error_codes)
        return self.text(said.rstrip("."))


def sentence(text: str) -> str:
    """With a capital, unless it begins with a name, and a full stop."""
    is_name = re.match(r"\w*[_(\d]", text)
    return (text if is_name else text[:1].upper() + text[1:]).rstrip(".") + "."

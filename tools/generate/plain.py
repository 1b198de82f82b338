# SPDX-License-Identifier: Apache-2.0
"""Plain calls: functions that are a method of their handle in every language, without more.

A function is plain if it takes a handle, then numbers and texts, and returns nothing, a number or a
text. capi/annotations.json says `method` for those that the generator emits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from model import Api, CType, Function

LANGUAGES = ("python", "cpp", "rust", "julia", "java")
NUMBERS = {"int32_t", "int64_t", "uint32_t", "uint64_t", "size_t", "double"}
TEXT = "text"
# The handles that are one class in every language; a gather, for one, is several in Rust.
NOUNS = (
    "context", "plan", "group", "param", "unit", "optimizer", "checkpoint", "schedule", "io",
)  # fmt: skip


class NotPlain(Exception):
    """Why a function cannot be emitted as a method."""


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str  # of NUMBERS, or TEXT
    nullable: bool
    doc: str


@dataclass(frozen=True)
class Method:
    function: Function
    noun: str  # "schedule" of meron_schedule
    arguments: tuple[Argument, ...]
    result: str  # of NUMBERS, TEXT, or "" for nothing
    owned: bool  # whether a resulting text is the caller's to free

    def name(self, language: str) -> str:
        return self.function.method[language]


def methods(api: Api, language: str) -> dict[str, list[Method]]:
    """The methods of a language, by noun; of some nouns there are none."""
    handles = {handle.name for handle in api.handles}
    found: dict[str, list[Method]] = {noun: [] for noun in NOUNS}
    for function in api.functions:
        if language in function.method:
            method = method_of(function, handles)
            found[method.noun].append(method)
    return found


def method_of(function: Function, handles: set[str]) -> Method:
    if function.returns != "meron_status":
        raise NotPlain(f"it returns {function.returns}")
    noun, result, owned = "", "", False
    arguments = []
    for param in function.params:
        kind = CType.parse(param.type)
        if param.role == "error":
            continue
        if param.role == "out":
            result, owned = result_of(param.type)
        elif kind.name in handles and not kind.pointers and not noun:
            noun = kind.name.removeprefix("meron_")
        elif kind.name in NUMBERS and not kind.pointers and noun:
            arguments.append(Argument(param.name, kind.name, False, param.doc))
        elif param.type == "const char *" and noun:
            arguments.append(Argument(param.name, TEXT, param.nullable, param.doc))
        else:
            raise NotPlain(f"{param.name} is {param.type}")
    if noun not in NOUNS:
        raise NotPlain(f"it takes no handle of {', '.join(NOUNS)}")
    return Method(function, noun, tuple(arguments), result, owned)


def result_of(spelling: str) -> tuple[str, bool]:
    kind = CType.parse(spelling)
    if kind.name in NUMBERS and kind.pointers == 1 and not kind.const:
        return kind.name, False
    if spelling in ("char **", "const char **"):
        return TEXT, spelling == "char **"
    raise NotPlain(f"it hands out {spelling}")


def names_of(function: Function, handles: set[str], given: dict[str, str | None]) -> dict[str, str]:
    """The method's name in each language that has it generated.

    `given`: names that are not the function's own; null for languages that have it by hand.
    """
    noun = method_of(function, handles).noun
    own = function.name.removeprefix("meron_").removeprefix(f"{noun}_")
    names = {language: given.get(language, spelled(own, language)) for language in LANGUAGES}
    return {language: name for language, name in names.items() if name}


def spelled(name: str, language: str) -> str:
    if language != "java":
        return name
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def class_name(noun: str) -> str:
    return noun.capitalize()


class Prose:
    """The headers' text, in the terms of a language."""

    def __init__(self, api: Api, language: str) -> None:
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
        lines += [
            f"`{item.name}`: {item.doc.rstrip('.')}." for item in method.arguments if item.doc
        ]
        blocks = f"blocks {function.blocks}"
        lines.append(sentence(re.sub(r"^blocks never\b", "never blocks", blocks)))
        return [self.text(line) for line in lines]

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

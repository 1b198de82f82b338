# SPDX-License-Identifier: Apache-2.0
"""Takes a function's doc block apart: brief, text, @param lines, and the four fixed fields."""

from __future__ import annotations

import re
from dataclasses import dataclass

FIELDS = ("Ownership", "Blocks", "Threads", "Errors")
FIELD = re.compile(rf"\b({'|'.join(FIELDS)}):\s")
PARAM = re.compile(r"@param\s+(\w+)\s*(.*)")
REFERENCE = re.compile(r"\bas (meron_\w+)")
SENTENCE_END = re.compile(r"(?<=[.:])\s+(?=[A-Z`\[\"*(])")


@dataclass
class Block:
    brief: str
    text: str
    params: dict[str, str]
    fields: dict[str, str]  # in the order of the block


def parse(doc: str) -> Block:
    params: dict[str, str] = {}
    flowing: list[str] = []
    current: str | None = None
    for line in doc.split("\n"):
        param = PARAM.match(line)
        if param:
            current = param[1]
            params[current] = param[2]
        elif current is not None and line.startswith("  "):
            params[current] += " " + line.strip()
        else:
            current = None
            flowing.append(line)
    text = "\n".join(flowing)
    parts = FIELD.split(text)
    fields = {name: " ".join(value.split()) for name, value in zip(parts[1::2], parts[2::2])}
    description = " ".join(parts[0].split())
    sentences = SENTENCE_END.split(description, maxsplit=1)
    return Block(sentences[0], sentences[1] if len(sentences) > 1 else "", params, fields)


def may_block(name: str, blocks: dict[str, str]) -> bool:
    """Returns whether a call can wait, according to the Blocks texts of all functions.

    A text that starts with "never" means no, except with "unless" or "at most". A text "as
    meron_other" takes the answer of that function.
    """
    text = blocks.get(name, "")
    reference = REFERENCE.match(text)
    if reference and reference[1] != name:
        return may_block(reference[1], blocks)
    return not text.startswith("never") or bool(re.search(r"\bunless\b|\bat most\b", text))


def error_codes(name: str, errors: dict[str, str], statuses: dict[str, int]) -> list[str]:
    """The codes that a function's Errors text names, in the order of their values.

    Follows "as meron_other", and takes "-3xx" for every code of that class.
    """
    seen: set[str] = set()
    found: set[str] = set()

    def collect(function: str) -> None:
        if function in seen:
            return
        seen.add(function)
        text = errors.get(function, "")
        found.update(code for code in re.findall(r"\bMERON_E_\w+", text) if code in statuses)
        for digit in re.findall(r"-(\d)xx", text):
            found.update(code for code, value in statuses.items() if value // -100 == int(digit))
        for other in REFERENCE.findall(text):
            collect(other)

    collect(name)
    return sorted(found, key=lambda code: -statuses[code])

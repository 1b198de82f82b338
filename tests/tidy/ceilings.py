# SPDX-License-Identifier: Apache-2.0
"""Limits, and the recorded ceilings of what exceeded them when a limit was introduced.

A ceiling only goes down. `tidy.py --write` lowers and removes ceilings; a person who has to raise
one edits ceilings.json and explains it in the commit message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tree import Offence, Tree

PATH = "tests/tidy/ceilings.json"

Table = dict[str, Any]


class Measured(NamedTuple):
    """One measured thing, whether within its limit or not."""

    key: str  # stays the same if the thing moves to another line
    value: int
    limit: int
    file: str
    line: int
    fact: str  # "struct Wide has 13 fields"
    advice: str


def load(tree: Tree) -> dict[str, Table]:
    """The ceilings by kind and key. Empty if the tree has no such file."""
    file = tree.by_name.get(PATH)
    tables: dict[str, Table] = json.loads(file.text) if file else {}
    return tables


def dump(tables: dict[str, Table]) -> str:
    """One line per ceiling."""
    blocks = []
    for kind, table in sorted(tables.items()):
        lines = [
            f"    {json.dumps(key, ensure_ascii=False)}: {json.dumps(ceiling)}"
            for key, ceiling in sorted(table.items())
        ]
        body = ",\n".join(lines)
        blocks.append(f'  "{kind}": {{\n{body}\n  }}' if lines else f'  "{kind}": {{}}')
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def line_of(tree: Tree, kind: str, key: str) -> int:
    """The line of a ceiling in the file."""
    within = False
    for number, line in enumerate(tree.by_name[PATH].lines, 1):
        within = within or line.startswith(f'  "{kind}":')
        if within and line.startswith(f"    {json.dumps(key, ensure_ascii=False)}:"):
            return number
    return 1


def offences(tree: Tree, kind: str, measured: Iterable[Measured]) -> Iterator[Offence]:
    """The things above both limit and ceiling, and the ceilings that are higher than needed."""
    table = load(tree).get(kind, {})
    known = set()
    for each in measured:
        known.add(each.key)
        ceiling = table.get(each.key)
        allowed = max(each.limit, ceiling or 0)
        if each.value > allowed:
            said = f"{each.fact}, more than {allowed}: {each.advice}"
            yield Offence(each.file, each.line, said)
        elif ceiling is not None and each.value < ceiling:
            line = line_of(tree, kind, each.key)
            yield Offence(PATH, line, f"{each.key}: {_improvement(each)} (tidy.py --write does)")
    for key in sorted(set(table) - known):
        said = f"{key}: nothing of that name exists: remove it (tidy.py --write does)"
        yield Offence(PATH, line_of(tree, kind, key), said)


def _improvement(each: Measured) -> str:
    if each.value <= each.limit:
        return "it is within the limit: remove its ceiling"
    return f"lower it to {each.value}"


def lowered(table: Table, measured: Iterable[Measured]) -> Table:
    """The same ceilings, lowered to the measured values or removed. Never raised, never more."""
    values = {each.key: each for each in measured}
    return {
        key: min(ceiling, values[key].value)
        for key, ceiling in table.items()
        if key in values and values[key].value > values[key].limit
    }


def rule(
    kind: str, promise: str, measure: Callable[[Tree], Iterable[Measured]]
) -> Callable[[Tree], Iterator[Offence]]:
    """A rule that compares what `measure` finds with limits and ceilings."""

    def check(tree: Tree) -> Iterator[Offence]:
        return offences(tree, kind, measure(tree))

    check.__doc__ = promise
    return check

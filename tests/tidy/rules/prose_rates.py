# SPDX-License-Identifier: Apache-2.0
"""Prose stays plain: folders are measured, and hold ceilings until they meet the limit.

A ceiling records hits and sentences. New sentences may add one hit per hundred. Removing clean
sentences never breaks a ceiling, because hits are compared and not rates.
"""

from __future__ import annotations

from collections.abc import Iterator

import ceilings
import prose
from prose import Measure
from tree import File, Offence, Tree

KIND = "prose"
LIMIT = 1.0  # hits per 100 sentences
# Folders that are measured by subfolder. All others are measured whole.
DIVIDED = ("impl", "bindings", "tests", "docs")
ROOT = "."


def folder_of(file: File) -> str:
    if len(file.parts) == 1:
        return ROOT
    depth = 2 if file.parts[0] in DIVIDED and len(file.parts) > 2 else 1
    return "/".join(file.parts[:depth])


def measure(tree: Tree) -> dict[str, Measure]:
    groups: dict[str, list[File]] = {}
    for file in tree.files:
        groups.setdefault(folder_of(file), []).append(file)
    measured = {}
    for folder, files in groups.items():
        hits, sentences = prose.measure(files)
        if sentences:
            measured[folder] = Measure(len(hits), sentences)
    return measured


def allowed(ceiling: Measure | None, sentences: int) -> int:
    """The number of hits that a folder may have."""
    if ceiling is None:
        return int(sentences * LIMIT / 100)
    added = max(0, sentences - ceiling.sentences)
    return ceiling.hits + int(added * LIMIT / 100)


def lowered(table: ceilings.Table, measured: dict[str, Measure]) -> ceilings.Table:
    """The same ceilings, lowered or removed. Never raised, never more."""
    lower = {}
    for folder, (hits, sentences) in table.items():
        now = measured.get(folder)
        if now is None or now.rate <= LIMIT:
            continue
        lower[folder] = list(now) if now.hits < hits else [hits, sentences]
    return lower


def check(tree: Tree) -> Iterator[Offence]:
    """A folder has at most one sentence in 100 that stops a reader, or keeps its ceiling."""
    table = ceilings.load(tree).get(KIND, {})
    measured = measure(tree)
    for folder, now in sorted(measured.items()):
        ceiling = Measure(*table[folder]) if folder in table else None
        most = allowed(ceiling, now.sentences)
        if now.hits > most:
            said = f"{now}; {most} are allowed: tidy.py --prose {folder} --list shows them"
            yield Offence(folder, 1, said)
        elif ceiling and (now.hits < ceiling.hits or now.rate <= LIMIT):
            line = ceilings.line_of(tree, KIND, folder)
            what = "remove its ceiling" if now.rate <= LIMIT else f"lower it to {list(now)}"
            yield Offence(ceilings.PATH, line, f"{folder}: {what} (tidy.py --write does)")
    for folder in sorted(table.keys() - measured.keys()):
        line = ceilings.line_of(tree, KIND, folder)
        said = f"{folder}: the folder has no prose: remove its ceiling (tidy.py --write does)"
        yield Offence(ceilings.PATH, line, said)

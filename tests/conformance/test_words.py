# SPDX-License-Identifier: Apache-2.0
"""Tests that what docs/bindings/words.md says of each language exists, and has cases or tests."""

from __future__ import annotations

import re
import sys

import pytest

from table import HERE, read_cases

ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tools" / "generate"))
from words_page import LANGUAGES, Word, read  # noqa: E402

WORDS = read(ROOT)
SOURCES = {
    "c": ("include/meron", "*.h"),
    "cpp": ("include/meron/cpp", "*.hpp"),
    "python": ("bindings/python/meron", "*.py"),
    "rust": ("bindings/rust/meron/src", "**/*.rs"),
    "julia": ("bindings/julia/src", "*.jl"),
    "java": ("bindings/swig/java/org/meron", "*.java"),
}
# A name before a bracket, or one of the C interface.
NAMES = re.compile(r"\b(\w+!?)\(|\b(MERON_\w+|meron_\w+)")


def names_in(call: str) -> set[str]:
    return {called or constant for called, constant in NAMES.findall(call)}


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    def text_of(folder: str, pattern: str) -> str:
        return "\n".join(file.read_text() for file in sorted((ROOT / folder).glob(pattern)))

    headers = text_of(*SOURCES["c"])  # every language has the names of C
    return {language: headers + text_of(*where) for language, where in SOURCES.items()}


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_a_word_has_a_meaning_and_a_spelling_in_each_language(word: Word) -> None:
    assert word.means.endswith(".")
    assert word.calls.keys() == LANGUAGES.keys()


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_what_holds_a_word_exists(word: Word) -> None:
    assert word.cases or word.tests
    assert set(word.cases) <= {case.name for case in read_cases()}
    assert [path for path in word.tests if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.name)
def test_the_sources_have_its_spellings(word: Word, sources: dict[str, str]) -> None:
    missing = [
        (language, name)
        for language, call in word.calls.items()
        for name in names_in(call)
        if not re.search(rf"(?<!\w){re.escape(name)}(?![\w!])", sources[language])
    ]
    assert missing == []

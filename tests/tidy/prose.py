# SPDX-License-Identifier: Apache-2.0
"""Measures prose: finds sentences that make a reader stop. docs/style.md describes the patterns.

A plain technical text has fewer than one such sentence in a hundred. The patterns are habits, not
errors: a hit is a reason to write the sentence anew, and a clean text can still be a bad one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tree import File


def _any_of(*alternatives: str) -> str:
    return rf"\b(?:{'|'.join(alternatives)})\b"


CLAUSE_SUBJECT = r"^(?:What|Whoever|Whose|Which|Whom)\b(?!.*\?)"
BARE_QUESTION = r"^(?:Where|Whether|How|Who|When)\b(?!\s+(?:to|it|you)\b)[^,?]*\.$"
NESTED_RELATIVE = _any_of(
    *("of which", "(?:than )?that which", "those that .* that", "to whom", "for whom"),
    *("what .* what", "which .* which"),
)
NO_ACTOR = _any_of(
    *(r"(?:is|are|was) to be", "nobody", "no one", "somebody", "n(?:othing|one) that"),
    *("none of it", "for sure", "for moments", "in vain", "at hand", "and forgets that"),
)
DOUBLE_NEGATION = r"\bn(?:o|one|othing|ever|ot)\b[^.]{0,40}" + _any_of(
    "without", "unless", "until no", "but none"
)
PRIVATE_VERB = _any_of(
    *("lies", "lie there", "c[ao]me to", "comes (?:to|of)", "goes on", "go on", "lets? go"),
    *("brings?", "brought", "hands? out", "handed out", "tells? of", "(?:is|are) told"),
    *("asked for on", "stands? there", "gives? (?:back|up)", "given (?:back|up)"),
    *("take back", "taken back"),
)
PAST = _any_of(
    *("was", "were", "had", "did", "could", "raised", "ended", "failed", "took", "got", "lost")
)
SUBJECT = _any_of(
    *("It", "They", "This", "Nobody", "Each", "A", "The", "Its", "That", "If", "All", "Ranks"),
    "Units",
)
RETOLD_PAST = rf"^\({SUBJECT}.*{PAST}.*\)$"

PATTERNS = {
    "clause as subject": re.compile(CLAUSE_SUBJECT),
    "bare question": re.compile(BARE_QUESTION),
    "nested relative": re.compile(NESTED_RELATIVE, re.IGNORECASE),
    "no actor": re.compile(NO_ACTOR, re.IGNORECASE),
    "double negation": re.compile(DOUBLE_NEGATION, re.IGNORECASE),
    "private verb": re.compile(PRIVATE_VERB, re.IGNORECASE),
    "retold past": re.compile(RETOLD_PAST, re.IGNORECASE),
}

SENTENCE_END = re.compile(r"(?<=[.!?)])\s+(?=[A-Z(])")
WORD = re.compile(r"[A-Za-z]+")
FEWEST_WORDS = 4


class Hit(NamedTuple):
    file: str
    line: int
    patterns: tuple[str, ...]
    sentence: str


class Measure(NamedTuple):
    hits: int
    sentences: int

    @property
    def rate(self) -> float:
        """Hits per 100 sentences."""
        return 100 * self.hits / self.sentences if self.sentences else 0.0

    def __str__(self) -> str:
        return f"{self.hits} hits in {self.sentences} sentences, {self.rate:.1f} of 100"


def sentences(text: str) -> Iterator[str]:
    for each in SENTENCE_END.split(text):
        sentence = each.strip()
        words = WORD.findall(sentence)
        if len(words) >= FEWEST_WORDS and "SPDX" not in words and "Copyright" not in words:
            yield sentence


def patterns_in(sentence: str) -> tuple[str, ...]:
    return tuple(name for name, pattern in PATTERNS.items() if pattern.search(sentence))


def measure(files: Iterable[File]) -> tuple[list[Hit], int]:
    """The hits, and the number of sentences. Generated files do not count."""
    hits: list[Hit] = []
    count = 0
    for file in files:
        if "generated" in file.name:
            continue
        for block in file.blocks:
            for sentence in sentences(block.text):
                count += 1
                if found := patterns_in(sentence):
                    hits.append(Hit(file.name, block.line, found, sentence))
    return hits, count

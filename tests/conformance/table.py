# SPDX-License-Identifier: Apache-2.0
"""The conformance cases as data, and who runs them: cases.txt and runners.txt, parsed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRANSPORTS = ("self", "local", "shm", "custom")
NEEDS = ("dlpack", "callbacks", "raw", "loans")


class Malformed(Exception):
    """A file does not say what README.md asks for; the text says where."""


@dataclass(frozen=True)
class Statement:
    """One operation: its name, the object it is about ("" for none), its arguments in order."""

    line: int
    operation: str
    name: str
    arguments: tuple[tuple[str, str], ...]

    def get(self, key: str) -> str | None:
        """The first argument of this name."""
        return next((value for known, value in self.arguments if known == key), None)

    def list(self, key: str) -> list[str]:
        """The argument's parts; none where it is missing."""
        value = self.get(key)
        return value.split(",") if value else []


@dataclass
class Case:
    name: str
    ranks: list[str] = field(default_factory=lambda: ["1", "2", "3"])
    plans: list[str] = field(default_factory=lambda: ["zero3"])
    transports: list[str] = field(default_factory=lambda: list(TRANSPORTS))
    needs: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def runs_on(self, transport: str, ranks: int) -> bool:
        return transport in self.transports and str(ranks) in self.ranks


@dataclass(frozen=True)
class Runner:
    name: str
    lacks: frozenset[str]  # words of `needs`, a transport, or a cell like local3
    command: tuple[str, ...]  # with {root}, {build} and {python}

    @property
    def together(self) -> bool:
        """Whether it runs several cells in one process, because starting it takes long."""
        return "together" in self.lacks


def tokens_of(line: str) -> list[str]:
    tokens = line.split()
    comment = next((i for i, token in enumerate(tokens) if token.startswith("#")), len(tokens))
    return tokens[:comment]


def read_cases(path: Path = HERE / "cases.txt") -> list[Case]:
    cases: list[Case] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        tokens = tokens_of(line)
        if not tokens:
            continue
        word, rest = tokens[0], tokens[1:]
        if word == "case":
            if len(rest) != 1 or any(case.name == rest[0] for case in cases):
                raise Malformed(f"{path}:{number}: a case has one name, of its own")
            cases.append(Case(rest[0]))
        elif not cases:
            raise Malformed(f"{path}:{number}: no case yet")
        elif word in ("ranks", "plans", "transports", "needs"):
            setattr(cases[-1], word, rest)
        else:
            cases[-1].statements.append(statement_of(number, word, rest))
    return cases


def statement_of(number: int, operation: str, words: list[str]) -> Statement:
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise Malformed(f"line {number}: a second name, {names[1]!r}")
    pairs = (word.partition("=") for word in words if "=" in word)
    arguments = tuple((key, value) for key, _, value in pairs)
    return Statement(number, operation, names[0] if names else "", arguments)


def read_runners(path: Path = HERE / "runners.txt") -> list[Runner]:
    runners = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        tokens = tokens_of(line)
        if not tokens:
            continue
        if len(tokens) < 3:
            raise Malformed(f"{path}:{number}: a runner has a name, what it lacks, a command")
        lacks = frozenset[str]() if tokens[1] == "-" else frozenset(tokens[1].split(","))
        runners.append(Runner(tokens[0], lacks, tuple(tokens[2:])))
    return runners

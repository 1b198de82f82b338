# SPDX-License-Identifier: Apache-2.0
"""The hooks of pytest: the mark `ranks`, and reports by rank."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import pytest

import ranks
from ranks.protocol import Call
from ranks.server import RANKS_OWN

MARK = (
    "ranks(count, *counts, deadline=SECONDS, environment={}, name=TEXT): run the test on that many "
    "ranks; with several counts or several marks, once for each; the name is part of the test's id"
)


@dataclass(frozen=True)
class World:
    """The ranks of one run of a test, and the options of `Pool.run`."""

    count: int
    name: str
    options: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.count}ranks" + (f"-{self.name}" if self.name else "")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("ranks_preload", "modules that processes import before they fork ranks", "args")
    parser.addini("ranks_preload_plain", "such modules that read variables of the system", "args")
    parser.addini("ranks_deadline", "seconds that a test may take on its ranks", default="120")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    ranks.preloads[:] = config.getini("ranks_preload")
    ranks.plain_preloads[:] = config.getini("ranks_preload_plain")
    ranks.deadline_of_pool = float(config.getini("ranks_deadline"))


def pytest_unconfigure() -> None:
    ranks.close()


@pytest.fixture
def rank() -> Any:
    """This process's rank, in a test with the mark `ranks`."""
    return RANKS_OWN


@pytest.fixture
def world_size() -> Any:
    """Number of ranks, in a test with the mark `ranks`."""
    return RANKS_OWN


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    test = metafunc.definition
    worlds = [world for mark in marks_of(test) for world in worlds_of(mark, test.nodeid)]
    if worlds:
        metafunc.fixturenames.append("_world")
        metafunc.parametrize("_world", worlds, ids=[world.id for world in worlds])


def marks_of(test: pytest.Item) -> list[pytest.Mark]:
    """Returns the marks `ranks` of the test itself or, if it has none, of its class or module."""
    found = list(test.iter_markers_with_node("ranks"))
    return [mark for node, mark in found if node is found[0][0]]


def worlds_of(mark: pytest.Mark, test: str) -> list[World]:
    known = {"deadline", "environment", "name"}
    if not mark.args or not all(isinstance(each, int) and each > 0 for each in mark.args):
        raise pytest.UsageError(
            f"{test}: @pytest.mark.ranks takes numbers of ranks, as in ranks(2)"
        )
    if unknown := ", ".join(sorted(set(mark.kwargs) - known)):
        names = ", ".join(sorted(known))
        raise pytest.UsageError(f"{test}: @pytest.mark.ranks has no {unknown}; it has {names}")
    options = dict(mark.kwargs)
    name = options.pop("name", "")
    return [World(count, name, options) for count in mark.args]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a marked test on its ranks. Fixtures are made once, in this process, and pickled."""
    callspec = getattr(pyfuncitem, "callspec", None)
    world: World | None = callspec.params.get("_world") if callspec else None
    if world is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    call = Call(
        pyfuncitem.module.__name__,
        pyfuncitem.function.__qualname__,
        keywords={name: argument(pyfuncitem, name) for name in names},
    )
    endings = ranks.pool().run(world.count, call, **world.options)
    if text := ranks.failure_of(endings):
        pytest.fail(text, pytrace=False)
    return True


def argument(item: pytest.Function, name: str) -> Any:
    value = item.funcargs[name]
    if isinstance(value, pytest.MonkeyPatch):
        return RANKS_OWN
    try:
        pickle.dumps(value)
    except Exception as error:
        pytest.fail(
            f"the argument {name} cannot be sent to ranks: {error}. Make it in the test.",
            pytrace=False,
        )
    return value


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        report.sections += ranks.noted
        ranks.noted.clear()
    return report

# SPDX-License-Identifier: Apache-2.0
"""The hooks of pytest: the mark `ranks`, and reports by rank."""

from __future__ import annotations

import pickle
from collections.abc import Generator
from typing import Any

import pytest

import ranks
from ranks.protocol import Call
from ranks.server import RANKS_OWN

MARK = (
    "ranks(count, *counts, deadline=SECONDS, environment={}): run the test on that many ranks; "
    "with several counts, once for each"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("ranks_preload", "modules that processes import before they fork ranks", "args")
    parser.addini("ranks_deadline", "seconds that a test may take on its ranks", default="120")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)
    ranks.preloads[:] = config.getini("ranks_preload")
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
    mark = metafunc.definition.get_closest_marker("ranks")
    if mark is None:
        return
    counts = counts_of(mark, metafunc.definition.nodeid)
    metafunc.fixturenames.append("_count_of_ranks")
    metafunc.parametrize("_count_of_ranks", counts, ids=[f"{count}ranks" for count in counts])


def counts_of(mark: pytest.Mark, test: str) -> tuple[int, ...]:
    known = {"deadline", "environment"}
    if not mark.args or not all(isinstance(each, int) and each > 0 for each in mark.args):
        raise pytest.UsageError(
            f"{test}: @pytest.mark.ranks takes numbers of ranks, as in ranks(2)"
        )
    if unknown := ", ".join(sorted(set(mark.kwargs) - known)):
        names = ", ".join(sorted(known))
        raise pytest.UsageError(f"{test}: @pytest.mark.ranks has no {unknown}; it has {names}")
    return mark.args


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a marked test on its ranks. Fixtures are made once, in this process, and pickled."""
    mark = pyfuncitem.get_closest_marker("ranks")
    if mark is None:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    call = Call(
        pyfuncitem.module.__name__,
        pyfuncitem.function.__qualname__,
        keywords={name: argument(pyfuncitem, name) for name in names},
    )
    count: Any = pyfuncitem.callspec.params["_count_of_ranks"]
    endings = ranks.pool().run(count, call, **mark.kwargs)
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

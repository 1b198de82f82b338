# SPDX-License-Identifier: Apache-2.0
"""meron.io.AsyncIOHandle: a wait that was cut short loses neither an error nor a count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import meron
from meron import errors
from meron.io import AsyncIOHandle


def outcomes_of(handle: AsyncIOHandle, outcomes: list[BaseException | None]) -> None:
    """Lets the requests of a handle end in turn as `outcomes` say; None: as they do."""
    plain = handle._finish

    def finish(request: Any, compared: Any) -> None:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        plain(request, compared)

    handle._finish = finish  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("cut", "kind"),
    [
        (errors.DeadlineError("nothing moves"), meron.DeadlineError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["deadline", "ctrl-c"],
)
@pytest.mark.parametrize("failed", [errors.NoSpaceError("full"), errors.CorruptError("other")])
def test_a_failure_before_a_wait_was_cut_short_is_raised_by_the_next(
    tmp_path: Path, cut: BaseException, kind: type[BaseException], failed: errors.Error
) -> None:
    handle = AsyncIOHandle()
    for name in ("a", "b"):
        handle.async_pwrite(b"data", tmp_path / name)
    outcomes_of(handle, [failed, cut, None])
    with pytest.raises(kind):
        handle.wait()
    with pytest.raises(type(failed)):
        handle.wait()
    assert handle.wait() == 0


def test_requests_that_ended_before_a_wait_was_cut_short_are_counted(tmp_path: Path) -> None:
    handle = AsyncIOHandle()
    for name in ("a", "b", "c"):
        handle.async_pwrite(b"data", tmp_path / name)
    outcomes_of(handle, [None, errors.DeadlineError("nothing moves"), None, None])
    with pytest.raises(meron.DeadlineError):
        handle.wait()
    assert handle.wait() == 3


def test_a_file_that_is_gone_when_it_is_compared_fails_one_wait(tmp_path: Path) -> None:
    handle = AsyncIOHandle()
    handle.pwrite(b"data", tmp_path / "a", True, True)
    handle._begun[-1][0].wait()
    (tmp_path / "a").unlink()
    with pytest.raises(meron.InputOutputError, match="cannot be read again"):
        handle.wait()
    assert handle.wait() == 0

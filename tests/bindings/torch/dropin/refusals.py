# SPDX-License-Identifier: Apache-2.0
"""Checks that calls fail with words that help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def check_fails(kind: type[Exception], *cases: tuple[Callable[[], Any], str]) -> None:
    """Each case: a call that must raise an error of a kind, and words that its text must have."""
    for call, words in cases:
        try:
            call()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)

# SPDX-License-Identifier: Apache-2.0
"""Failures of a drive that Python meets, as errors that all ranks can share."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from meron import errors


@contextlib.contextmanager
def drive_errors() -> Iterator[None]:
    """InputOutputError, or NoSpaceError, for an OSError within."""
    try:
        yield
    except errors.Error:
        raise
    except OSError as error:
        kind = NO_SPACE if error.errno in (errno.ENOSPC, errno.EDQUOT) else INPUT_OUTPUT
        subject = str(error.filename) if error.filename is not None else ""
        raise errors.make(kind, str(error), subject=subject) from error


NO_SPACE = errors.NoSpaceError.status
INPUT_OUTPUT = errors.InputOutputError.status

# SPDX-License-Identifier: Apache-2.0
"""The names of deepspeed.utils."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from meron.zero import comm, leaf, safe, zero_to_fp32
from meron.zero.leaf import *  # noqa: F403
from meron.zero.safe import *  # noqa: F403

__all__ = ["log_dist", "logger", "zero_to_fp32"]
__all__ += leaf.__all__
__all__ += safe.__all__

logger = logging.getLogger("meron.zero")


def log_dist(message: str, ranks: Sequence[int] | None = None, level: int = logging.INFO) -> None:
    """Logs a message on some ranks; on all for None or -1. Local."""
    rank = comm.known_rank()
    if not ranks or -1 in ranks or rank in ranks:
        logger.log(level, "[rank %d] %s", rank, message)

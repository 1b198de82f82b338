# SPDX-License-Identifier: Apache-2.0
"""deepspeed.utils.logging: the log of meron.zero under DeepSpeed's functions."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from meron import errors
from meron.zero.utils import log_dist, logger

log_levels = {
    name: getattr(logging, name.upper())
    for name in ("debug", "info", "warning", "error", "critical")
}


@functools.cache
def warning_once(message: str) -> None:
    """A warning, once per message and process."""
    logger.warning(message)


@functools.cache
def _log_dist_once(message: str, ranks: tuple[int, ...] | None, level: int) -> None:
    log_dist(message, ranks, level)


def log_dist_once(
    message: str, ranks: Sequence[int] | None = None, level: int = logging.INFO
) -> None:
    """As log_dist, once per message and process."""
    _log_dist_once(message, None if ranks is None else tuple(ranks), level)


def get_log_level_from_string(log_level_str: str) -> int:
    """A level of logging by its name. Raises ArgumentError (a ValueError) for other names."""
    level = log_levels.get(log_level_str.lower())
    if level is None:
        raise errors.argument(
            f"there is no log level {log_level_str!r}",
            subject="log_level_str",
            advice=f"Use one of {', '.join(log_levels)}.",
        )
    return int(level)


def set_log_level_from_string(
    log_level_str: str, custom_logger: logging.Logger | None = None
) -> None:
    """Sets the level of a logger, the log of meron.zero by default, by the level's name."""
    (custom_logger or logger).setLevel(get_log_level_from_string(log_level_str))


def get_current_level() -> int:
    """The level of the log of meron.zero, a number of the module logging."""
    return logger.getEffectiveLevel()


def should_log_le(max_log_level_str: str) -> bool:
    """True if the level of the log is at most the named level."""
    return get_current_level() <= get_log_level_from_string(max_log_level_str)


__all__ = [
    "get_current_level",
    "get_log_level_from_string",
    "log_dist",
    "log_dist_once",
    "log_levels",
    "logger",
    "set_log_level_from_string",
    "should_log_le",
    "warning_once",
]

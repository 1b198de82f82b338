# SPDX-License-Identifier: Apache-2.0
"""The library's version, and a description of this host."""

from __future__ import annotations

from typing import Any

from meron._native import lib, string, take_json

# The library's version, for example "0.2.0".
version: str = string(lib.meron_version_string())


def system_info() -> dict[str, Any]:
    """Describes this host and this build, from the library's JSON.

    Version, compiler, CPU features and kernels in use, transports with the reason if one is
    unavailable, memory, huge pages, /dev/shm, memlock limit, io_uring.
    """
    info: dict[str, Any] = take_json(lib.meron_system_info)
    return info

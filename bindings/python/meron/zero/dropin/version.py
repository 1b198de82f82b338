# SPDX-License-Identifier: Apache-2.0
"""The version of DeepSpeed whose names the drop-in has."""

PEER_VERSION = "0.19.8"
SUFFIX = "+meron"
VERSION = f"{PEER_VERSION}{SUFFIX}"
GIT = "[none]"  # DeepSpeed's word for a version that was not built from a commit


def version_numbers() -> tuple[int, ...]:
    """Major, minor and patch."""
    return tuple(int(part) for part in PEER_VERSION.split("."))

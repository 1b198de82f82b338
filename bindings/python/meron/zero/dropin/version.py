# SPDX-License-Identifier: Apache-2.0
"""The version of DeepSpeed whose names the drop-in has."""

SUFFIX = "+meron"
VERSION = f"0.19.8{SUFFIX}"
GIT = "[none]"  # DeepSpeed's word for a version that was not built from a commit


def version_numbers() -> tuple[int, ...]:
    """Major, minor and patch."""
    return tuple(int(part) for part in VERSION.replace(SUFFIX, "").split("."))

# SPDX-License-Identifier: Apache-2.0
"""The names that libmeron.so exports: what a test compares with `nm -D`."""

from __future__ import annotations

from model import Api


def emit(api: Api) -> dict[str, str]:
    names = sorted(function.name for function in api.functions)
    return {"capi/symbols.txt": "".join(f"{name}\n" for name in names)}

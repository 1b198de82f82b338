# SPDX-License-Identifier: Apache-2.0
"""Imported first: says what is missing, and how to get it."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "meron.lightning needs torch, which is not installed. Install it by `pip install torch` "
        "(https://pytorch.org/get-started has the one for your GPU)."
    )

# SPDX-License-Identifier: Apache-2.0
"""Packages that need PyTorch import this first: if it is missing, the error says how to get it."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ModuleNotFoundError(
        "meron.torch, zero, lightning, checkpointing and convert need PyTorch, which is not "
        "installed. Install it by `pip install torch`; in a checkout of Meron `tools/setup "
        "--torch` installs it into .venv.",
        name="torch",
    )

from meron import _gloo_threads  # noqa: F401 - at the interpreter's end

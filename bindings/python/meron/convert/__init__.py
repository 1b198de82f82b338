# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other programs, made into Meron's and the other way round."""

from __future__ import annotations

from meron import _needs_torch  # noqa: F401 - says so if PyTorch is missing
from meron.convert.detect import read
from meron.convert.export import export_checkpoint
from meron.convert.write import import_checkpoint

__all__ = ["export_checkpoint", "import_checkpoint", "read"]

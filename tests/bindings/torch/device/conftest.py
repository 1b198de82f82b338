# SPDX-License-Identifier: Apache-2.0
"""Lets these tests train the model of the folder zero."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "zero"))

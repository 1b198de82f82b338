# SPDX-License-Identifier: Apache-2.0
"""flatten and unflatten of DeepSpeed's UtilsBuilder: torch's."""

from __future__ import annotations

from torch._utils import _flatten_dense_tensors as flatten
from torch._utils import _unflatten_dense_tensors as unflatten

__all__ = ["flatten", "unflatten"]

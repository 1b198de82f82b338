# SPDX-License-Identifier: Apache-2.0
"""flatten and unflatten of DeepSpeed's UtilsBuilder: torch's."""

from __future__ import annotations

from meron.torch.torch_internals import flatten_dense as flatten
from meron.torch.torch_internals import unflatten_dense as unflatten

__all__ = ["flatten", "unflatten"]

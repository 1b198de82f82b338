# SPDX-License-Identifier: Apache-2.0
"""Meron over any torch.distributed group: gloo, mpi, and others that send from CPU memory."""

from __future__ import annotations

from typing import Any

from meron import errors
from meron.transport import CustomTransport


def group_transport(group: Any) -> CustomTransport:
    raise errors.UnsupportedError("a transport over torch.distributed is not written yet")

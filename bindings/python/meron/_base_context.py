# SPDX-License-Identifier: Apache-2.0
"""The part of a context that its objects need."""

from __future__ import annotations

from typing import Any

from meron import errors
from meron._lifetime import Lifetime


class BaseContext:
    """The library's context, until it is closed; `meron.Context` is what users have of it.

    Attributes:
        device: what this rank computes on, as it was opened; "" is the host.
    """

    def __init__(self, handle: Any, callbacks: tuple[Any, ...], device: str) -> None:
        # Operations that were dropped before they ended, each with the memory that it uses.
        self._abandoned: list[tuple[Any, Any]] = []
        self._lifetime: Lifetime | None = Lifetime(handle, callbacks, self._abandoned)
        self.device = device
        # True if NumPy cannot read the device's memory.
        self._remote: bool = device.startswith("cuda")
        self._dlpack_device: tuple[int, int] | None = None

    @property
    def closed(self) -> bool:
        return self._lifetime is None

    @property
    def _handle(self) -> Any:
        return self._require_open()._handle

    def _for_call(self) -> Any:
        return self._handle

    def _require_open(self) -> Lifetime:
        lifetime = self._lifetime
        if lifetime is None:
            raise errors.ClosedError(
                "the context was closed", advice="Open another one with meron.open."
            )
        return lifetime

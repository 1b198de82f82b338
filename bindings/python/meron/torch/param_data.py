# SPDX-License-Identifier: Apache-2.0
"""The tensor that each param of a unit points at (`param.data`), and the param's class.

The Parameter object itself stays the same for life, so optimizers, hooks and ties that hold it stay
right. Autograd saves Parameters by reference and views of them (a transposed weight, say) by
storage: both still mean the unsharded tensor when backward has gathered the unit again.
"""

from __future__ import annotations

from typing import Any

import torch

from meron.torch.guard import sharded_class, unsharded_class
from meron.torch.torch_internals import version_of


class ParamData:
    """Attributes:

    params:       the Parameters; `kinds` are their classes in use.
    placeholders: what they point at out of use, where they hold no values.
    versions:     counts of in-place changes, by which a write to memory of torch's own is seen.
    """

    __slots__ = ("hidden", "kinds", "params", "placeholders", "readable", "shown", "versions")

    def __init__(self, params: list[torch.nn.Parameter], placeholders: list[torch.Tensor]) -> None:
        self.placeholders = placeholders
        self.versions: list[int] = []
        self.hold(params, [type(param) for param in params])

    def hold(self, params: list[torch.nn.Parameter], kinds: list[type[torch.nn.Parameter]]) -> None:
        """Keeps the data of every pass: each param with its tensor and its class."""
        self.params = params
        self.kinds = kinds
        self.shown: list[tuple[torch.nn.Parameter, torch.Tensor, Any]] = []  # once it is known
        self.hidden = list(zip(params, self.placeholders, map(sharded_class, kinds)))
        self.readable = list(zip(params, kinds, map(unsharded_class, kinds)))

    def show(self, wholes: list[torch.Tensor]) -> None:
        """Points the params at unsharded tensors: the same ones until `forget`."""
        if not self.shown:
            self.shown = list(zip(self.params, wholes, self.kinds))
        for param, whole, kind in self.shown:
            param.__class__ = kind
            param.data = whole

    def hide(self) -> None:
        """Points the params at placeholders, which refuse reads and writes."""
        for param, empty, guarded in self.hidden:
            param.data = empty
            param.__class__ = guarded

    def guard(self) -> None:
        """Refuses writes to unsharded tensors."""
        for param, _, guarded in self.readable:
            param.__class__ = guarded

    def unguard(self) -> None:
        for param, kind, _ in self.readable:
            param.__class__ = kind

    def count_writes(self) -> None:
        """In-place changes until now are accepted."""
        self.versions = [*map(version_of, self.params)]

    def forget(self) -> None:
        """The unsharded tensors have gone."""
        self.shown = []

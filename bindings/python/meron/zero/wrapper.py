# SPDX-License-Identifier: Apache-2.0
"""A module that stands for another: same names of params, same parts, same state_dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from meron import errors
from meron.torch.torch_internals import apply_of


class Wrapper(torch.nn.Module):
    """Attributes: `module`, what it stands for. It is not a part, so no name gets a prefix."""

    module: torch.nn.Module

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.__dict__["module"] = module

    def __getattr__(self, name: str) -> Any:
        """Attributes that the wrapper lacks are the module's."""
        module = self.__dict__.get("module")
        if module is None:
            raise AttributeError(name)
        return getattr(module, name)

    def __delattr__(self, name: str) -> None:
        if name == "module":
            raise errors.StateError(
                f"the module of a {type(self).__name__} cannot be deleted",
                subject="module",
                advice="Call engine.destroy() and drop both, `del engine, model`: their memory is "
                "released then.",
            )
        super().__delattr__(name)

    def train(self, mode: bool = True) -> Wrapper:
        self.module.train(mode)
        self.training = mode
        return self

    def apply(self, fn: Callable[[torch.nn.Module], None]) -> Wrapper:
        self.module.apply(fn)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Wrapper:
        """Applies .to(), .half() and similar calls to the model, which refuses to be moved."""
        apply_of(self.module)(fn, recurse)
        return self

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_buffers(*args, **kwargs)

    def named_children(self) -> Any:
        return self.module.named_children()

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.named_modules(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Whole tensors, on every rank. Collective."""
        return self.module.state_dict(*args, **kwargs)

    def module_state_dict(
        self, *args: Any, exclude_frozen_parameters: bool = False, **kwargs: Any
    ) -> Any:
        """As state_dict. Collective."""
        state = self.module.state_dict(*args, **kwargs)
        if exclude_frozen_parameters:
            prefix = kwargs.get("prefix", "")
            for name, param in self.module.named_parameters(remove_duplicate=False):
                if not param.requires_grad:
                    state.pop(prefix + name, None)
        return state

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

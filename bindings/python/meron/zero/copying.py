# SPDX-License-Identifier: Apache-2.0
"""copy.deepcopy of modules that zero.Init or initialize sharded: within zero.Init, where layers are
often made of copies, the copy is sharded too; elsewhere it is unsharded on every rank.

Below stage 3 every rank has all values, so that one may copy alone. At stage 3 all ranks copy.
"""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch

from meron.torch.sharding import unit_of
from meron.torch.torch_internals import APPLY, CALL, PARAMETERS
from meron.zero.attributes import whole_copy
from meron.zero.owner import ENGINE_MARK

# Names that sharding adds to a module's __dict__.
MARKS = (
    *("_meron_scope", ENGINE_MARK, APPLY, CALL, "__prepare_scriptable__"),
    *("__deepcopy__", "_meron_session"),
)


class Copier:
    """`module.__deepcopy__` of a module that is sharded. Collective at stage 3.

    PEFT copies layers of a model that is built: trainable copies of frozen ones. Averages of
    weights begin with a copy of engine.module.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = weakref.ref(module)

    def __call__(self, memo: dict[int, Any]) -> torch.nn.Module:
        module = self.module()
        assert module is not None  # who copies it holds it
        # The class's own way, or that of a zero.Init around.
        own = getattr(type(module), "__deepcopy__", None)
        result: torch.nn.Module = (own or copy_unsharded)(module, memo)
        return result


def let_copy(module: torch.nn.Module) -> None:
    """Lets copy.deepcopy copy a module, which is refused for other sharded modules."""
    for part in module.modules():
        part.__dict__.setdefault("__deepcopy__", Copier(part))


def state_of(module: torch.nn.Module) -> dict[str, Any]:
    """The state that a copy of a module starts with: its attributes, or the result of its class's
    __getstate__ (a LightningModule leaves its Trainer out)."""
    own = getattr(type(module), "__getstate__", None)
    if own is None or own is getattr(object, "__getstate__", None):  # new in Python 3.11
        return module.__dict__
    return dict(own(module))


def copy_unsharded(module: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
    """A copy of a module whose own params are whole and not sharded. Collective.

    Parts are copied by copy.deepcopy, ties among what `memo` holds stay.
    """
    result = type(module).__new__(type(module))
    memo[id(module)] = result
    state = {key: value for key, value in state_of(module).items() if key not in MARKS}
    params = state.pop(PARAMETERS)
    external = state.pop("_meron_external", {})
    for param in params.values():
        if param is not None and unit_of(param) is not None and id(param) not in memo:
            memo[id(param)] = whole_copy(param)
    own = {name: copy.deepcopy(param, memo) for name, param in params.items()}
    # As copy and pickle do: an RNN makes there what its __getstate__ left out.
    result.__setstate__({**copy.deepcopy(state, memo), PARAMETERS: own})
    if external:  # params of others stay those of others, unless they are copied too
        copied = [memo.get(id(param), param) for param in external.values()]
        result.__dict__["_meron_external"] = {id(param): param for param in copied}
    return result

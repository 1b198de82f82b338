# SPDX-License-Identifier: Apache-2.0
"""zero.Init under DeepSpeed's names: it makes torch's process group, as scripts expect."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

from meron import zero
from meron.zero.compat.rendezvous import init_distributed


class Init(zero.Init):
    """As meron.zero.Init, after init_distributed(), which does nothing if there is a group.

    So a script may build a model before it calls anything else of DeepSpeed, also by
    `from_pretrained` of transformers. Collective; blocks on peers, also with `enabled=False`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if dist.is_available():
            init_distributed()
        super().__init__(*args, **kwargs)


class MiCS_Init(Init, zero.MiCS_Init):
    """As meron.zero.MiCS_Init, after init_distributed()."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


# Their signatures.
functools.update_wrapper(Init.__init__, zero.Init.__init__)
functools.update_wrapper(MiCS_Init.__init__, zero.MiCS_Init.__init__)

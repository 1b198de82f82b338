# SPDX-License-Identifier: Apache-2.0
"""Replaces the package `deepspeed` of this folder by meron.zero.compat when it is imported."""

from __future__ import annotations

import logging
from typing import Any

from meron.zero.dropin.folders import folder
from meron.zero.dropin.version import VERSION

# Attributes of the package deepspeed about its version.
VERSIONS = (
    *("__git_branch__", "__git_hash__", "git_branch", "git_hash"),
    *("__version_major__", "__version_minor__", "__version_patch__"),
)

logger = logging.getLogger("meron.zero")


def take_name(namespace: dict[str, Any]) -> None:
    """Makes the module with this namespace the tree of meron.zero.compat.

    Rank 0 warns if DeepSpeed itself is installed, too: it is not the one that this program uses.
    """
    import sys

    from meron.zero import comm, compat
    from meron.zero.compat import tree

    module = sys.modules[namespace["__name__"]]
    tree.put(module.__name__, module)
    namespace.update({name: getattr(compat, name) for name in compat.__all__})
    namespace.update({name: part for name, part in tree.parts.items() if "." not in name})
    namespace.update(__version__=VERSION, __all__=list(compat.__all__), version=VERSION)
    namespace.update(
        __getattr__=compat.__getattr__, install=tree.install, DeepSpeedEngine=compat.DeepSpeedEngine
    )
    namespace.update({name: getattr(compat, name) for name in VERSIONS})
    real = tree.real_version()
    if real is not None and comm.known_rank() == 0:
        logger.warning(
            "two packages are named deepspeed: this program uses Meron's (%s, from PYTHONPATH), "
            "not DeepSpeed %s. Remove %s from PYTHONPATH to use DeepSpeed.",
            VERSION,
            real,
            folder(),
        )

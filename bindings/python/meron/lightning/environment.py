# SPDX-License-Identifier: Apache-2.0
"""Ranks that `meron run` has started, as a cluster environment of Lightning."""

from __future__ import annotations

import functools
import os
import socket
from typing import Any

from meron.lightning.trees import Tree, tree
from meron.torch.checkpoint.agreement import from_rank
from meron.torch.ranks import number_of
from meron.zero import comm

ADDRESS = "127.0.0.1"  # all ranks are on this host


def launched() -> bool:
    """True in a rank of `meron run`."""
    return "MERON_WORLD_SIZE" in os.environ and "MERON_LOCAL_RANK" in os.environ


@functools.cache
def main_port() -> int:
    """The port for torch.distributed; the same on all ranks.

    MASTER_PORT of the launcher; without it, rank 0 chooses a free one, which is collective.
    """
    if "MASTER_PORT" in os.environ:
        return number_of("MASTER_PORT")
    with socket.socket() as listener:
        listener.bind((ADDRESS, 0))
        own = str(listener.getsockname()[1])
    return int(from_rank(comm.any_world(), own))


@functools.cache
def environment_class(name: str) -> Any:
    """The class MeronEnvironment of a tree, "lightning" or "pytorch_lightning"."""
    base = tree(name).get("fabric.plugins.environments.ClusterEnvironment")

    class MeronEnvironment(base):  # type: ignore[misc,valid-type]
        """Ranks on this host, by the variables of `meron run`.

        The strategies of Meron use it by themselves; pass it to others:
        `Trainer(strategy="ddp", plugins=[MeronEnvironment()])`.
        """

        @property
        def creates_processes_externally(self) -> bool:
            return True

        @property
        def main_address(self) -> str:
            return ADDRESS

        @property
        def main_port(self) -> int:
            return main_port()

        @staticmethod
        def detect() -> bool:
            return launched()

        def world_size(self) -> int:
            return int(os.environ["MERON_WORLD_SIZE"])

        def set_world_size(self, size: int) -> None:
            """ValueError if the Trainer's devices are not the ranks that were started."""
            if size != self.world_size():
                raise ValueError(
                    f"`meron run` has started {self.world_size()} ranks, and devices x num_nodes "
                    f"is {size}. Pass devices={self.world_size()} and num_nodes=1."
                )

        def global_rank(self) -> int:
            return int(os.environ["MERON_RANK"])

        def set_global_rank(self, rank: int) -> None:
            """Nothing: the launcher has decided."""

        def local_rank(self) -> int:
            return int(os.environ["MERON_LOCAL_RANK"])

        def node_rank(self) -> int:
            return 0

    return MeronEnvironment


def chosen(found: Tree, given: Any) -> Any:
    """The caller's environment; else that of `meron run`, if it has started this process."""
    if given is not None or not launched():
        return given
    return environment_class(found.name)()

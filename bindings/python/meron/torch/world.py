# SPDX-License-Identifier: Apache-2.0
"""The engine's context for a torch program: who the ranks are, and how they find each other.

`meron run` hands every rank what it needs. Under torchrun, or when torch.distributed was
initialised otherwise, rank 0 makes the token and torch's own store carries it. Ranks that are on
one host share memory; across hosts bytes move by a transport over a torch.distributed group.
"""

from __future__ import annotations

import collections
import functools
import hashlib
import os
import secrets
import socket
from typing import Any

import torch.distributed as dist

import meron
from meron import errors

# One context per set of ranks and plan: models of a process with equal ones share it.
contexts: dict[tuple[tuple[int, ...] | None, str], meron.Context] = {}


def context_for(plan: meron.Plan, group: Any = None, **options: Any) -> meron.Context:
    """The context of these ranks and this plan; opened when it is not there yet. Collective."""
    ranks = None if group is None else tuple(dist.get_process_group_ranks(group))
    key = (ranks, plan.json())
    context = contexts.get(key)
    if context is None or context.closed:
        context = contexts[key] = open_context(plan, group, **options)
    return context


def open_context(plan: meron.Plan, group: Any = None, **options: Any) -> meron.Context:
    """A context for all ranks, or for those of a torch.distributed group. Collective.

    Raises ArgumentError when the launcher promised more ranks than the group has.
    """
    if group is None and not uses_torch_launcher():
        return meron.open(plan=plan, **options)
    if not dist.is_initialized():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if world_size == 1:
            return meron.open(0, 1, plan=plan, **options)
        store: Any = launcher_store(world_size)
    else:
        rank, world_size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise errors.argument(
                f"rank {dist.get_rank()} is not in the group that the model is to be sharded over"
            )
        promised = int(os.environ.get("WORLD_SIZE", "1"))
        if group is None and world_size < promised:
            raise errors.argument(
                f"the launcher promised {promised} ranks, torch.distributed has {world_size}",
                advice="Initialise torch.distributed with the launcher's world size, or not at "
                "all: Meron needs no process group on one host.",
            )
        if world_size == 1:
            return meron.open(0, 1, plan=plan, **options)
        store = dist.distributed_c10d._get_default_store()
    name = meeting_name(group)
    if rank == 0:
        store.set(f"{name}/token", secrets.token_hex(32))
    token = store.get(f"{name}/token").decode()
    store.set(f"{name}/host/{rank}", host_identity())
    hosts = {store.get(f"{name}/host/{peer}") for peer in range(world_size)}
    if len(hosts) == 1:
        return meron.open(rank, world_size, "shm", plan, token=token, **options)
    if not dist.is_initialized():
        raise errors.argument(
            f"the {world_size} ranks are on {len(hosts)} hosts, and torch.distributed is not "
            "initialised",
            advice="Call torch.distributed.init_process_group first: Meron then moves its bytes "
            "over that group.",
        )
    from meron.torch.transport import group_transport

    return meron.open(rank, world_size, group_transport(group), plan, **options)


def uses_torch_launcher() -> bool:
    """Whether ranks come from torch.distributed or its launcher rather than from `meron run`."""
    if dist.is_available() and dist.is_initialized():
        return "MERON_WORLD_SIZE" not in os.environ or dist.get_world_size() > 1
    if "MERON_WORLD_SIZE" in os.environ or "MERON_TOKEN" in os.environ:
        return False
    return all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))


@functools.cache  # the store ends with the process: peers may be late
def launcher_store(world_size: int) -> Any:
    """The store of torchrun's agent, by the same variables as torch's env:// method."""
    rank = int(os.environ["RANK"])
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size,
        is_master=rank == 0 and not agent,
    )


# How many contexts each set of ranks has opened.
opened: collections.Counter[str] = collections.Counter()


def meeting_name(group: Any) -> str:
    """Equal on the ranks that open a context together: a group opens its contexts in one order."""
    ranks = "world" if group is None else str(dist.get_process_group_ranks(group))
    digest = hashlib.sha256(ranks.encode()).hexdigest()[:16]
    opened[digest] += 1
    return f"meron/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{digest}/{opened[digest]}"


def host_identity() -> str:
    """Equal for processes that can share memory: the kernel's boot and the network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()

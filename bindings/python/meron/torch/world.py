# SPDX-License-Identifier: Apache-2.0
"""The engine's context for a torch program: its ranks, and their rendezvous.

`meron run` passes every rank all it needs. Under torchrun, or if torch.distributed was initialised
otherwise, ranks meet in torch's own store: each stores its host, and rank 0 makes the token. Ranks
on one host share memory; else bytes move over the torch.distributed group (transport.py).
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import logging
import os
import secrets
import socket
from typing import Any

import torch.distributed as dist

import meron
from meron import errors
from meron._callbacks import LogFunction, StopFunction
from meron.plan import Json, as_plan
from meron.torch import registry
from meron.torch.ranks import number_of, place_in, ranks_of, uses_torch
from meron.torch.residency.devices import torch_device_of
from meron.torch.resolve.device import asked_device
from meron.torch.torch_internals import default_store
from meron.torch.transport import group_transport

TRANSPORTS = ("auto", "shm", "group")
TRANSPORT_VARIABLE = "MERON_TORCH_TRANSPORT"
TIMEOUT = 600.0  # seconds, as meron.open's
# Arguments that are passed on to meron.open.
OPTIONS = ("timeout", "host_memory_limit", "arena_reserve", "threads", "log", "should_stop")


def context_for(
    plan: meron.Plan | Json,
    group: Any = None,
    transport: str | None = None,
    device: Any = None,
    *,
    timeout: float | None = None,
    host_memory_limit: int | None = None,
    arena_reserve: int | None = None,
    threads: int | None = None,
    log: LogFunction | logging.Logger | None = None,
    should_stop: StopFunction | None = None,
) -> meron.Context:
    """The context of these ranks, this plan and device; opened if there is none. Collective.

    Arguments as of `open_context`. Without a transport any open context is returned.

    Args:
        device: "cuda", "cuda:N", "emulated" or "cpu", or a torch.device; None takes it from
            MERON_TORCH_DEVICE, else it is the CPU.
        timeout, host_memory_limit, arena_reserve, threads, log, should_stop: as meron.open takes
            them. A context that is open already must have been opened with the same values.

    Raises ArgumentError naming an option that an open context does not have; else as open_context.
    """
    plan = as_plan(plan)
    ranks = ranks_of(group)
    name = asked_device(device) or ""
    wanted = (ranks, plan.json(), name)
    options = given(locals(), *OPTIONS)
    found = [
        context
        for (its_ranks, its_plan, its_transport, its_device), context in registry.contexts.items()
        if (its_ranks, its_plan, its_device) == wanted and transport in (None, its_transport)
        if not context.closed
    ]
    if found:
        check_options(found[0], options)
        return found[0]
    transport = chosen_transport(transport)
    on_device = torch_device_of(name)
    own: dict[str, Any] = {}
    if on_device is not None:
        own = {"device": on_device.name, "allocator": on_device.allocator}
    context = open_context(plan, group, transport, **own, **options)
    registry.contexts[ranks, plan.json(), transport, name] = context
    registry.options_of[context] = options
    return context


def given(arguments: dict[str, Any], *names: str) -> dict[str, Any]:
    """Those of a function's arguments that are not None."""
    return {name: arguments[name] for name in names if arguments[name] is not None}


def check_options(context: meron.Context, options: dict[str, Any]) -> None:
    """ArgumentError naming an option that an open context was not opened with."""
    own = registry.options_of.get(context, {})
    for name, value in options.items():
        if name not in own or own[name] != value:
            raise errors.argument(
                f"{name} is {value!r}, and the context of these ranks and this plan is open with "
                f"{name}={own.get(name)!r}",
                subject=name,
                advice=f"Pass {name} to the first context_for of a plan, before shard, or close "
                "the context.",
            )


def open_context(
    plan: meron.Plan | Json,
    group: Any = None,
    transport: str | None = None,
    *,
    timeout: float | None = None,
    host_memory_limit: int | None = None,
    arena_reserve: int | None = None,
    threads: int | None = None,
    log: LogFunction | logging.Logger | None = None,
    should_stop: StopFunction | None = None,
    device: str | None = None,
    allocator: meron.DeviceAllocator | None = None,
) -> meron.Context:
    """A context for all ranks, or for those of a torch.distributed group. Collective.

    Args:
        group: its ranks open the context together, and no others; the context's ranks are the
            group's. None is all ranks.
        transport: "shm" for ranks of one host, "group" over the torch.distributed group, or "auto":
            shm on one host, else group. None takes it from MERON_TORCH_TRANSPORT, else it is auto.
        timeout: as meron.open takes it; it also bounds how long ranks wait for each other here.
        host_memory_limit, arena_reserve, threads, log, should_stop, device, allocator: as
            meron.open takes them.

    Raises:
        ArgumentError: the launcher promised more ranks than there are; this rank is not in the
        group; ranks of several hosts need torch.distributed. DeadlineError names missing ranks.
        MismatchError: ranks chose different transports. Otherwise as meron.open.
    """
    options = given(locals(), *OPTIONS, "device", "allocator")
    context = open_among(as_plan(plan), group, chosen_transport(transport), options)
    registry.ranks_of_open[context] = ranks_of(group)
    return context


def open_among(
    plan: meron.Plan, group: Any, transport: str, options: dict[str, Any]
) -> meron.Context:
    if group is None and not uses_torch():
        if transport == "group":
            raise errors.argument(
                "transport='group' needs a torch.distributed group",
                "transport",
                'Call torch.distributed.init_process_group("gloo") first.',
            )
        return meron.open(plan=plan, **options)
    rank, world_size = place_in(group)
    if world_size == 1:
        return meron.open(0, 1, plan=plan, **options)
    timeout = options.get("timeout") or TIMEOUT
    meeting = Meeting(group, rank, world_size, timeout)
    hosts = meeting.exchange(transport)
    if transport == "shm" and len(set(hosts)) > 1:
        raise errors.argument(
            f"transport='shm', but the {world_size} ranks are on {len(set(hosts))} hosts",
            "transport",
            "Leave the transport out, or take 'group'.",
        )
    if transport != "group" and len(set(hosts)) == 1:
        return meron.open(rank, world_size, "shm", plan, token=meeting.token, **options)
    if not dist.is_initialized():
        raise errors.argument(
            f"the {world_size} ranks are on {len(set(hosts))} hosts, and torch.distributed is not "
            "initialised"
            if transport == "auto"
            else "transport='group', and torch.distributed is not initialised",
            advice='Call torch.distributed.init_process_group("gloo") first: bytes then move over '
            "that group.",
        )
    if options.get("threads") is None:  # the engine cannot know who shares this host
        cores = len(os.sched_getaffinity(0))
        options["threads"] = max(cores // hosts.count(hosts[rank]), 1)
    plan = of_hosts(plan, hosts)
    return meron.open(rank, world_size, group_transport(group, meeting.number), plan, **options)


def of_hosts(plan: meron.Plan, hosts: list[str]) -> meron.Plan:
    """A plan whose mesh is by nodes, for ranks that share no memory: a node is a host then."""
    table = json.loads(plan.json())
    if table["mesh"]["shard"] != "node":
        return plan
    size = hosts.count(hosts[0])
    different = list(dict.fromkeys(hosts))
    if hosts != [host for host in different for _ in range(size)]:
        sizes = [hosts.count(host) for host in different]
        raise errors.UnsupportedError(
            f"plan '{table['name']}' has a mesh by nodes, but the hosts have {sizes} ranks, or not "
            "one after the other",
            subject="plan",
            advice="Start equally many ranks on every host, those of a host one after the other, "
            "or give the mesh a number, such as hpz(2).",
        )
    return meron.Plan.parse({**table, "mesh": {"shard": size}})


def asked_plan(context: meron.Context) -> meron.Plan:
    """The plan with which a context was opened."""
    for (_, plan, _, _), known in registry.contexts.items():
        if known is context:
            return meron.Plan.parse(plan)
    return context.plan


def transport_of(context: meron.Context) -> str:
    """ "shm" where ranks share memory, as on one host; else "group"."""
    return "shm" if context.transport in ("self", "local", "shm") else "group"


def chosen_transport(transport: str | None) -> str:
    chosen = transport or os.environ.get(TRANSPORT_VARIABLE) or "auto"
    if chosen not in TRANSPORTS:
        source = "" if transport else f" (from {TRANSPORT_VARIABLE})"
        raise errors.argument(
            f"there is no transport {chosen!r}{source}", "transport", f"Take {TRANSPORTS}."
        )
    return chosen


# ---- How they find each other -------------------------------------------------------------------


class Meeting:
    """Messages of ranks to each other before they open a context together.

    number: of the context, among those of the same ranks
    token:  the same on all ranks, and secret
    """

    def __init__(self, group: Any, rank: int, world_size: int, timeout: float) -> None:
        self.rank = rank
        self.world_size = world_size
        self.timeout = timeout
        digest = hashlib.sha256(str(ranks_of(group)).encode()).hexdigest()[:16]
        self.digest = digest
        self.number = registry.meetings[digest] + 1
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.name = f"meron/{attempt}/{digest}/{self.number}"
        self.token = ""
        if dist.is_initialized():
            self.store: Any = default_store()
        else:
            try:
                self.store = launcher_store(rank, world_size, timeout)
            except RuntimeError as error:
                raise errors.DeadlineError(
                    f"rank {rank} of {world_size} cannot reach rank 0 at "
                    f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}: {error}",
                    advice="See whether rank 0 runs, and start all ranks anew.",
                    rank=rank,
                    peer=0,
                ) from None

    def exchange(self, transport: str) -> list[str]:
        """The ranks' hosts. Blocks until all have arrived, at most `timeout` seconds."""
        if self.rank == 0:
            # One that stays where this is another try.
            self.store.compare_set(f"{self.name}/token", "", secrets.token_hex(32))
        self.store.set(f"{self.name}/{self.rank}", f"{transport}\n{host_identity()}")
        keys = [f"{self.name}/{peer}" for peer in range(self.world_size)]
        try:
            self.store.wait([*keys, f"{self.name}/token"], datetime.timedelta(seconds=self.timeout))
        except RuntimeError as error:
            raise self.missed(keys, error) from None
        registry.meetings[self.digest] += 1
        said = [self.store.get(key).decode().split("\n", 1) for key in keys]
        self.token = self.store.get(f"{self.name}/token").decode()
        for peer, (other, _) in enumerate(said):
            if other != transport:
                raise errors.MismatchError(
                    f"rank {self.rank} opens its context with transport {transport!r}, rank "
                    f"{peer} with {other!r}",
                    advice=f"Pass the same transport, or set {TRANSPORT_VARIABLE}, on all ranks.",
                    rank=self.rank,
                    peer=peer,
                )
        return [host for _, host in said]

    def missed(self, keys: list[str], error: RuntimeError) -> errors.Error:
        try:
            missing = [peer for peer, key in enumerate(keys) if not self.store.check([key])]
        except RuntimeError:
            missing = []
        if not missing:
            return errors.PeerDeadError(
                f"the store of torch.distributed cannot be reached any more: {error}",
                advice="See whether rank 0 runs, and start all ranks anew.",
                rank=self.rank,
            )
        return errors.DeadlineError(
            f"rank {self.rank} waited {self.timeout:g} s in vain for {len(missing)} of "
            f"{self.world_size} ranks to open their context number {self.number}; missing: "
            f"{', '.join(map(str, missing))}",
            advice="All ranks shard the same models in the same order; see what the missing ranks "
            "do, or raise the timeout.",
            rank=self.rank,
            peer=missing[0],
        )


@functools.cache  # the store ends with the process: peers may be late
def launcher_store(rank: int, world_size: int, timeout: float) -> Any:
    """The store of torchrun's agent, by the same variables as torch's env:// method."""
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        number_of("MASTER_PORT"),
        world_size,
        is_master=rank == 0 and not agent,
        timeout=datetime.timedelta(seconds=timeout),
        wait_for_workers=False,
        multi_tenant=True,  # init_process_group may follow, with the same port
    )


def host_identity() -> str:
    """Equal for processes that can share memory: the kernel's boot and the network namespace."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()

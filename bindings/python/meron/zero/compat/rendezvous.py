# SPDX-License-Identifier: Apache-2.0
"""init_distributed: makes torch's process group of the ranks that a launcher started.

Rank and world size are MERON_RANK and MERON_WORLD_SIZE, else RANK and WORLD_SIZE.

| the environment has | ranks meet at |
|---|---|
| rank, world size and MASTER_ADDR: meron run, torchrun, accelerate | torch's env:// |
| MERON_RANK and MERON_WORLD_SIZE alone | a store of rank 0, whose port Meron's ranks exchange |
| none of them: one process | a store within the process |
"""

from __future__ import annotations

import datetime
import os
import socket
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from meron import errors
from meron.torch.ranks import number_of
from meron.zero import comm as over_meron

PORT = 29500  # torch's and DeepSpeed's default
TIMEOUT = datetime.timedelta(minutes=30)  # DeepSpeed's default
# Number of ranks, as set by launchers that set no rendezvous address.
MPI_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")


def init_distributed(
    dist_backend: str | None = None,
    auto_mpi_discovery: bool = True,
    distributed_port: int = PORT,
    verbose: bool = True,
    timeout: datetime.timedelta | None = None,
    init_method: str | None = None,
    dist_init_required: bool | None = None,
    config: Any = None,
    rank: int = -1,
    world_size: int = -1,
) -> None:
    """Makes torch's process group of all ranks, unless there is one. Collective; blocks on peers.

    Args:
        dist_backend: of torch.distributed; default is "nccl" if this process sees a CUDA device,
            else "gloo".
        auto_mpi_discovery: without effect. MPI's ranks need MASTER_ADDR too: see Raises.
        distributed_port: the port of rank 0, if the environment has no MASTER_PORT.
        verbose, config: without effect, as they control DeepSpeed's log of collectives.
        timeout: of collectives and of this call; default is 30 minutes.
        init_method, rank, world_size: as torch.distributed.init_process_group takes them: without
            init_method ranks meet at MASTER_ADDR; without any of them the environment decides.
        dist_init_required: False makes none.

    Raises ArgumentError if a launcher of MPI or Slurm started several ranks and the environment
    does not say where they meet; StateError if torch has no torch.distributed.
    """
    if not dist.is_available():
        raise errors.StateError(
            "this build of torch has no torch.distributed", operation="init_distributed"
        )
    if dist.is_initialized() or dist_init_required is False:
        return
    backend = dist_backend or default_backend()
    limit = TIMEOUT if timeout is None else timeout
    if init_method is not None or rank >= 0 or world_size > 0:
        if init_method is None:
            os.environ.setdefault("MASTER_PORT", str(distributed_port))
        dist.init_process_group(
            backend, init_method=init_method, timeout=limit, rank=rank, world_size=world_size
        )
    elif (place := launched_place()) is None:
        refuse_other_launchers()
        dist.init_process_group(
            backend, store=dist.HashStore(), rank=0, world_size=1, timeout=limit
        )
    else:
        own, count = place
        if "MASTER_ADDR" in os.environ:
            os.environ.setdefault("MASTER_PORT", str(distributed_port))
            dist.init_process_group(backend, rank=own, world_size=count, timeout=limit)
        else:
            store = store_of_meron(own, count, limit)
            dist.init_process_group(backend, store=store, rank=own, world_size=count, timeout=limit)


def launched_place() -> tuple[int, int] | None:
    """Returns rank and world size from the launcher's variables, or None."""
    if "MERON_WORLD_SIZE" in os.environ:
        return number_of("MERON_RANK"), number_of("MERON_WORLD_SIZE")
    if all(name in os.environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR")):
        return number_of("RANK"), number_of("WORLD_SIZE")
    return None


def default_backend() -> str:
    """ "nccl" if this process sees a CUDA device that it can use, else "gloo"."""
    forced = os.environ.get("DS_ACCELERATOR")
    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    return "nccl" if cuda and forced in (None, "cuda") else "gloo"


def store_of_meron(rank: int, world_size: int, timeout: datetime.timedelta) -> Any:
    """A store at which the ranks of `meron run` meet: they are all on this host. Collective."""
    if world_size == 1:
        return dist.HashStore()
    port = np.zeros(1, np.float32)  # exact: ports are below 2^24
    store: Any = None
    if rank == 0:
        listener = socket.create_server(("127.0.0.1", 0))
        port[0] = listener.getsockname()[1]
        store = dist.TCPStore(
            "127.0.0.1",
            int(port[0]),
            world_size,
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
    over_meron.any_world().world.broadcast(port.view(np.uint8), 0)
    if rank != 0:
        store = dist.TCPStore(
            "127.0.0.1", int(port[0]), world_size, timeout=timeout, wait_for_workers=False
        )
    return store


def refuse_other_launchers() -> None:
    for variable in MPI_VARIABLES:
        text = os.environ.get(variable, "1")
        if text.isdecimal() and int(text) > 1:
            raise errors.argument(
                f"{variable} says that {text} ranks were started, and the environment has no RANK, "
                "WORLD_SIZE and MASTER_ADDR: ranks do not know where to meet",
                subject=variable,
                advice="Set the three in each rank, or start the program by torchrun or meron run.",
            )

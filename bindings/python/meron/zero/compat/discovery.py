# SPDX-License-Identifier: Apache-2.0
"""deepspeed.comm: the environment of ranks that no launcher of torch started.

`init_distributed` itself needs none of these functions for one process, and asks for RANK,
WORLD_SIZE and MASTER_ADDR where MPI or Slurm started several.
"""

from __future__ import annotations

import os

from meron import errors
from meron.zero.compat.rendezvous import PORT

# By launcher: variables with the rank, the number of ranks, and both on this host.
MPI_VARIABLES = (
    (
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        *("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
)
MPI_WORLD_SIZE_ENV_VARS = (
    *("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"),
    "SLURM_STEP_NUM_TASKS",
)


def number_in(variable: str) -> int:
    """A whole number of the environment; -1 if there is none."""
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else -1


def in_multi_rank_mpi_job() -> bool:
    """True if a launcher of MPI or Slurm has started several ranks."""
    return any(number_in(variable) > 1 for variable in MPI_WORLD_SIZE_ENV_VARS)


def single_process_discovery(distributed_port: int = PORT, verbose: bool = True) -> None:
    """Sets the variables of torch.distributed for one process. Those that are set stay."""
    fill_environment(0, 1, 0, distributed_port)


def mpi_discovery(distributed_port: int = PORT, verbose: bool = True) -> None:
    """Sets the variables of torch.distributed from those of MPI or Slurm. Those that are set stay.

    Raises ArgumentError if no launcher has set its variables, or if it started ranks on several
    hosts and the environment has no MASTER_ADDR.
    """
    for rank_name, size_name, local_name, here_name in MPI_VARIABLES:
        rank, size = number_in(rank_name), number_in(size_name)
        if rank < 0 or size < 1:
            continue
        if "MASTER_ADDR" not in os.environ and number_in(here_name) != size:
            raise errors.argument(
                f"{size_name} is {size}, and the environment has no MASTER_ADDR",
                subject="MASTER_ADDR",
                advice="Set MASTER_ADDR to the address of rank 0's host, on all ranks.",
            )
        fill_environment(rank, size, max(number_in(local_name), 0), distributed_port)
        return
    raise errors.argument(
        "no launcher of MPI or Slurm has set its variables, such as OMPI_COMM_WORLD_RANK",
        subject="RANK",
        advice="Start the program by mpirun, srun, torchrun or meron run.",
    )


def fill_environment(rank: int, size: int, local: int, port: int) -> None:
    values = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "MASTER_PORT": port}
    for name, value in {**values, "MASTER_ADDR": "127.0.0.1"}.items():
        os.environ.setdefault(name, str(value))


def in_aml() -> bool:
    """True within Azure Machine Learning."""
    return "AZUREML_EXPERIMENT_ID" in os.environ


def in_aws_sm() -> bool:
    """True within AWS SageMaker."""
    return "SM_TRAINING_ENV" in os.environ


def in_dlts() -> bool:
    """True within a cluster of DLTS."""
    return "DLTS_JOB_ID" in os.environ


__all__ = [
    "MPI_WORLD_SIZE_ENV_VARS",
    "in_aml",
    "in_aws_sm",
    "in_dlts",
    "in_multi_rank_mpi_job",
    "mpi_discovery",
    "single_process_discovery",
]

# SPDX-License-Identifier: Apache-2.0
"""deepspeed.launcher.runner: functions over hostfiles that scripts call themselves."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from meron.zero.dropin.hosts import (
    Hosts,
    LaunchError,
    counted_slots,
    remaining_slots,
    selected_slots,
)

logger = logging.getLogger("meron.zero")

DLTS_HOSTFILE = "/job/hostfile"
# Prefixes of environment variables that DeepSpeed's launcher passes on to other nodes, and the file
# of further ones. accelerate's launcher reads it in the home folder and in the current one.
EXPORT_ENVS = ["MLFLOW", "PYTHON", "MV2", "UCX"]
DEEPSPEED_ENVIRONMENT_NAME = os.environ.get("DS_ENV_FILE", ".deepspeed_env")
DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]
PDSH_MAX_FAN_OUT = 1024


def fetch_hostfile(hostfile_path: str | os.PathLike[str]) -> dict[str, int] | None:
    """The number of slots of each host of a file; None, with a warning, if there is no file.

    Raises ValueError for a line that is not of the form NAME slots=N.
    """
    if not os.path.isfile(hostfile_path):
        logger.warning("there is no hostfile %s: ranks start on this host", hostfile_path)
        return None
    return counted_slots(Path(hostfile_path).read_text().splitlines(), f"{hostfile_path}")


def _parse_hostfile(hostfile_lines: Iterable[str]) -> dict[str, int]:
    """The number of slots of each host. Raises ValueError for a line that is wrong."""
    return counted_slots(hostfile_lines, "hostfile")


def parse_resource_filter(
    host_info: Mapping[str, list[int]], include_str: str = "", exclude_str: str = ""
) -> Hosts:
    """The slots of the hosts that `include_str` names, or all but those of `exclude_str`.

    Args:
        host_info: by host, its slots.
        include_str, exclude_str: NAME[:SLOT,...][@NAME...]; one of them at most.

    Raises ValueError for a host or a slot that does not exist.
    """
    if include_str and exclude_str:
        raise LaunchError("include_str and exclude_str are both given. Give one of them")
    hosts = {name: list(slots) for name, slots in host_info.items()}
    if include_str:
        return selected_slots(hosts, include_str, "include_str")
    return remaining_slots(hosts, exclude_str, "exclude_str") if exclude_str else hosts


def parse_inclusion_exclusion(
    resource_pool: Mapping[str, int], inclusion: str, exclusion: str
) -> Hosts:
    """As parse_resource_filter, for hosts whose number of slots is known."""
    hosts = {name: list(range(count)) for name, count in resource_pool.items()}
    return parse_resource_filter(hosts, inclusion, exclusion)


__all__ = [
    "DEEPSPEED_ENVIRONMENT_NAME",
    "DEEPSPEED_ENVIRONMENT_PATHS",
    "DLTS_HOSTFILE",
    "EXPORT_ENVS",
    "PDSH_MAX_FAN_OUT",
    "_parse_hostfile",
    "fetch_hostfile",
    "parse_inclusion_exclusion",
    "parse_resource_filter",
]

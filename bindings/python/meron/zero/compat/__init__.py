# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's module tree over meron.zero.

    import meron.zero.compat as deepspeed

`install()` puts the same tree under the name `deepspeed` in this process, for code that imports it
elsewhere, such as `from deepspeed.utils import safe_get_full_grad`. `python -m meron.zero.dropin`
prints a folder for PYTHONPATH that does so for programs as they are, and for packages that ask
importlib whether DeepSpeed is installed.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import sys
from typing import Any

import torch

import meron
from meron import zero
from meron.torch.ranks import local_rank
from meron.torch.resolve.device import DEVICE_VARIABLE
from meron.torch.sharding import unit_of
from meron.zero.compat import accelerator, refused, tree
from meron.zero.compat import distributed as comm
from meron.zero.compat.accelerator import get_accelerator
from meron.zero.compat.constants import TORCH_DISTRIBUTED_DEFAULT_PORT
from meron.zero.compat.helpers import OnDevice
from meron.zero.compat.rendezvous import init_distributed
from meron.zero.compat.tree import DeepSpeedOptimizer, install
from meron.zero.dropin.version import GIT, version_numbers
from meron.zero.dropin.version import VERSION as __version__
from meron.zero.engine import Engine as DeepSpeedEngine
from meron.zero.initialize import initialize as initialize_engine
from meron.zero.utils import log_dist, logger

dist = comm
version = __version__
__version_major__, __version_minor__, __version_patch__ = version_numbers()
git_hash = git_branch = __git_hash__ = __git_branch__ = GIT
DeepSpeedOptimizerCallable = DeepSpeedSchedulerCallable = Any


@functools.wraps(initialize_engine)
def initialize(*args: Any, **kwargs: Any) -> Any:
    """Calls init_distributed, for scripts that use torch.distributed, then meron.zero.initialize.

    `dist_init_required=False` makes no process group. As in DeepSpeed, a model that was built on
    the CPU computes on the accelerator, if the host has one: on the CUDA device LOCAL_RANK, which
    becomes the current device. `device` or MERON_TORCH_DEVICE choose another. A config that does
    not set `gradient_clipping` clips at DeepSpeed's default.
    """
    # Tests and scripts look for DeepSpeed's own words in the log.
    log_dist(
        f"DeepSpeed info: version={__version__}, git-hash={git_hash}, git-branch={git_branch}",
        ranks=[0],
    )
    given = inspect.signature(initialize_engine).bind_partial(*args, **kwargs).arguments
    if comm.is_available():
        port = given.get("distributed_port") or TORCH_DISTRIBUTED_DEFAULT_PORT
        required = given.get("dist_init_required")
        init_distributed(distributed_port=port, dist_init_required=required)
    if kwargs.get("device") is None:
        kwargs["device"] = accelerator_device(given.get("model"))
    kwargs.setdefault("deepspeed_defaults", True)
    return initialize_engine(*args, **kwargs)


def accelerator_device(model: Any) -> str | None:
    """The CUDA device for a model that resides on the CPU and is not sharded; None leaves the
    choice to meron.zero.initialize."""
    device = get_accelerator()
    if not device.cuda or DEVICE_VARIABLE in os.environ or not isinstance(model, torch.nn.Module):
        return None
    if any(
        unit_of(p) is not None or p.device.type not in ("cpu", "meta") for p in model.parameters()
    ):
        return None
    number = local_rank()
    if number is not None and number < device.device_count():
        device.set_device(number)
    return device.current_device_name()


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The command line arguments that scripts of DeepSpeed take."""
    group = parser.add_argument_group("DeepSpeed", "configurations of meron.zero")
    group.add_argument("--deepspeed", action="store_true", help="use the engine")
    group.add_argument("--deepspeed_config", type=str, help="path of the config, a JSON file")
    known = {action.dest for action in parser._actions}
    if "local_rank" not in known:
        group.add_argument("--local_rank", type=int, default=-1, help="set by launchers")
    return parser


def __getattr__(name: str) -> Any:
    """DeepSpeedConfig and the other classes of configs, which need pydantic."""
    if name.startswith("DeepSpeed"):
        return getattr(sys.modules["meron.zero.config"], name)
    raise AttributeError(
        f"deepspeed of Meron {meron.__version__} has no {name!r}: docs/torch_deepspeed.md lists "
        "what it has"
    )


globals().update(refused.names_of(""))
tree.fill(sys.modules[__name__])

__all__ = [
    *refused.NAMES[""],
    "DeepSpeedEngine",
    "DeepSpeedOptimizer",
    "OnDevice",
    "accelerator",
    "add_config_arguments",
    "comm",
    "dist",
    "get_accelerator",
    "init_distributed",
    "initialize",
    "install",
    "log_dist",
    "logger",
    "zero",
]

# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's module tree, so that a script runs by changing one import.

    import meron.zero.compat as deepspeed

`install()` puts the same under the name `deepspeed` for code that imports it elsewhere, such as
`from deepspeed.utils import safe_get_full_grad`.
"""

from __future__ import annotations

import argparse
import sys
import types
from typing import Any

import meron
from meron import errors, zero
from meron.zero import comm, utils
from meron.zero import estimate as _estimate
from meron.zero import ops as _ops
from meron.zero import schedulers as _schedulers
from meron.zero.comm import init_distributed
from meron.zero.engine import Engine as DeepSpeedEngine
from meron.zero.initialize import initialize

__version__ = meron.__version__
dist = comm


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The command line arguments that scripts of DeepSpeed take."""
    group = parser.add_argument_group("DeepSpeed", "configurations of meron.zero")
    group.add_argument("--deepspeed", action="store_true", help="use the engine")
    group.add_argument("--deepspeed_config", type=str, help="path of the config, a JSON file")
    known = {action.dest for action in parser._actions}
    if "local_rank" not in known:
        group.add_argument("--local_rank", type=int, default=-1, help="set by launchers")
    return parser


def _namespace(name: str, **content: Any) -> types.ModuleType:
    module = types.ModuleType(f"{__name__}.{name}")
    module.__dict__.update(content)
    return module


ops = _namespace(
    "ops",
    adam=_namespace("ops.adam", FusedAdam=_ops.FusedAdam, DeepSpeedCPUAdam=_ops.DeepSpeedCPUAdam),
    adagrad=_namespace("ops.adagrad", DeepSpeedCPUAdagrad=_ops.DeepSpeedCPUAdagrad),
    lion=_namespace("ops.lion", FusedLion=_ops.FusedLion, DeepSpeedCPULion=_ops.DeepSpeedCPULion),
)
runtime = _namespace(
    "runtime",
    zero=_namespace(
        "runtime.zero",
        stage3=_estimate,
        stage_1_and_2=_estimate,
        partition_parameters=zero,
    ),
    lr_schedules=_schedulers,
    engine=_namespace("runtime.engine", DeepSpeedEngine=DeepSpeedEngine),
)


def install(name: str = "deepspeed") -> None:
    """Makes `import deepspeed` and imports from its parts mean this. Before they are imported."""
    if name in sys.modules and sys.modules[name] is not sys.modules[__name__]:
        raise errors.StateError(
            f"{name} is imported already", advice="Call meron.zero.compat.install() before."
        )
    tree = {
        "": sys.modules[__name__],
        ".zero": zero,
        ".utils": utils,
        ".utils.zero_to_fp32": utils.zero_to_fp32,
        ".comm": comm,
        ".ops": ops,
        ".ops.adam": ops.adam,
        ".ops.adagrad": ops.adagrad,
        ".ops.lion": ops.lion,
        ".runtime": runtime,
        ".runtime.zero": runtime.zero,
        ".runtime.zero.stage3": runtime.zero.stage3,
        ".runtime.zero.stage_1_and_2": runtime.zero.stage_1_and_2,
        ".runtime.zero.partition_parameters": zero,
        ".runtime.lr_schedules": _schedulers,
        ".runtime.engine": runtime.engine,
    }
    for suffix, module in tree.items():
        sys.modules[name + suffix] = module


__all__ = [
    "DeepSpeedEngine",
    "add_config_arguments",
    "comm",
    "dist",
    "init_distributed",
    "initialize",
    "install",
    "ops",
    "runtime",
    "utils",
    "zero",
]

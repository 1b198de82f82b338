# SPDX-License-Identifier: Apache-2.0
"""The constants of deepspeed.runtime.lr_schedules: names of schedules and of their arguments; and
schedules that command lines name."""

from __future__ import annotations

import argparse
from typing import Any

LR_SCHEDULE = "lr_schedule"
LR_RANGE_TEST = "LRRangeTest"
ONE_CYCLE = "OneCycle"
WARMUP_LR = "WarmupLR"
WARMUP_DECAY_LR = "WarmupDecayLR"
WARMUP_COSINE_LR = "WarmupCosineLR"
VALID_LR_SCHEDULES = [LR_RANGE_TEST, ONE_CYCLE, WARMUP_LR, WARMUP_DECAY_LR, WARMUP_COSINE_LR]

LR_RANGE_TEST_MIN_LR = "lr_range_test_min_lr"
LR_RANGE_TEST_STEP_RATE = "lr_range_test_step_rate"
LR_RANGE_TEST_STEP_SIZE = "lr_range_test_step_size"
LR_RANGE_TEST_STAIRCASE = "lr_range_test_staircase"

CYCLE_FIRST_STEP_SIZE = "cycle_first_step_size"
CYCLE_FIRST_STAIR_COUNT = "cycle_first_stair_count"
CYCLE_SECOND_STEP_SIZE = "cycle_second_step_size"
CYCLE_SECOND_STAIR_COUNT = "cycle_second_stair_count"
DECAY_STEP_SIZE = "decay_step_size"

CYCLE_MIN_LR = "cycle_min_lr"
CYCLE_MAX_LR = "cycle_max_lr"
DECAY_LR_RATE = "decay_lr_rate"

CYCLE_MIN_MOM = "cycle_min_mom"
CYCLE_MAX_MOM = "cycle_max_mom"
DECAY_MOM_RATE = "decay_mom_rate"

WARMUP_MIN_LR = "warmup_min_lr"
WARMUP_MAX_LR = "warmup_max_lr"
WARMUP_NUM_STEPS = "warmup_num_steps"
WARMUP_TYPE = "warmup_type"
WARMUP_LOG_RATE = "log"
WARMUP_LINEAR_RATE = "linear"

WARMUP_MIN_RATIO = "warmup_min_ratio"
COS_MIN_RATIO = "cos_min_ratio"

TOTAL_NUM_STEPS = "total_num_steps"

_WARMUP = {
    WARMUP_MIN_LR: (float, 0.0),
    WARMUP_MAX_LR: (float, 0.001),
    WARMUP_NUM_STEPS: (int, 1000),
    WARMUP_TYPE: (str, WARMUP_LOG_RATE),
}
# Arguments of a command line by schedule: the type, and DeepSpeed's default of the argument.
_ARGUMENTS: dict[str, dict[str, tuple[Any, Any]]] = {
    LR_RANGE_TEST: {
        LR_RANGE_TEST_MIN_LR: (float, 0.001),
        LR_RANGE_TEST_STEP_RATE: (float, 1.0),
        LR_RANGE_TEST_STEP_SIZE: (int, 1000),
        LR_RANGE_TEST_STAIRCASE: (bool, False),
    },
    ONE_CYCLE: {
        CYCLE_FIRST_STEP_SIZE: (int, 1000),
        CYCLE_FIRST_STAIR_COUNT: (int, -1),
        CYCLE_SECOND_STEP_SIZE: (int, -1),
        CYCLE_SECOND_STAIR_COUNT: (int, -1),
        DECAY_STEP_SIZE: (int, 1000),
        CYCLE_MIN_LR: (float, 0.01),
        CYCLE_MAX_LR: (float, 0.1),
        DECAY_LR_RATE: (float, 0.0),
        "cycle_momentum": (bool, False),
        CYCLE_MIN_MOM: (float, 0.8),
        CYCLE_MAX_MOM: (float, 0.9),
        DECAY_MOM_RATE: (float, 0.0),
    },
    WARMUP_LR: _WARMUP,
    WARMUP_DECAY_LR: _WARMUP,
    WARMUP_COSINE_LR: {
        WARMUP_NUM_STEPS: (int, 1000),
        WARMUP_TYPE: (str, WARMUP_LOG_RATE),
        WARMUP_MIN_RATIO: (float, 0.01),
        COS_MIN_RATIO: (float, 0.01),
    },
}
# Of an argument that stands for "not given": the schedule's own default applies.
_NOT_GIVEN = -1


def add_tuning_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds the arguments by which a command line names a schedule. Returns the parser."""
    group = parser.add_argument_group("learning rate schedules")
    group.add_argument(f"--{LR_SCHEDULE}", type=str, help=", ".join(VALID_LR_SCHEDULES))
    every = {name: of for block in _ARGUMENTS.values() for name, of in block.items()}
    for name, (kind, default) in every.items():
        if kind is bool:
            group.add_argument(f"--{name}", action="store_true")
        else:
            group.add_argument(f"--{name}", type=kind, default=default)
    return parser


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """The arguments of a schedule on this process's command line, and the others."""
    return add_tuning_arguments(argparse.ArgumentParser()).parse_known_args()


def get_config_from_args(args: Any) -> tuple[dict[str, Any] | None, str | None]:
    """The block `scheduler` of a config that command-line arguments name, and None; or None, and
    what is wrong."""
    kind = getattr(args, LR_SCHEDULE, None)
    if kind is None:
        return None, f"--{LR_SCHEDULE} is not given"
    if kind not in VALID_LR_SCHEDULES:
        return None, f"{kind} is no schedule: {', '.join(VALID_LR_SCHEDULES)} are known"
    params = {}
    for name in _ARGUMENTS[kind]:
        value = getattr(args, name, None)
        if value is not None and value != _NOT_GIVEN:
            params[name] = value
    return {"type": kind, "params": params}, None


def get_lr_from_config(config: dict[str, Any]) -> tuple[float | None, str]:
    """The learning rate that a block `scheduler` starts or ends a warm-up with, and ""; or None,
    and why there is none."""
    for key in ("type", "params"):
        if key not in config:
            return None, f"the scheduler's {key} is not given"
    kind, params = config["type"], config["params"]
    if kind not in VALID_LR_SCHEDULES:
        return None, f"{kind} is no schedule: {', '.join(VALID_LR_SCHEDULES)} are known"
    if kind == WARMUP_COSINE_LR:
        return None, f"{kind} multiplies the optimizer's own rates"
    names = {LR_RANGE_TEST: LR_RANGE_TEST_MIN_LR, ONE_CYCLE: CYCLE_MAX_LR}
    return params[names.get(kind, WARMUP_MAX_LR)], ""

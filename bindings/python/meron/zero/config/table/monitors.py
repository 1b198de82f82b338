# SPDX-License-Identifier: Apache-2.0
"""The blocks of monitors, which write learning rates and losses of a run."""

from __future__ import annotations

from .kinds import Flag, Table, Text, Whole
from .rows import Key, Section, works

NAMES = ("tensorboard", "wandb", "csv_monitor", "comet")
JOB = "DeepSpeedJobName"

TOP = (
    works("tensorboard", Table(), None, "scalars for TensorBoard", nullable=True),
    works("wandb", Table(), None, "scalars for Weights & Biases", nullable=True),
    works("csv_monitor", Table(), None, "scalars in files of CSV", nullable=True),
    works("comet", Table(), None, "scalars for Comet", nullable=True),
)


def enabled(says: str) -> Key:
    return works("enabled", Flag(), False, says)


def text(name: str, says: str) -> Key:
    return works(name, Text(), None, says, nullable=True)


FILES = (
    works("output_path", Text(), "", "a folder"),
    works("job_name", Text(), JOB, "a folder in it"),
)

SECTIONS = (
    Section(
        "tensorboard",
        "TensorBoard",
        (
            enabled(
                "rank 0 writes learning rate, loss and loss scale by `torch.utils.tensorboard`; "
                "without the package tensorboard it logs a warning"
            ),
            *FILES,
        ),
    ),
    Section(
        "wandb",
        "Weights & Biases",
        (
            enabled("the same by `wandb.log`; without the package wandb rank 0 logs a warning"),
            text("group", "`group` of `wandb.init`"),
            text("team", "`entity` of `wandb.init`"),
            works("project", Text(), "deepspeed", "`project` of `wandb.init`"),
        ),
    ),
    Section(
        "csv_monitor",
        "CSV files",
        (enabled("the same in a file per scalar, which each step appends to"), *FILES),
    ),
    Section(
        "comet",
        "Comet",
        (
            enabled("the same by `comet_ml`; without this package rank 0 logs a warning"),
            works("samples_log_interval", Whole(), 100, "samples between two values of a scalar"),
            text("project", "`project` of `comet_ml.start`"),
            text("workspace", "`workspace` of `comet_ml.start`"),
            text("api_key", "`api_key` of `comet_ml.start`"),
            text("experiment_name", "the name of the experiment"),
            text("experiment_key", "`experiment_key` of `comet_ml.start`"),
            works("online", Flag(), None, "`online` of `comet_ml.start`", nullable=True),
            text("mode", "`mode` of `comet_ml.start`"),
        ),
    ),
)

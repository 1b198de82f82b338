# SPDX-License-Identifier: Apache-2.0
"""A folder for PYTHONPATH in which `deepspeed` is meron.zero.

    PYTHONPATH=$(python -m meron.zero.dropin) torchrun --nproc-per-node 2 train.py

Programs and libraries that import DeepSpeed then run on Meron unmodified: Trainer of transformers,
accelerate, TRL, PEFT. They ask importlib whether DeepSpeed is installed and in which version, so
the folder holds the metadata of a distribution too. Nothing is installed, and an installed
DeepSpeed is in use again without the folder. `python -m meron.zero.dropin --bin` prints a folder
for PATH with the commands `deepspeed` and `ds_report`.
"""

from __future__ import annotations

from meron.zero.dropin.folders import bin_folder, folder, python_path
from meron.zero.dropin.import_deepspeed import take_name
from meron.zero.dropin.version import SUFFIX, VERSION

__all__ = ["SUFFIX", "VERSION", "bin_folder", "folder", "python_path", "take_name"]

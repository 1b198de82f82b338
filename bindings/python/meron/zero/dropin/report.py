# SPDX-License-Identifier: Apache-2.0
"""The report of `python -m meron.zero.dropin --check` and of `ds_report`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform

import torch

import meron
from meron.zero.dropin.folders import folder
from meron.zero.dropin.version import SUFFIX, VERSION

# Libraries that use DeepSpeed, and the version of it that they ask for.
USERS = {
    "transformers": "0.9.3",
    "accelerate": "0.9.3",
    "trl": "0.14.4",
    "peft": "0.9.3",
    "lightning": "0.16.0",
    "pytorch-lightning": "0.16.0",
}


def version_of(taken: bool) -> str:
    """The version that importlib.metadata finds; a source tree has none."""
    try:
        return VERSION if taken else importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError:
        return "a source tree"


def lines() -> tuple[list[str], bool]:
    """The report, and whether `import deepspeed` means Meron here."""
    spec = importlib.util.find_spec("deepspeed")
    taken = False
    if spec is None or spec.origin is None:
        text = ["deepspeed: not found"]
    else:
        taken = spec.origin.startswith(folder())
        owner = "Meron's" if taken else "not Meron's"
        text = [f"deepspeed: {version_of(taken)}, {owner}: {spec.origin}"]
    installed = [one.version for one in importlib.metadata.distributions(name="deepspeed")]
    others = [version for version in installed if not version.endswith(SUFFIX)]
    if others and taken:
        text.append(f"DeepSpeed {others[0]} is installed too, and is not used")
    for name, needed in USERS.items():
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        text.append(f"{name} {found}: needs deepspeed >= {needed}")
    if not taken:
        text.append("To use Meron: PYTHONPATH=$(python -m meron.zero.dropin)")
    return text, taken


def environment_lines() -> list[str]:
    """The table of ds_report: operators, then versions and places."""
    from meron.zero.compat import builders  # of a package that imports this module
    from meron.zero.dropin.launcher import find_meron

    text = ["operator".ljust(24) + "compatible"]
    for name in sorted(builders.ALL_OPS):
        builder = builders.ALL_OPS[name]
        compatible = builder.is_compatible() if hasattr(builder, "is_compatible") else True
        text.append(name.ljust(24) + ("yes" if compatible else "no"))
    devices = torch.cuda.device_count()
    names = sorted({torch.cuda.get_device_name(index) for index in range(devices)})
    rows = {
        "meron": f"{meron.__version__} ({meron.__file__})",
        "library": meron.library_path,
        "command": find_meron() or "not found (`deepspeed` then uses torchrun)",
        "torch": f"{torch.__version__} ({torch.__file__})",
        "CUDA of torch": torch.version.cuda or "none",
        "devices": f"{devices} ({', '.join(names)})"
        if devices
        else "none: ranks compute on the CPU",
        "Python": platform.python_version(),
    }
    text.append("")
    text += [f"{name.ljust(24)}{value}" for name, value in rows.items()]
    return [*text, *lines()[0]]


def main() -> None:
    """The command ds_report."""
    print("\n".join(environment_lines()))

# SPDX-License-Identifier: Apache-2.0
"""What `python -m meron.zero.dropin --check` prints."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from meron.zero import dropin

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
        return dropin.VERSION if taken else importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError:
        return "a source tree"


def lines() -> tuple[list[str], bool]:
    """The report, and whether `import deepspeed` means Meron here."""
    spec = importlib.util.find_spec("deepspeed")
    taken = False
    if spec is None or spec.origin is None:
        text = ["deepspeed: not found"]
    else:
        taken = spec.origin.startswith(dropin.folder())
        owner = "Meron's" if taken else "not Meron's"
        text = [f"deepspeed: {version_of(taken)}, {owner}: {spec.origin}"]
    installed = [one.version for one in importlib.metadata.distributions(name="deepspeed")]
    others = [version for version in installed if not version.endswith(dropin.SUFFIX)]
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

# SPDX-License-Identifier: Apache-2.0
"""The two trees that Lightning can be imported as: `lightning` and `pytorch_lightning`.

Their classes have equal names and no common base, so each tree gets strategies of its own.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from meron import errors

# The distribution, its Trainer's package, its Fabric's package.
KNOWN = {
    "lightning": ("lightning.pytorch", "lightning.fabric"),
    "pytorch_lightning": ("pytorch_lightning", "lightning_fabric"),
}
OLDEST = (2, 5)
# Published by an attacker, and withdrawn.
COMPROMISED = ("2.6.2", "2.6.3")


@dataclass(frozen=True)
class Tree:
    """One importable tree.

    Attributes:
        name:   "lightning" or "pytorch_lightning".
        pl:     the package of the Trainer.
        fabric: the package of Fabric.
    """

    name: str
    pl: ModuleType
    fabric: ModuleType

    def get(self, path: str) -> Any:
        """An object of the tree: `pl.` or `fabric.`, the module's path, and the name in it."""
        package, _, rest = path.partition(".")
        module, _, name = rest.rpartition(".")
        root = (self.pl if package == "pl" else self.fabric).__name__
        return getattr(importlib.import_module(f"{root}.{module}" if module else root), name)


def installed() -> list[str]:
    """The trees that are installed."""
    return [name for name in KNOWN if importlib.util.find_spec(name) is not None]


def in_use() -> list[str]:
    """The trees that this process has imported; all installed ones if it has imported none."""
    loaded = [name for name in installed() if KNOWN[name][0] in sys.modules]
    loaded += [name for name in installed() if KNOWN[name][1] in sys.modules and name not in loaded]
    return loaded or installed()


@functools.cache
def tree(name: str) -> Tree:
    """Imports a tree.

    Raises ImportError: it is not installed, is older than 2.5, or is one of the releases that were
    withdrawn after an attack.
    """
    if name not in KNOWN:
        raise errors.argument(
            f"{name!r} is no tree of Lightning", advice=f"Pass one of {[*KNOWN]}."
        )
    if importlib.util.find_spec(name) is None:
        raise ImportError(
            f"meron.lightning needs {name}, which is not installed. "
            "Install it by `pip install 'lightning>=2.5,!=2.6.2,!=2.6.3'`."
        )
    pl, fabric = (importlib.import_module(path) for path in KNOWN[name])
    check_version(name, str(pl.__version__))
    return Tree(name, pl, fabric)


def check_version(name: str, version: str) -> None:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if version in COMPROMISED:
        raise ImportError(
            f"{name} {version} was withdrawn: an attacker had published it. Install another "
            "release, and renew all secrets that this machine had."
        )
    if numbers < OLDEST:
        raise ImportError(
            f"meron.lightning needs {name} >= 2.5; {version} is installed. "
            f"Upgrade it by `pip install -U '{name.replace('_', '-')}>=2.5,!=2.6.2,!=2.6.3'`."
        )

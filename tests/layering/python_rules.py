#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where modules of the Python package break one of three rules.

    python3 tests/layering/python_rules.py [FOLDER]

Private names of PyTorch are in meron/torch/torch_internals.py alone. Module-level state of
meron.torch is in meron/torch/registry.py alone. Packages import none that is above them (LAYERS).
FOLDER holds the package `meron` (bindings/python).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import python_circles  # beside this file

ROOT = Path(__file__).resolve().parents[2]
INTERNALS, REGISTRY = "meron.torch.torch_internals", "meron.torch.registry"

# A package imports those that are listed before it.
LAYERS = ("meron", "meron.checkpointing", "meron.torch", "meron.zero", "meron.lightning")
# Packages whose modules take PyTorch's private names from INTERNALS.
USERS = ("meron.torch", "meron.zero", "meron.lightning")
# Private names of others than PyTorch: sys, argparse, NamedTuple; Lightning's and Hugging Face's.
OTHERS = {"_getframe", "_replace", "_actions", "_after_closure", "_layer_sync"}
OTHERS |= {"_convert_stateful_objects_in_state"}
PUBLIC = {"grad_fn"}  # of PyTorch, which only INTERNALS uses, too

CONTAINERS = "dict list set deque Counter defaultdict OrderedDict count local Lock RLock Event"
CONTAINERS += " WeakSet WeakKeyDictionary WeakValueDictionary bytearray"

Offence = tuple[int, str]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.strip("_") != ""


def package_of(name: str, packages: tuple[str, ...]) -> str:
    """The innermost of some packages that a module is in."""
    found = [each for each in packages if name == each or name.startswith(each + ".")]
    return max(found, key=len, default="")


# ---- Private names ------------------------------------------------------------------------------


def words_in(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names in attributes, and in strings that are names, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"[\w. ]+", node.value)
            for word in re.split(r"[. ]", node.value) if named else ():
                yield word, node.lineno


def defined_in(trees: dict[str, ast.Module]) -> set[str]:
    """Private names that the package itself gives to functions, and to members of classes."""
    found = set()
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                found.update([node.attr] if owner in ("self", "cls") else [])
    return found


def private_names(tree: ast.Module, own: set[str], torchs: set[str]) -> Iterator[Offence]:
    """`own` are the package's private names, `torchs` those that INTERNALS has."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            known = node.attr.startswith("_meron") or node.attr in own | torchs | OTHERS
            names = [] if known else [f"torch.{node.attr}"]
        for name in names:
            if name.split(".")[0] == "torch" and any(map(is_private, name.split("."))):
                yield getattr(node, "lineno", 0), name
    for word, line in words_in(tree):
        if word in torchs | PUBLIC:
            yield line, word


# ---- State --------------------------------------------------------------------------------------


def state(tree: ast.Module) -> Iterator[Offence]:
    """Module-level names of what may change: containers that are empty or in lower case, None, and
    objects that are made to hold something."""
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (each.id for each in targets if isinstance(each, ast.Name)):
                if name != "__all__" and holds(node.value, constant=name.isupper()):
                    yield node.lineno, name
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Global):
            yield inner.lineno, f"global {', '.join(inner.names)}"


def holds(value: ast.expr, constant: bool) -> bool:
    if isinstance(value, ast.Constant):
        return value.value is None and not constant
    if isinstance(value, (ast.Dict, ast.List, ast.Set)):
        elements = value.keys if isinstance(value, ast.Dict) else value.elts
        return not constant or not elements
    if isinstance(value, (ast.DictComp, ast.ListComp, ast.SetComp)):
        return not constant
    if isinstance(value, ast.Call):
        function = value.func
        name = function.attr if isinstance(function, ast.Attribute) else ""
        name = function.id if isinstance(function, ast.Name) else name
        return name in CONTAINERS.split() and not (constant and value.args)
    return False


# ---- Layers -------------------------------------------------------------------------------------


def imports_from_above(name: str, path: Path, modules: dict[str, Path]) -> Iterator[Offence]:
    own = package_of(name, LAYERS)
    for other, line in python_circles.imported(name, path, modules):
        theirs = package_of(other, LAYERS)
        # (What is in none of them, such as meron.convert, is in "meron", and below nothing.)
        if own in LAYERS[1:] and LAYERS.index(theirs) > LAYERS.index(own):
            yield line, other


def main(words: list[str]) -> int:
    folder = Path(words[0]) if words else ROOT / "bindings" / "python"
    modules = python_circles.modules_of(folder)
    if INTERNALS not in modules:
        print(f"there is no {INTERNALS} in {folder}")
        return 2
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in modules.items()}
    others = {name: tree for name, tree in trees.items() if name != INTERNALS}
    own = defined_in(others)
    torchs = {word for word, _ in words_in(trees[INTERNALS]) if is_private(word)} - own
    count = 0
    for name, path in modules.items():
        found = [(line, f"imports {other}, which is above") for line, other in
                 imports_from_above(name, path, modules)]  # fmt: skip
        if package_of(name, USERS) and name != INTERNALS:
            for line, word in private_names(trees[name], own, torchs):
                found.append((line, f"uses {word}: take it from {INTERNALS}"))
        if package_of(name, ("meron.torch",)) and name != REGISTRY:
            for line, word in state(trees[name]):
                found.append((line, f"has the state {word}: put it into {REGISTRY}"))
        for line, what in found:
            print(f"{path.relative_to(folder)}:{line} {what}")
        count += len(found)
    print(f"{len(modules)} modules, {len(torchs)} private names of PyTorch, {count} offences")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

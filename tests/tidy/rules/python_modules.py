# SPDX-License-Identifier: Apache-2.0
"""Modules of the Python package: no circles, layers, private names of PyTorch, state."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from graphs import circles_of
from tree import File, Offence, Tree

HOME = "bindings/python"
INTERNALS, REGISTRY = "meron.torch.torch_internals", "meron.torch.registry"

# A package imports those that are listed before it.
LAYERS = ("meron", "meron.checkpointing", "meron.torch", "meron.zero", "meron.lightning")
# Packages whose modules take PyTorch's private names from INTERNALS.
USERS = ("meron.torch", "meron.zero", "meron.lightning")
# Private names of sys, argparse, NamedTuple, Lightning and Hugging Face.
OTHERS = {"_getframe", "_replace", "_actions", "_after_closure", "_layer_sync"}
OTHERS |= {"_convert_stateful_objects_in_state"}
PUBLIC = {"grad_fn"}  # a public name of PyTorch that only INTERNALS uses

CONTAINERS = "dict list set deque Counter defaultdict OrderedDict count local Lock RLock Event"
CONTAINERS += " WeakSet WeakKeyDictionary WeakValueDictionary bytearray"
NAMES_IN_STRING = re.compile(r"[\w. ]+")

Modules = dict[str, File]


def modules_of(tree: Tree) -> Modules:
    """The files of the package by dotted name."""
    found = {}
    for file in tree.under(f"{HOME}/meron"):
        if file.suffix == ".py":
            parts = file.name.removeprefix(f"{HOME}/").removesuffix(".py").split("/")
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.strip("_") != ""


def package_of(name: str, packages: tuple[str, ...]) -> str:
    """The innermost of the packages that contains the module."""
    found = [each for each in packages if name == each or name.startswith(each + ".")]
    return max(found, key=len, default="")


# ---- Imports ------------------------------------------------------------------------------------


def imported(name: str, modules: Modules) -> Iterator[tuple[str, int]]:
    """The modules of the package that a module imports, with the line.

    `from a import b` imports a.b if that is a module, else a. Imports within functions and those
    for a type checker count too.
    """
    file = modules[name]
    package = name if file.base == "__init__.py" else name.rpartition(".")[0]
    for node in file.nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [each if each in modules else base for each in names]
        else:
            continue
        for each in dict.fromkeys(names):
            if each in modules and each != name:
                yield each, node.lineno


def graph_of(modules: Modules) -> dict[str, dict[str, int]]:
    return {name: dict(imported(name, modules)) for name in modules}


def circles(tree: Tree) -> Iterator[Offence]:
    """No modules of the Python package import each other in a circle."""
    modules = modules_of(tree)
    graph = graph_of(modules)
    for circle in circles_of(graph):
        for name in circle:
            for other, line in sorted(graph[name].items()):
                if other in circle:
                    said = f"imports {other}, in a circle of {', '.join(circle)}"
                    yield Offence(modules[name].name, line, said)


def imports_from_above(tree: Tree) -> Iterator[Offence]:
    """A Python package imports only packages below it."""
    modules = modules_of(tree)
    for name, file in modules.items():
        own = package_of(name, LAYERS)
        for other, line in imported(name, modules):
            # Modules of no listed package, such as meron.convert, belong to "meron".
            theirs = package_of(other, LAYERS)
            if own in LAYERS[1:] and LAYERS.index(theirs) > LAYERS.index(own):
                yield Offence(file.name, line, f"imports {other}, which is above {own}")


# ---- Private names ------------------------------------------------------------------------------


def words_in(file: File) -> Iterator[tuple[str, int]]:
    """Names of attributes, and names in strings that consist of names, with the line."""
    for node in file.nodes:
        if isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = NAMES_IN_STRING.fullmatch(node.value)
            for word in re.split(r"[. ]", node.value) if named else ():
                yield word, node.lineno


def defined_in(files: Iterable[File]) -> set[str]:
    """Names that the package itself gives to functions, classes and members."""
    found = set()
    for file in files:
        for node in file.nodes:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                owner = node.value.id if isinstance(node.value, ast.Name) else ""
                found.update([node.attr] if owner in ("self", "cls") else [])
    return found


def private_names(file: File, own: set[str], torchs: set[str]) -> Iterator[tuple[int, str]]:
    """PyTorch's private names. `own` are the package's, `torchs` those that INTERNALS has."""
    for node in file.nodes:
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
    for word, line in words_in(file):
        if word in torchs | PUBLIC:
            yield line, word


def internals(tree: Tree) -> Iterator[Offence]:
    """Private names of PyTorch are in meron/torch/torch_internals.py alone."""
    modules = modules_of(tree)
    if not modules:
        return
    if INTERNALS not in modules:
        yield Offence(HOME, 1, f"there is no module {INTERNALS}")
        return
    own = defined_in(file for name, file in modules.items() if name != INTERNALS)
    torchs = {word for word, _ in words_in(modules[INTERNALS]) if is_private(word)} - own
    for name, file in modules.items():
        if package_of(name, USERS) and name != INTERNALS:
            for line, word in private_names(file, own, torchs):
                yield Offence(file.name, line, f"uses {word}: take it from {INTERNALS}")


# ---- State --------------------------------------------------------------------------------------


def state_in(file: File) -> Iterator[tuple[int, str]]:
    """Module-level names of mutable objects: empty or lower-case containers, None, holders."""
    for node in file.python.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (each.id for each in targets if isinstance(each, ast.Name)):
                if name != "__all__" and holds(node.value, constant=name.isupper()):
                    yield node.lineno, name
    for inner in file.nodes:
        if isinstance(inner, ast.Global):
            yield inner.lineno, f"global {', '.join(inner.names)}"


def holds(value: ast.expr, constant: bool) -> bool:
    """True if the value is made to change. `constant`: its name is in upper case."""
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


def state(tree: Tree) -> Iterator[Offence]:
    """Module-level state of meron.torch is in meron/torch/registry.py alone."""
    for name, file in modules_of(tree).items():
        if package_of(name, ("meron.torch",)) and name != REGISTRY:
            for line, word in state_in(file):
                yield Offence(file.name, line, f"has the state {word}: put it into {REGISTRY}")

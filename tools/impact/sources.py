# SPDX-License-Identifier: Apache-2.0
"""Reads who includes, imports and names whom from the sources."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from impact.graph import Graph, folder_node, target_node

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)
INCLUDING = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh", ".i"}
# Includes start at one of these. (See CMakeLists.txt.)
INCLUDE_ROOTS = ("impl", "", "include")
# Folder of modules with bare names, besides the folder of the importing file.
PACKAGES = "bindings/python"
# Modules whose files begin a process by path or read each other as data.
MENTIONING = ("tests", "examples", "bench", "tools")
# A name with a suffix. Pages are links, not data.
FILE_NAME = re.compile(r"[\w./-]+\.(?!md$)[A-Za-z]\w*")
DOTTED = re.compile(r"\w+(?:\.\w+)+")
MOST_CANDIDATES = 4
FOLDER = folder_node("")
# libmeron opens these at run time: the word by which a test's sources name one.
OPENED_BY_NAME = {"meron_emulated": "emulated"}


def tracked(root: Path) -> list[str]:
    """Lists the files of the tree: under version control, and new ones."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return sorted({name for name in done.stdout.split("\0") if name and (root / name).is_file()})


class Names:
    """The files of the tree by their names."""

    def __init__(self, files: Collection[str]) -> None:
        self.files = set(files)
        self.folders = {str(folder) for file in files for folder in PurePosixPath(file).parents}
        self.by_name: dict[str, list[str]] = defaultdict(list)
        self.modules: dict[str, list[str]] = defaultdict(list)  # by bare name
        for file in sorted(self.files):
            path = PurePosixPath(file)
            self.by_name[path.name].append(file)
            if path.name == "__init__.py":
                self.modules[path.parent.name].append(file)
            elif path.suffix == ".py":
                self.modules[path.stem].append(file)

    def ending(self, text: str) -> list[str]:
        """Returns the files whose path is the text or ends with it."""
        name = text.rpartition("/")[2]
        return [
            file for file in self.by_name.get(name, ()) if file == text or file.endswith(f"/{text}")
        ]

    def module(self, base: str, dotted: str) -> Iterator[str]:
        """Yields the files of a module and of the packages around it, from a folder on."""
        path = base
        for word in dotted.split("."):
            path = f"{path}/{word}" if path else word
            for file in (f"{path}.py", f"{path}/__init__.py"):
                if file in self.files:
                    yield file


def add_includes(graph: Graph, file: str, text: str, names: Names) -> None:
    folder = str(PurePosixPath(file).parent)
    for target in INCLUDE.findall(text):
        for start in (folder, *INCLUDE_ROOTS):
            found = str(PurePosixPath(start, target))
            if found in names.files:
                graph.add_use(file, found)
                break
        else:
            for found in names.ending(target):
                graph.add_use(file, found)


def resolve(file: str, dotted: str, names: Names) -> list[str]:
    """Returns the files that an absolute import may mean. In doubt, that is each of its name."""
    top = dotted.split(".")[0]
    folder = str(PurePosixPath(file).parent)
    found = list(names.module(folder, dotted)) or list(names.module(PACKAGES, dotted))
    if found or top in sys.stdlib_module_names:
        return found
    for candidate in names.modules.get(top, []):
        path = PurePosixPath(candidate)
        base = path.parent.parent if path.name == "__init__.py" else path.parent
        if f"{base}/__init__.py" not in names.files:  # else its name begins with a package
            found += names.module(str(base), dotted)
    return found


def imports_of(file: str, tree: ast.AST, names: Names) -> Iterator[str]:
    parts = PurePosixPath(file).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from resolve(file, alias.name, names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            inner = [f"{module}.{alias.name}".strip(".") for alias in node.names]
            if node.level:
                base = "/".join(parts[: -node.level])
                for dotted in (module, *inner):
                    if dotted:
                        yield from names.module(base, dotted)
                if f"{base}/__init__.py" in names.files:
                    yield f"{base}/__init__.py"
            else:
                for dotted in (module, *inner):
                    yield from resolve(file, dotted, names)


def mentions_of(file: str, tree: ast.AST, names: Names) -> Iterator[str]:
    """Yields what a text of the module names: programs it starts, data it reads, or a folder of
    these beside it."""
    folder = str(PurePosixPath(file).parent)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        inner = f"{folder}/{node.value}"
        # A folder with a CMakeLists.txt has tests of its own.
        if inner in names.folders and f"{inner}/CMakeLists.txt" not in names.files:
            yield folder_node(inner)
        if FILE_NAME.fullmatch(node.value):
            found = names.ending(node.value.lstrip("./"))
            found = [each for each in found if each.partition("/")[0] in MENTIONING]
            if len(found) > MOST_CANDIDATES:
                found = [each for each in found if each.startswith(f"{folder}/")]
            yield from found
        if DOTTED.fullmatch(node.value):
            found = resolve(file, node.value, names)
            path = node.value.replace(".", "/")
            if any(each.endswith((f"{path}.py", f"{path}/__init__.py")) for each in found):
                yield from found


def add_python(graph: Graph, file: str, text: str, names: Names) -> None:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return  # the linter reports it
    used = set(imports_of(file, tree, names))
    path = PurePosixPath(file)
    if path.parts[0] in MENTIONING:
        used |= set(mentions_of(file, tree, names))
    if path.parts[0] == "tests":
        used |= {f"{folder}/conftest.py" for folder in path.parents}
    for each in used - {file}:
        graph.add_use(file, each)
        if each.startswith(FOLDER):
            for inside in names.files:
                if inside.startswith(f"{each.removeprefix(FOLDER)}/"):
                    graph.add_use(each, inside)


def add_sources(graph: Graph, root: Path, files: Collection[str]) -> None:
    names = Names(files)
    for file in names.files:
        suffix = PurePosixPath(file).suffix
        if suffix not in INCLUDING and suffix != ".py":
            continue
        text = (root / file).read_text(encoding="utf-8", errors="replace")
        if suffix == ".py":
            add_python(graph, file, text, names)
        else:
            add_includes(graph, file, text, names)
        if file.startswith("tests/"):
            for target, word in OPENED_BY_NAME.items():
                if word in text:
                    graph.add_use(file, target_node(target))

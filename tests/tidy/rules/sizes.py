# SPDX-License-Identifier: Apache-2.0
"""Files and types are one idea each."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import ceilings
import cxx
from ceilings import Measured
from tree import File, Tree

MOST_LINES = 700
MOST_FIELDS = {"struct": 12, "class": 20}
MOST_CLASS_FILES = 2

CODE = {".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".java", ".jl", ".py", ".rs"}
NO_FIELD = re.compile(r"(using|friend|typedef|static_assert|enum|struct|class|union)\b")
CONSTANT = re.compile(r"(inline\s+)?(static\s+constexpr|constexpr\s+static)\b")
ACCESS = re.compile(r"\b(public|private|protected|virtual)\b\s*:?(?!:)")
TEMPLATE_HEAD = re.compile(r"^template\s*")
INITIALIZER = re.compile(r"=[^,]*")
BIT_WIDTH = re.compile(r":\s*\d+\s*$")
BEFORE_NAME = re.compile(r"[\s*&]+")

# The class in `Result<int> Class::member(`.
MEMBER = re.compile(r"((?:[A-Za-z_]\w*::)*[A-Z]\w*)::(?:~?\w+|operator\W{0,3}[\w ]*)\s*$")


# ---- Lines --------------------------------------------------------------------------------------


def measure_lines(tree: Tree) -> Iterator[Measured]:
    for file in tree.files:
        if file.suffix in CODE and not file.is_generated:
            count = file.text.count("\n")
            advice = "split it by its ideas"
            fact = f"{count} lines"
            yield Measured(file.name, count, MOST_LINES, file.name, 1, fact, advice)


# ---- Fields -------------------------------------------------------------------------------------


class Type(NamedTuple):
    file: File
    scope: cxx.Scope
    fields: int  # its own

    def key(self) -> str:
        """The qualified name. An unnamed namespace is a file's own, so the file is added."""
        name = self.scope.qualified()
        return f"{self.file.name}: {name}" if self.scope.in_unnamed_namespace() else name


def fields(text: str, begin: int, end: int) -> Iterator[str]:
    """The names of a type's own fields, in a bare text."""
    for declaration in cxx.declarations(text, begin, end):
        head = cxx.without_templates(ACCESS.sub("", declaration)).strip()
        head = TEMPLATE_HEAD.sub("", head)
        if not head or NO_FIELD.match(head) or CONSTANT.match(head) or "operator" in head:
            continue
        if cxx.is_function(head):
            continue
        head = INITIALIZER.sub("", BIT_WIDTH.sub("", head))
        for part in head.split(","):
            yield BEFORE_NAME.split(part.strip())[-1]


def types_of(tree: Tree) -> list[Type]:
    """The structs and classes of the engine and its C interface."""
    found = []
    for file in tree.under("impl", "capi"):
        if file.suffix in (".h", ".cpp"):
            for scope in file.scopes:
                if scope.kind in MOST_FIELDS:
                    own = fields(file.bare, scope.opening + 1, scope.closing)
                    found.append(Type(file, scope, len(list(own))))
    return found


def bases_of(type_: Type, by_name: dict[str, list[Type]]) -> Iterator[Type]:
    """The base types that the project defines. Of several with one name, that of the same file."""
    clause = cxx.without_templates(ACCESS.sub("", type_.scope.bases))
    for base in filter(None, (part.strip() for part in clause.split(","))):
        named = by_name.get(base.split("::")[-1], [])
        named = [other for other in named if other is not type_]
        own = [other for other in named if other.file is type_.file]
        yield from (own or named)[:1]


def inherited(type_: Type, by_name: dict[str, list[Type]], depth: int = 8) -> int:
    """The number of fields of all bases."""
    if not type_.scope.bases or not depth:
        return 0
    bases = list(bases_of(type_, by_name))
    return sum(base.fields + inherited(base, by_name, depth - 1) for base in bases)


def measure_fields(tree: Tree) -> Iterator[Measured]:
    types = types_of(tree)
    by_name: dict[str, list[Type]] = {}
    for type_ in types:
        by_name.setdefault(type_.scope.name, []).append(type_)
    for type_ in types:
        of_bases = inherited(type_, by_name)
        count = type_.fields + of_bases
        fact = f"{type_.scope.kind} {type_.scope.name} has {count} fields"
        fact += f" ({of_bases} in its bases)" if of_bases else ""
        line = cxx.line_of(type_.file.bare, type_.scope.opening)
        limit = MOST_FIELDS[type_.scope.kind]
        advice = "name the ideas among them, and give each a struct"
        yield Measured(type_.key(), count, limit, type_.file.name, line, fact, advice)


# ---- Files of a class ---------------------------------------------------------------------------


def defined_class(scope: cxx.Scope) -> str:
    """The qualified class if the scope is the body of a member function, else nothing."""
    if scope.kind or "::" not in scope.head or "(" not in scope.head:
        return ""
    if not scope.in_namespaces() or scope.in_unnamed_namespace():
        return ""
    member = MEMBER.search(cxx.without_templates(scope.head).partition("(")[0])
    names = [name for _, name in scope.outside]
    return "::".join([*names, member.group(1)]) if member else ""


def measure_class_files(tree: Tree) -> Iterator[Measured]:
    homes: dict[str, dict[str, int]] = {}  # the first line of each class in each file
    for file in tree.files:
        if file.suffix != ".cpp" or file.is_generated:
            continue
        for scope in file.scopes:
            if name := defined_class(scope):
                line = cxx.line_of(file.bare, scope.opening)
                homes.setdefault(name, {}).setdefault(file.name, line)
    for name, places in homes.items():
        last = max(places)
        files = ", ".join(place.rpartition("/")[2] for place in sorted(places))
        fact = f"the members of {name} are defined in {len(places)} files ({files})"
        advice = "make it several classes, or put it into one file"
        yield Measured(name, len(places), MOST_CLASS_FILES, last, places[last], fact, advice)


# ---- Mixins -------------------------------------------------------------------------------------

NO_MIXIN = {"ABC", "Protocol", "Exception", "Enum", "NamedTuple", "TypedDict"}


class PythonClass(NamedTuple):
    file: File
    node: ast.ClassDef
    bases: tuple[str, ...]

    def key(self) -> str:
        return f"{self.file.folder}: {self.node.name}"


def base_name(node: ast.expr) -> str:
    """The last name of `Base`, `module.Base` or `Base[T]`, or nothing."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def python_files(tree: Tree) -> list[File]:
    files = tree.under("bindings/python", "tools", "bench", "examples")
    return [file for file in files if file.suffix == ".py" and not file.is_generated]


def classes_in(file: File) -> Iterator[PythonClass]:
    for node in file.nodes if "class " in file.text else ():
        if isinstance(node, ast.ClassDef):
            yield PythonClass(file, node, tuple(filter(None, map(base_name, node.bases))))


def uses_in(file: File) -> Iterator[tuple[str, str]]:
    """The names that a file uses other than as a base or a type, each with its module's last name.

    The module of a name that the file does not import is the file itself. A string may name a class
    of any module that the file imports.
    """
    origin: dict[str, str] = {}
    exported: set[str] = set()
    no_use: set[int] = set()
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom):
            module = (node.module or file.folder.rpartition("/")[2]).rpartition(".")[2]
            origin.update((alias.asname or alias.name, module) for alias in node.names)
        elif isinstance(node, ast.ClassDef):
            no_use.update(id(inner) for base in node.bases for inner in ast.walk(base))
        elif isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation:
            no_use.update(id(inner) for inner in ast.walk(node.annotation))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
            no_use.update(id(inner) for inner in ast.walk(node.returns))
        elif isinstance(node, ast.Assign) and base_name(node.targets[0]) == "__all__":
            exported.update(
                inner.value
                for inner in ast.walk(node.value)
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str)
            )
    stem = file.base.removesuffix(".py")
    strings: set[str] = set()
    for name in exported:
        yield name, origin.get(name, stem)
    for node in file.nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in no_use:
            yield node.id, origin.get(node.id, stem)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in origin and id(node) not in no_use:
                yield node.attr, node.value.id  # module.Name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            strings.add(node.value)
    yield from ((value, module) for value in strings for module in origin if value.isidentifier())


def measure_mixins(tree: Tree) -> Iterator[Measured]:
    """Counts the parts that a class is cut into.

    A part is a base in the same package that only this class is made of, directly or through other
    parts, and that no other code uses: nothing calls it, exports it or tests for it. Protocols,
    abstract classes and exceptions are no parts.
    """
    files = python_files(tree)
    by_key = {each.key(): each for file in files for each in classes_in(file)}
    children: dict[str, set[str]] = {}
    for key, each in by_key.items():
        for base in each.bases:
            children.setdefault(f"{each.file.folder}: {base}", set()).add(key)

    def leaves(key: str) -> set[str]:
        below = children.get(key, set()) - {key}
        return set().union(*map(leaves, below)) if below else {key}

    def may_be_part(each: PythonClass) -> bool:
        if NO_MIXIN & set(each.bases) or each.node.name.endswith("Error"):
            return False
        final = leaves(each.key())
        return len(final) == 1 and final != {each.key()}

    candidates = [each for each in by_key.values() if may_be_part(each)]
    names = {each.node.name for each in candidates}
    mentions = re.compile(rf"\b(?:{'|'.join(sorted(names))})\b") if names else re.compile("(?!)")
    used = {use for file in files if mentions.search(file.text) for use in uses_in(file)}

    parts: dict[str, list[str]] = {key: [] for key in by_key}
    for each in candidates:
        file = each.file
        modules = (file.base.removesuffix(".py"), file.folder.rpartition("/")[2])
        if not any((each.node.name, module) in used for module in modules):
            parts[leaves(each.key()).pop()].append(each.node.name)
    for key, each in by_key.items():
        mixins = ", ".join(sorted(parts[key]))
        fact = f"class {each.node.name} is cut into {len(parts[key])} mixins ({mixins})"
        advice = "compose objects instead, or write it as one class"
        place = (each.file.name, each.node.lineno)
        yield Measured(key, len(parts[key]), 0, *place, fact, advice)


MEASURES = {
    "lines": measure_lines,
    "fields": measure_fields,
    "class-files": measure_class_files,
    "mixins": measure_mixins,
}

lines = ceilings.rule("lines", f"A file has at most {MOST_LINES} lines.", measure_lines)
field_counts = ceilings.rule(
    "fields", "A struct has at most 12 fields and a class 20, bases included.", measure_fields
)
class_files = ceilings.rule(
    "class-files",
    f"The members of a C++ class are defined in at most {MOST_CLASS_FILES} files.",
    measure_class_files,
)
mixins = ceilings.rule("mixins", "A Python class is not cut into mixins.", measure_mixins)

# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers into an Api.

Signatures come from pycparser over the preprocessed text; comments, macros and their order come
from comments.py over the raw text. Both list the declarations of a header in the same order, which
is how a declaration finds its comment.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from pycparser import c_ast, c_parser

import comments
import docs
from model import (
    Api,
    Callback,
    Constant,
    Enum,
    Enumerator,
    Field,
    Function,
    Handle,
    Header,
    Initializer,
    Opaque,
    Param,
    Struct,
    Value,
)

STAND_IN = Path(__file__).parent / "stand_in"
EXPORT_MARKS = {"MERON_API", "MERON_NODISCARD", "MERON_BEGIN_DECLS", "MERON_END_DECLS"}
SIZE = "MERON_SIZEOF_U32"  # of INIT macros: the size of their struct
PLUMBING = ("_DOC", "_H")
# Headers for modules: no program calls them, so no language has them.
OF_MODULES = {"backend"}


class HeaderError(Exception):
    """A header holds something that the generator has no rule for."""


def read(include: Path) -> tuple[Api, dict[str, docs.Block]]:
    """Reads every header under include/meron/, in the order in which they need one another.

    The doc blocks come along as they stand, by function name, for the lint.
    """
    sources = {
        path.stem: path.read_text()
        for path in sorted((include / "meron").glob("*.h"))
        if path.stem not in OF_MODULES
    }
    cut = {name: [p for p in comments.pieces(text) if wanted(p)] for name, text in sources.items()}
    macros = [piece for pieces in cut.values() for piece in pieces if piece.macro]
    tree = parse(preprocess(include, macros))
    by_header = declarations(tree, include)
    values = {node.name: node.init for node in tree.ext if named_value(node)}

    names = [name for name in by_header if name in sources]
    names += [name for name in sources if name not in names]
    reader = Reader(values)
    for name in names:
        reader.header(name, sources[name], cut[name], by_header.get(name, []))
    return reader.finish(), reader.blocks


def wanted(piece: comments.Piece) -> bool:
    if piece.macro is None:
        return True
    return piece.macro not in {*EXPORT_MARKS, SIZE} and not piece.macro.endswith(PLUMBING)


def is_init(macro: str) -> bool:
    return macro.endswith("_INIT")


def struct_of_init(piece: comments.Piece) -> str:
    """The struct that an INIT macro initializes: the one whose size it gives."""
    found = re.search(rf"\b{SIZE}\((\w+)\)", piece.text)
    if found is None:
        raise HeaderError(f"{piece.macro} gives the {SIZE} of no struct")
    return found[1]


def preprocess(include: Path, macros: list[comments.Piece]) -> str:
    """The headers' declarations, then one variable per macro, which makes the compiler's own
    preprocessor and pycparser's grammar expand and parse the macro's value."""
    lines = ['#include "meron/meron.h"']
    for piece in macros:
        macro = piece.macro or ""
        kind = struct_of_init(piece) if is_init(macro) else "long"
        lines.append(f"{kind} value_of_{macro} = {macro};")
    command = [*os.environ.get("CC", "cc").split(), "-E", "-nostdinc", "-undef", "-std=c99"]
    command += ["-I", str(STAND_IN), "-I", str(include), "-x", "c", "-"]
    result = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    if result.returncode != 0:
        raise HeaderError(f"{' '.join(command)} failed:\n{result.stderr}")
    return result.stdout


def parse(text: str) -> c_ast.FileAST:
    return c_parser.CParser().parse(text)


def named_value(node: c_ast.Node) -> bool:
    return isinstance(node, c_ast.Decl) and (node.name or "").startswith("value_of_")


def declarations(tree: c_ast.FileAST, include: Path) -> dict[str, list[c_ast.Node]]:
    """The declarations of each public header, headers in the order of first appearance."""
    found: dict[str, list[c_ast.Node]] = {}
    folder = include / "meron"
    for node in tree.ext:
        path = Path(node.coord.file)
        if path.parent == folder:
            found.setdefault(path.stem, []).append(node)
    return found


class Reader:
    """Collects declarations header by header; what refers to later ones is settled in finish()."""

    def __init__(self, values: dict[str, c_ast.Node]) -> None:
        self.api = Api(version="")
        self.values = values
        self.blocks: dict[str, docs.Block] = {}
        self.inits: dict[str, str] = {}  # by macro the struct
        self.alias: tuple[str, str, str] | None = None  # the typedef before an enum

    def header(
        self, name: str, source: str, cut: list[comments.Piece], nodes: list[c_ast.Node]
    ) -> None:
        doc = comments.header_doc(source)
        prefix = f"meron/{name}.h: "
        if not doc.startswith(prefix):
            raise HeaderError(f"meron/{name}.h must open with a comment that begins '{prefix}'")
        summary, _, text = doc.removeprefix(prefix).partition(".")
        self.api.headers.append(Header(name, flat(summary), flat(text)))

        remaining: Iterator[c_ast.Node] = iter(nodes)
        for piece in cut:
            if piece.macro:
                self.macro(name, piece)
                continue
            node = next(remaining, None)
            if node is None or identifier(node) not in piece.text:
                raise HeaderError(f"meron/{name}.h:{piece.line}: not understood: {piece.text!r}")
            self.declaration(name, piece, node)
        if next(remaining, None) is not None:
            raise HeaderError(f"meron/{name}.h: has a declaration that the scanner did not see")

    def macro(self, header: str, piece: comments.Piece) -> None:
        macro = piece.macro or ""
        if is_init(macro):
            self.inits[macro] = struct_of_init(piece)
            return
        value = evaluate(self.values[f"value_of_{macro}"])
        if not isinstance(value, int):
            raise HeaderError(f"{macro} is no integer constant: {value!r}")
        expression = comments.COMMENT.sub("", (comments.DEFINE.fullmatch(piece.text) or "")[2])
        self.api.constants.append(
            Constant(macro, header, flat(piece.doc), flat(expression.replace("\\", "")), value)
        )
        self.api.order.append(macro)

    def declaration(self, header: str, piece: comments.Piece, node: c_ast.Node) -> None:
        doc = piece.doc
        alias, self.alias = self.alias, None
        if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            self.function(header, piece, node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
            if alias is None:
                raise HeaderError(f"meron/{header}.h:{piece.line}: an enum follows its typedef")
            self.enum(header, piece, node.type, alias)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct):
            self.add_opaque(Opaque(f"struct {node.type.name}", header, doc))
        elif isinstance(node, c_ast.Typedef):
            self.typedef(header, piece, node)
        else:
            raise HeaderError(f"meron/{header}.h:{piece.line}: no rule for {piece.text!r}")

    def typedef(self, header: str, piece: comments.Piece, node: c_ast.Typedef) -> None:
        target = node.type
        if isinstance(target, c_ast.PtrDecl) and isinstance(target.type, c_ast.FuncDecl):
            function = target.type
            params = parameters(function)
            returns = spelling(function.type)
            self.api.callbacks.append(Callback(node.name, header, piece.doc, returns, params))
            self.api.order.append(node.name)
            return
        if not isinstance(target, c_ast.TypeDecl):
            raise HeaderError(f"meron/{header}.h:{piece.line}: no rule for {piece.text!r}")
        if not isinstance(target.type, c_ast.Struct):
            self.alias = (node.name, piece.doc, spelling(target))
        elif target.type.decls is None:
            self.add_opaque(Opaque(node.name, header, piece.doc))
        else:
            self.struct(header, piece, node.name, target.type)

    def add_opaque(self, opaque: Opaque) -> None:
        self.api.opaques.append(opaque)
        self.api.order.append(opaque.name)

    def struct(self, header: str, piece: comments.Piece, name: str, struct: c_ast.Struct) -> None:
        members = [(member.name, spelling(member.type)) for member in struct.decls]
        self.api.order.append(name)
        if members == [("id", "uint64_t")]:
            self.api.handles.append(Handle(name, header, piece.doc))
            return
        notes = comments.member_docs(piece.text, ";")
        fields = [Field(n, t, doc) for (n, t), doc in zip(members, notes, strict=True)]
        self.api.structs.append(Struct(name, header, piece.doc, fields))

    def enum(
        self, header: str, piece: comments.Piece, enum: c_ast.Enum, alias: tuple[str, str, str]
    ) -> None:
        name, doc, underlying = alias
        notes = comments.member_docs(piece.text, ",")
        values = []
        for member, note in zip(enum.values.enumerators, notes, strict=True):
            value = evaluate(member.value)
            if not isinstance(value, int):
                raise HeaderError(f"{member.name} needs a number of its own")
            values.append(Enumerator(member.name, value, note))
        self.api.enums.append(Enum(name, header, doc, underlying, values))
        self.api.order.append(name)

    def function(self, header: str, piece: comments.Piece, node: c_ast.Decl) -> None:
        block = docs.parse(piece.doc)
        self.blocks[node.name] = block
        params = parameters(node.type)
        for param in params:
            param.doc = block.params.get(param.name, "")
        self.api.functions.append(
            Function(
                name=node.name,
                header=header,
                returns=spelling(node.type.type),
                nodiscard="MERON_NODISCARD" in piece.text,
                params=params,
                brief=block.brief,
                doc=block.text,
                ownership=block.fields.get("Ownership", ""),
                blocks=block.fields.get("Blocks", ""),
                may_block=False,
                threads=block.fields.get("Threads", ""),
                errors=block.fields.get("Errors", ""),
                error_codes=[],
            )
        )
        self.api.order.append(node.name)

    def finish(self) -> Api:
        api = self.api
        constants = {constant.name: constant.value for constant in api.constants}
        api.version = ".".join(
            str(constants[f"MERON_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH")
        )
        structs = {struct.name: struct for struct in api.structs}
        for macro, name in self.inits.items():
            struct = structs.get(name)
            if struct is None:
                raise HeaderError(f"{macro} initializes no struct of the headers")
            init = initializer(macro, struct, self.values[f"value_of_{macro}"])
            if macro == f"{name.upper()}_INIT":
                struct.init = init
            else:
                struct.inits.append(init)

        blocks = {function.name: function.blocks for function in api.functions}
        errors = {function.name: function.errors for function in api.functions}
        statuses = {
            value.name: value.value
            for enum in api.enums
            if enum.name == "meron_status"
            for value in enum.values
            if value.value < 0
        }
        for function in api.functions:
            function.may_block = docs.may_block(function.name, blocks)
            function.error_codes = docs.error_codes(function.name, errors, statuses)
        for item in api.named().values():
            item.doc = flat(item.doc)
        return api


LIST_ITEM = re.compile(r"\s+(-|\d+\. )")


def flat(text: str) -> str:
    """Paragraphs, and items of indented lists, on one line each. Code stays as it is."""
    paragraphs = []
    for paragraph in text.strip("\n").split("\n\n"):
        if comments.is_code(paragraph):
            paragraphs.append(paragraph)
            continue
        lines: list[str] = []
        for line in paragraph.split("\n"):
            if lines and not LIST_ITEM.match(line):
                lines[-1] += " " + line.strip()
            else:
                lines.append(line.strip())
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs).strip()


def identifier(node: c_ast.Node) -> str:
    if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
        return str(node.type.values.enumerators[0].name)
    if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Struct):
        return str(node.type.name)
    return str(node.name)


def parameters(function: c_ast.FuncDecl) -> list[Param]:
    params = []
    for param in function.args.params if function.args else []:
        if not isinstance(param, c_ast.Decl):
            continue  # (void)
        kind = spelling(param.type)
        if kind == "meron_error **":
            role = "error"
        else:
            role = "out" if param.name == "out" else "in"
        params.append(Param(param.name, kind, role))
    return params


def spelling(node: c_ast.Node) -> str:
    """A type in the canonical form that model.CType reads."""
    if isinstance(node, c_ast.ArrayDecl):
        return f"{spelling(node.type)}[{evaluate(node.dim)}]"
    if isinstance(node, c_ast.PtrDecl):
        if node.quals:
            raise HeaderError("a pointer that is const itself has no place in the ABI")
        inner = spelling(node.type)
        return f"{inner}*" if inner.endswith("*") else f"{inner} *"
    if isinstance(node, c_ast.TypeDecl):
        if isinstance(node.type, c_ast.Struct):
            name = f"struct {node.type.name}"
        elif isinstance(node.type, c_ast.IdentifierType):
            name = " ".join(node.type.names)
        else:
            raise HeaderError(f"no rule for the type at {node.coord}")
        return " ".join([*node.quals, name])
    raise HeaderError(f"no rule for the type at {node.coord}")


def initializer(macro: str, struct: Struct, init: c_ast.Node) -> Initializer:
    if not isinstance(init, c_ast.InitList) or len(init.exprs) != len(struct.fields):
        raise HeaderError(f"{macro} must have one value per field of {struct.name}")
    values = {
        field.name: evaluate(expr) for field, expr in zip(struct.fields, init.exprs, strict=True)
    }
    return Initializer(macro, values)


BINARY: dict[str, Callable[[int, int], int]] = {
    "|": lambda a, b: a | b,
    "<<": lambda a, b: a << b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}


def evaluate(node: c_ast.Node) -> Value:
    """A constant expression's value; "sizeof", null and enumerators as Initializer says."""
    if isinstance(node, c_ast.Constant):
        if node.type in ("double", "float"):
            return float(node.value.rstrip("fF"))
        return int(node.value.rstrip("uUlL"), 0)
    if isinstance(node, c_ast.ID):
        return str(node.name)
    if isinstance(node, c_ast.Cast):
        pointer = isinstance(node.to_type.type, c_ast.PtrDecl)
        return None if pointer else evaluate(node.expr)
    if isinstance(node, c_ast.InitList) and len(node.exprs) == 1:
        return None  # {0}: a null handle, or an array of zeros
    if isinstance(node, c_ast.UnaryOp):
        if node.op == "sizeof":
            return "sizeof"
        value = evaluate(node.expr)
        if node.op == "-" and isinstance(value, (int, float)):
            return -value
    if isinstance(node, c_ast.BinaryOp) and node.op in BINARY:
        left, right = evaluate(node.left), evaluate(node.right)
        if isinstance(left, int) and isinstance(right, int):
            return BINARY[node.op](left, right)
    raise HeaderError(f"no rule for the constant expression at {node.coord}")

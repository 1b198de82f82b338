# SPDX-License-Identifier: Apache-2.0
"""The reference pages: one per header, and an index of all names."""

from __future__ import annotations

import re
import textwrap

from comments import is_code
from model import Api, Callback, Constant, CType, Enum, Function, Header, Param, Struct, Value

BANNER = "<!-- Generated from include/meron/*.h by tools/generate/generate.py: do not edit. -->\n"
FOLDER = "docs/reference"
WIDTH = 100
# Code in a comment: text in backticks, and (*out)->deleter(*out), *out and similar.
CODE = re.compile(r"(`[^`]*`|\(\*\w+\)->\w+(?:\(\*\w+\))?|\*(?:out|err|options)\b)")
NAME = re.compile(r"\b(?:meron|MERON)_\w+")


def emit(api: Api) -> dict[str, str]:
    pages = Pages(api)
    files = {
        f"{FOLDER}/{header.name}.md": pages.page(header)
        for header in api.headers
        if header.name != "meron"
    }
    files[f"{FOLDER}/README.md"] = pages.index()
    return files


class Pages:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.handles = {handle.name for handle in api.handles}
        self.own = ""  # the name of the section under way: not linked there
        self.home: dict[str, tuple[str, str]] = {}  # name -> (page, anchor)
        for item in api.named().values():
            place = "constants" if isinstance(item, Constant) else anchor(item.name)
            self.home[item.name] = (item.header, place)
        for enum in api.enums:
            for value in enum.values:
                self.home[value.name] = (enum.header, anchor(enum.name))
        for struct in api.structs:
            if struct.init:
                self.home[struct.init.macro] = (struct.header, anchor(struct.name))
            for init in struct.inits:
                self.home[init.macro] = (struct.header, anchor(struct.name))

    # ---- Text ------------------------------------------------------------------------------

    def prose(self, text: str, page: str, cell: bool = False) -> str:
        """Text of a comment as Markdown: C code marked, names linked."""
        out = []
        for part in CODE.split(text):
            if CODE.fullmatch(part):
                code = part.strip("`")
                out.append("`" + (code.replace("|", "\\|") if cell else code) + "`")
                continue
            escaped = re.sub(r"([*<|])" if cell else r"([*<])", r"\\\1", part)
            out.append(NAME.sub(lambda match: self.link(match[0], page), escaped))
        return "".join(out)

    def link(self, name: str, page: str) -> str:
        if name not in self.home or name == self.own:
            return f"`{name}`"
        target, place = self.home[name]
        return f"[`{name}`]({'' if target == page else f'{target}.md'}#{place})"

    def paragraphs(self, text: str, page: str) -> list[str]:
        """Headings, code, paragraphs, and lists whose items stand on lines of their own."""
        blocks: list[str] = []
        code: list[str] = []  # paragraphs of one program
        for paragraph in [*text.split("\n\n"), ""]:
            if is_code(paragraph):
                code.append(paragraph)
                continue
            if code:
                blocks.append("```c\n" + textwrap.dedent("\n\n".join(code)) + "\n```")
                code = []
            lines = [self.prose(line, page) for line in paragraph.split("\n")]
            if not lines[0]:
                continue
            listed = [line if is_item(line) else f"- {line}" for line in lines[1:]]
            if is_item(lines[0]):
                blocks.append("\n".join([lines[0], *listed]))
            else:
                blocks.append(lines[0])
                if listed:
                    blocks.append("\n".join(listed))
        return blocks

    # ---- Pages -----------------------------------------------------------------------------

    def page(self, header: Header) -> str:
        name = header.name
        functions = [f for f in self.api.functions if f.header == name]
        blocks = [f"# meron/{name}.h", f"{self.prose(sentence(header.summary), name)}"]
        blocks += self.paragraphs(header.text, name)
        blocks.append(self.contents(name, functions))

        named = self.api.named()
        types: list[str] = []
        for item_name in self.api.order:
            item = named[item_name]
            self.own = item_name
            if item.header != name or isinstance(item, Function):
                continue
            if isinstance(item, Enum):
                types += self.enum(item)
            elif isinstance(item, Struct):
                types += self.struct(item)
            elif isinstance(item, Callback):
                types += self.callback(item)
            elif not isinstance(item, Constant):
                types += self.simple_type(item_name, item.doc, name)
        constants = self.constants(name)
        if types or constants:
            blocks += ["## Types and constants", *types, *constants]
        if functions:
            blocks.append("## Functions")
            for function in functions:
                self.own = function.name
                blocks += self.function(function)
        return BANNER + "\n" + "\n\n".join(blocks) + "\n"

    def contents(self, page: str, functions: list[Function]) -> str:
        self.own = ""
        rows = ["| function | |", "|---|---|"]
        for function in functions:
            brief = self.prose(function.brief, page, cell=True)
            rows.append(f"| {self.link(function.name, page)} | {brief} |")
        return "\n".join(rows)

    def simple_type(self, name: str, doc: str, page: str) -> list[str]:
        if name in self.handles:
            code = f"typedef struct {{ uint64_t id; }} {name};"
        elif name.startswith("struct "):
            code = f"{name};"
        else:
            code = f"typedef struct {name} {name};"
        return [f"### {name}", fence(code), *self.paragraphs(doc, page)]

    def enum(self, enum: Enum) -> list[str]:
        rows = ["| constant | value | |", "|---|---|---|"]
        for value in enum.values:
            rows.append(
                f"| `{value.name}` | {value.value} | {self.prose(value.doc, enum.header, True)} |"
            )
        code = fence(f"typedef {enum.underlying} {enum.name};")
        return [
            f"### {enum.name}",
            code,
            *self.paragraphs(enum.doc, enum.header),
            "\n".join(rows),
        ]

    def struct(self, struct: Struct) -> list[str]:
        initial = struct.init.values if struct.init else {}
        if not any(value for name, value in initial.items() if name != "struct_size"):
            initial = {}  # nothing to read in a column of zeros
        rows = ["| field | type | |", "|---|---|---|"]
        if initial:
            rows = ["| field | type | initially | |", "|---|---|---|---|"]
        for field in struct.fields:
            cells = [f"`{field.name}`", f"`{field.type}`"]
            if initial:
                cells.append(initial_text(initial[field.name], field.type, self.handles))
            cells.append(self.prose(field.doc, struct.header, cell=True))
            rows.append(f"| {' | '.join(cells)} |")
        blocks = [f"### {struct.name}", *self.paragraphs(struct.doc, struct.header)]
        if struct.init:
            zeros = "" if initial else ": zeros, and the size"
            blocks.append(f"`{struct.init.macro}` gives the initial values{zeros}.")
        blocks += [
            f"`{init.macro}`: "
            + ", ".join(
                f"`{name}` {initial_text(value, '', self.handles)}"
                for name, value in init.values.items()
                if value != initial[name]
            )
            + "."
            for init in struct.inits
            if init.values != initial
        ]
        return [*blocks, "\n".join(rows)]

    def callback(self, callback: Callback) -> list[str]:
        head = f"typedef {CType.parse(callback.returns).declare('')}(*{callback.name})"
        code = fence(declaration(head, callback.params))
        return [f"### {callback.name}", code, *self.paragraphs(callback.doc, callback.header)]

    def constants(self, page: str) -> list[str]:
        constants = [constant for constant in self.api.constants if constant.header == page]
        if not constants:
            return []
        rows = ["| constant | value | |", "|---|---|---|"]
        for constant in constants:
            rows.append(
                f"| `{constant.name}` | {constant.value} | {self.prose(constant.doc, page, True)} |"
            )
        return ["### Constants", "\n".join(rows)]

    def function(self, function: Function) -> list[str]:
        page = function.header
        head = CType.parse(function.returns).declare(function.name)
        blocks = [f"### {function.name}", fence(declaration(head, function.params))]
        text = " ".join(part for part in (function.brief, function.doc) if part)
        blocks.append(self.prose(text, page))
        documented = [param for param in function.params if param.doc]
        if documented:
            rows = ["| parameter | |", "|---|---|"]
            for param in documented:
                rows.append(f"| `{param.name}` | {self.prose(param.doc, page, True)} |")
            blocks.append("\n".join(rows))
        fields = (
            ("Ownership", function.ownership),
            ("Blocks", function.blocks),
            ("Threads", function.threads),
            ("Errors", function.errors),
            (
                "May be NULL",
                ", ".join(f"`{param.name}`" for param in function.params if param.nullable),
            ),
            ("Since", function.since),
        )
        blocks.append(
            "\n".join(f"- **{name}**: {self.prose(text, page)}" for name, text in fields if text)
        )
        return blocks

    def index(self) -> str:
        blocks = ["# The C interface"]
        for header in self.api.headers:
            if header.name == "meron":
                blocks.append(self.prose(sentence(header.summary), ""))
                blocks += self.paragraphs(header.text, "")
        rows = ["| header | |", "|---|---|"]
        for header in self.api.headers:
            if header.name != "meron":
                summary = self.prose(header.summary, "", cell=True)
                rows.append(f"| [meron/{header.name}.h]({header.name}.md) | {summary} |")
        blocks += ["## Headers", "\n".join(rows), "## All functions"]
        rows = ["| function | can wait | header |", "|---|---|---|"]
        for function in sorted(self.api.functions, key=lambda f: f.name):
            waits = "yes" if function.may_block else ""
            rows.append(f"| {self.link(function.name, '')} | {waits} | {function.header}.h |")
        blocks.append("\n".join(rows))
        return BANNER + "\n" + "\n\n".join(blocks) + "\n"


def anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def is_item(line: str) -> bool:
    return bool(re.match(r"- |\d+\. ", line))


def initial_text(value: Value, kind: str, handles: set[str]) -> str:
    if value == "sizeof":
        return "its size"
    if value is None:
        return "null" if kind in handles else "`NULL`"
    return f"`{value}`"


def declaration(head: str, params: list[Param]) -> str:
    """A C declaration, on one line where it fits, else with one parameter per line."""
    items = [CType.parse(param.type).declare(param.name) for param in params] or ["void"]
    line = f"{head}({', '.join(items)});"
    if len(line) <= WIDTH - 10:
        return line
    return f"{head}(\n    " + ",\n    ".join(items) + ");"


def fence(code: str) -> str:
    return f"```c\n{code}\n```"

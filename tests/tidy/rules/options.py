# SPDX-License-Identifier: Apache-2.0
"""Options of commands that pages and comments name exist, read from the sources of the commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from tree import File, Offence, Tree

# The sources that declare the options of each command. A folder stands for all files below it.
TOOLS = {
    "tools/abi": ("tools/run_abi.py",),
    "tools/bench": ("tools/run_bench.py", "bench"),
    "tools/gpu-check": ("tools/run_gpu_check.py",),
    "tools/package": ("tools/run_package.py",),
    "tools/setup": ("tools/setup",),
    "tools/test": ("tools/run_tests.py",),
    # The program of --lang declares the other options. The usage text lists most of them.
    "tools/train": ("tools/train", "examples/common", "examples/07_lightning"),
    "tests/tidy/tidy.py": ("tests/tidy/tidy.py",),
}
MERON = "tools/meron"  # the source of `meron plan` begins with plan, and so on
ALWAYS = {"--help", "-h"}

ARGPARSE = re.compile(r"add_argument\(\s*((?:\"[^\"]+\",?\s*)+)")
OPTION_TUPLE = re.compile(r"^\s*\(\s*\"(--[a-z][\w-]*)\",", re.MULTILINE)
CLI11 = re.compile(r"add_(?:option|flag)\(\s*\"([^\"]+)\"")
BASH_CASE = re.compile(r"^\s*((?:--?[\w-]+\s*\|?\s*)+)\)", re.MULTILINE)
USAGE = re.compile(r"^  (--?[a-z][\w-]*)", re.MULTILINE)
OPTION = re.compile(r"--?[a-z][\w-]*", re.IGNORECASE)

SUBCOMMAND = re.compile(r"add_subcommand\(\s*\"([\w-]+)\"")
COMMAND = re.compile(
    r"(?P<tool>tools/(?:abi|bench|gpu-check|package|setup|test|train)|tests/tidy/tidy\.py)(?=\s|$)"
    r"|(?:(?<=[\s/(`])|^)meron (?P<sub>[a-z][a-z-]*)"
    r"|python3? -m (?P<module>meron[\w.]*)"
)
REST = re.compile(r"[^|;&#>]*")
FENCE = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (?=\S)(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
PROGRAM = re.compile(r"python3?|julia|java|.*/.*|.*\.(?:py|jl|jar)")


def options_in(file: File) -> set[str]:
    """The options that a source declares."""
    found: set[str] = set()
    if file.suffix == ".py":
        for names in ARGPARSE.findall(file.text):
            found.update(OPTION.findall(names))
        found.update(OPTION_TUPLE.findall(file.text))
    elif file.suffix == ".cpp":
        for names in CLI11.findall(file.text):
            found.update(name for name in names.split(",") if name.startswith("-"))
    elif not file.suffix:
        for names in BASH_CASE.findall(file.text):
            found.update(OPTION.findall(names))
        found.update(USAGE.findall(file.text))
    return found


class Commands:
    """The commands of the project and their options."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.known: dict[str, set[str]] = {}

    def options_of(self, command: str) -> set[str] | None:
        """None if there is no such command."""
        if command not in self.known:
            sources = list(self.sources_of(command))
            self.known[command] = ALWAYS.union(*map(options_in, sources)) if sources else set()
        return self.known[command] or None

    @cached_property
    def subcommands(self) -> set[str]:
        sources = (file for file in self.tree.under(MERON) if file.suffix == ".cpp")
        return {name for file in sources for name in SUBCOMMAND.findall(file.text)}

    def sources_of(self, command: str) -> Iterator[File]:
        if command in TOOLS:
            for path in TOOLS[command]:
                if path in self.tree.by_name:
                    yield self.tree.by_name[path]
                yield from self.tree.under(path)
        elif command.startswith("meron "):
            name = command.removeprefix("meron ")
            if name in self.subcommands:
                start = f"{MERON}/{name.replace('-', '_')}"
                yield from (f for f in self.tree.under(MERON) if f.name.startswith(start))
        else:
            folder = f"bindings/python/{command.replace('.', '/')}"
            if f"{folder}/__main__.py" in self.tree.by_name:
                yield from self.tree.under(folder)


def commands_in(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """The commands in a line of code: offset, name and options."""
    for found in COMMAND.finditer(text):
        tool, sub, module = found.group("tool", "sub", "module")
        command = tool or module or f"meron {sub}"
        rest = REST.match(text, found.end())
        words = rest.group().split() if rest else []
        yield found.start(), command, list(options_before_program(words, sub == "run"))


def options_before_program(words: list[str], starts_program: bool) -> Iterator[str]:
    """The options of a command line. Those after `--` or a program are the program's."""
    for word in words:
        word = word.strip("[]'\",.:()")
        if word == "--" or (starts_program and PROGRAM.fullmatch(word)):
            return
        if option := OPTION.match(word):
            yield option.group()


def code_in(file: File) -> Iterator[tuple[int, str]]:
    """The lines of code in a page, and the code in the comments of a source, with the line."""
    if file.suffix == ".md":
        for pattern in (FENCE, INLINE, INDENTED):
            for span in pattern.finditer(file.text):
                line = file.text.count("\n", 0, span.start(1)) + 1
                code = re.sub(r"\\\n", "  ", span.group(1))
                for number, each in enumerate(code.split("\n") if pattern is FENCE else [code]):
                    yield line + number, each.replace("\n", " ")
        return
    for block in file.blocks:
        for span in INLINE.finditer(block.text):
            yield block.line, span.group(1)


def check(tree: Tree) -> Iterator[Offence]:
    """Every option of a command that a page or a comment names exists."""
    commands = Commands(tree)
    for file in tree.files:
        if file.is_generated or "--" not in file.text:
            continue
        for line, code in code_in(file):
            for _, command, options in commands_in(code):
                known = commands.options_of(command) if options else None
                for option in sorted(set(options) - known) if known else ():
                    yield Offence(file.name, line, f"{command} has no option {option}")

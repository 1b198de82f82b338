# SPDX-License-Identifier: Apache-2.0
"""The Python of the pages works as written. Programs that a page says to save run on two ranks. In
all blocks, the names of Meron exist, and calls have the keywords that the functions take."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest
import ranks

import meron.torch
import meron.zero  # noqa: F401  so that the ranks begin with it

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("docs", "bindings/python", "examples")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))
PAGES.append(ROOT / "README.md")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
PROGRAM = re.compile(r"[Ss]ave\s+this\s+as\s+`(\w+\.py)`:\s+```python\n(.*?)^```\n", re.M | re.S)
# Names that a page, or an earlier block of it, imports.
KNOWN = {
    "meron": "meron",
    "mt": "meron.torch",
    "deepspeed": "meron.zero.compat",
    "torch": "torch",
    "nn": "torch.nn",
}
LIGHTNING = importlib.util.find_spec("lightning") is not None
NAME = re.compile(r"(?<![\w./])(meron|mt)((?:\.[A-Za-z_]\w*)+)(?!\w*[/-])")
# Last parts of names of files, and of tensors in a checkpoint.
FILES = {"json", "h", "hpp", "i", "map", "so", "pc", "jar", "md", "py", "id", "pickle"}


def resolve(name: str) -> object:
    """Returns the object of a dotted name. Raises ImportError or AttributeError if none exists."""
    words = name.split(".")
    found: object = importlib.import_module(words[0])
    for end, word in enumerate(words[1:], 2):
        if not hasattr(found, word):
            inner = ".".join(words[:end])
            if inspect.ismodule(found) and importlib.util.find_spec(inner):
                found = importlib.import_module(inner)
                continue
        found = getattr(found, word)
    return found


def dotted(node: ast.expr) -> str | None:
    """`mt.shard` as a text, from the module's own name on."""
    words = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in KNOWN:
        return None
    return ".".join([KNOWN[node.id], *reversed(words)])


def faults(block: str) -> list[str]:
    """Names that do not exist, and keywords that a function does not take."""
    found = []
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "meron":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and dotted(node):
            names = [str(dotted(node))]
        else:
            names = []
        for name in names:
            try:
                resolve(name)
            except (ImportError, AttributeError) as error:
                found.append(f"{name}: {error}")
        if isinstance(node, ast.Call) and dotted(node.func):
            name = str(dotted(node.func))
            try:
                params = inspect.signature(resolve(name)).parameters  # type: ignore[arg-type]
            except (AttributeError, ValueError):  # does not exist: said above; or is of C
                continue
            if not any(param.kind is param.VAR_KEYWORD for param in params.values()):
                given = {keyword.arg for keyword in node.keywords if keyword.arg}
                found += [f"{name} takes no {word}" for word in sorted(given - set(params))]
    return found


def test_names_and_keywords_of_the_pages_exist() -> None:
    found = []
    for page in PAGES:
        text = page.read_text()
        for match in NAME.finditer(text):
            name = KNOWN[match[1]] + match[2]
            if name.rpartition(".")[2] in FILES or ("lightning" in name and not LIGHTNING):
                continue
            try:
                resolve(name)
            except (ImportError, AttributeError) as error:
                found.append(f"{page.name}: {match[0]}: {error}")
        for language, block in BLOCK.findall(text):
            if language == "python" and (LIGHTNING or "lightning" not in block):
                found += [f"{page.name}: {fault}" for fault in faults(block)]
    assert found == []


def test_a_wrong_name_or_keyword_would_be_found() -> None:
    assert "shrad" in faults("mt.shrad(model)")[0]
    assert faults("mt.shard(model, unit=Block)") == ["meron.torch.shard takes no unit"]
    assert "no_such" in faults("from meron.zero import no_such")[0]


def programs() -> list[object]:
    found = []
    for page in PAGES:
        found += [
            pytest.param(page, number, id=f"{page.stem}-{name}-{number}")
            for number, (name, _) in enumerate(PROGRAM.findall(page.read_text()))
        ]
    return found


@pytest.mark.parametrize(("page", "number"), programs())
def test_the_program_runs_and_prints_what_the_page_shows(
    page: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text()
    match = list(PROGRAM.finditer(text))[number]
    if "import lightning" in match[2]:
        pytest.importorskip("lightning", reason="lightning is not installed")
    (tmp_path / match[1]).write_text(match[2])
    monkeypatch.chdir(tmp_path)
    done = ranks.program(2, match[1])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    shown = re.match(r"\s*```sh\n[^`]*```\s+```text\n(.*?)```", text[match.end() :], re.S)
    if shown:
        for expected in shown[1].splitlines():
            assert printed(expected, done.stdout), f"{expected!r} is not in {done.stdout!r}"


def printed(expected: str, output: str) -> bool:
    """Returns True if the output contains a line, also without its end, as ranks print at the same
    time. Numbers may differ, as PyTorch chooses kernels by the CPU."""
    number = r"\d+\.\d+"
    values = [float(value) for value in re.findall(number, expected)]
    pattern = f"({number})".join(map(re.escape, re.split(number, expected)))
    found = (match.groups() for match in re.finditer(pattern, output))
    return any([float(value) for value in each] == pytest.approx(values, rel=0.2) for each in found)

# SPDX-License-Identifier: Apache-2.0
"""What is committed is what the generator makes of the headers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATE = ROOT / "tools" / "generate" / "generate.py"


def generate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", str(GENERATE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the headers and everything generated from them."""
    folder = tmp_path_factory.mktemp("fresh")
    shutil.copytree(ROOT / "include", folder / "include")
    (folder / "capi").mkdir()
    shutil.copy(ROOT / "capi" / "annotations.json", folder / "capi")
    for ends in (ROOT / "capi" / "abi").glob("*/ends.json"):
        copied = folder / "capi" / "abi" / ends.parent.name
        copied.mkdir(parents=True)
        shutil.copy(ends, copied)
    done = generate("--root", folder)
    assert done.returncode == 0, done.stderr
    return folder


def generated(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    names = (path.relative_to(folder) for path in files)
    read = ("include", "capi/abi")  # by the generator
    return sorted(name for name in names if not name.as_posix().startswith(read))


def test_committed_files_are_the_generated_ones(fresh: Path) -> None:
    assert len(generated(fresh)) > 8
    for path in generated(fresh):
        committed = (ROOT / path).read_text() if (ROOT / path).exists() else "nothing"
        assert committed == (fresh / path).read_text(), f"{path}: run {GENERATE.relative_to(ROOT)}"


def test_the_reference_has_no_other_pages(fresh: Path) -> None:
    pages = {path.name for path in (ROOT / "docs" / "reference").iterdir()}
    assert pages == {path.name for path in (fresh / "docs" / "reference").iterdir()}


def test_check_agrees_and_writes_nothing(fresh: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(fresh, copy)
    before = {path: (copy / path).stat().st_mtime_ns for path in generated(copy)}
    assert generate("--root", copy, "--check").returncode == 0

    header = copy / "include" / "meron" / "base.h"
    header.write_text(header.read_text().replace("MERON_BF16 = 1", "MERON_BF16 = 9"))
    (copy / "docs" / "reference" / "old.md").write_text("of a header that is gone")
    done = generate("--root", copy, "--check")
    assert done.returncode == 1
    assert "MERON_BF16 = 9" in done.stdout
    assert "old.md" in done.stdout
    (copy / "docs" / "reference" / "old.md").unlink()
    assert {path: (copy / path).stat().st_mtime_ns for path in generated(copy)} == before


def test_the_page_of_config_keys_comes_from_their_table(fresh: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(fresh, copy)
    table = Path("bindings", "python", "meron", "zero", "config", "table")
    shutil.copytree(ROOT / table, copy / table)
    done = generate("--root", copy, "--check")
    assert done.returncode == 1 and "docs/config.md" in done.stdout
    assert generate("--root", copy).returncode == 0
    page = Path("docs", "config.md")
    assert (copy / page).read_text() == (ROOT / page).read_text(), "run tools/generate/generate.py"
    rows = copy / table / "zero.py"
    rows.write_text(rows.read_text().replace('"stage", Whole(0, 3)', '"stage", Whole(0, 4)'))
    done = generate("--root", copy, "--check")
    assert done.returncode == 1 and "| `stage` | int 0 to 4" in done.stdout


def test_the_page_of_words_comes_from_their_list(fresh: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(fresh, copy)
    words = Path("tests", "conformance", "words.txt")
    (copy / words).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / words, copy / words)
    assert generate("--root", copy).returncode == 0
    page = Path("docs", "bindings", "words.md")
    assert (copy / page).read_text() == (ROOT / page).read_text(), "run tools/generate/generate.py"
    (copy / words).write_text((copy / words).read_text() + "meaning of a word\n")
    done = generate("--root", copy, "--check")
    assert done.returncode == 1 and "no line begins with 'meaning'" in done.stderr


def test_links_of_the_reference_lead_somewhere(fresh: Path) -> None:
    import re

    pages = {path.name: path.read_text() for path in (fresh / "docs" / "reference").iterdir()}
    anchors = {
        name: {
            heading.lower().replace(" ", "-").replace("/", "").replace(".", "")
            for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        for name, text in pages.items()
    }
    for name, text in pages.items():
        for target, anchor in re.findall(r"\]\(([\w.]*)#?([\w-]*)\)", text):
            page = target or name
            assert page in pages, f"{name}: {target}"
            assert not anchor or anchor in anchors[page], f"{name}: {target}#{anchor}"

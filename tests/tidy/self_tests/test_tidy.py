# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ceilings import PATH
from rules import RULES, layer_table
from self_tests.planting import Plant

PROGRAM = Path(__file__).resolve().parents[1] / "tidy.py"


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", PROGRAM, *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_reports_offences_with_the_rule(plant: Plant) -> None:
    plant.write("tools/a.py", "\n")
    done = run(plant.root, "--rule", "licences", "--rule", "readmes")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("tools/a.py:1: ") and lines[0].endswith("[licences]")
    assert lines[1].startswith("tools/README.md:1: ") and lines[1].endswith("[readmes]")
    assert lines[2] == "2 offences"


def test_accepts_a_clean_tree(plant: Plant) -> None:
    plant.write("tools/README.md", "# Tools\n")
    done = run(plant.root)
    assert (done.returncode, done.stdout) == (0, f"1 files keep {len(RULES)} rules\n")


def test_refuses_an_unknown_rule_and_an_unknown_folder(plant: Plant) -> None:
    assert run("--rule", "none").returncode == 2
    assert run(plant.root / "none").returncode == 2


def test_lists_every_rule_with_its_promise() -> None:
    lines = run("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(RULES)
    assert all(line.endswith(".") and len(line.split()) > 4 for line in lines)


def test_write_lowers_ceilings_and_fills_the_table(plant: Plant) -> None:
    block = f"{layer_table.BEGIN}\n{layer_table.END}\n"
    plant.write(layer_table.PAGE, block)
    plant.write("tools/a.py", "#\n" * 800)
    plant.write("tools/b.py", "#\n" * 900)
    plant.write("tools/c.py", "#\n" * 10)
    lines = {"tools/a.py": 850, "tools/b.py": 850, "tools/c.py": 850, "tools/d.py": 850}
    plant.write(PATH, json.dumps({"lines": lines, "prose": {"tools": [9, 99]}}))
    assert run(plant.root, "--write").returncode == 0
    written = json.loads((plant.root / PATH).read_text())
    assert written == {"lines": {"tools/a.py": 800, "tools/b.py": 850}, "prose": {}}
    assert (plant.root / layer_table.PAGE).read_text() == layer_table.written(block)
    assert run(plant.root, "--write").stdout == ""


def test_measures_the_prose_of_a_folder(plant: Plant) -> None:
    plant.write("docs/a.md", "What it sends is read here.\n\nThe peer reads it at once.\n")
    plant.write("tools/a.md", "The peer reads it at once.\n")
    done = run(plant.root, "--prose", "docs", "--list").stdout.splitlines()
    assert done == [
        "docs/a.md:1: clause as subject: What it sends is read here.",
        "1 hits in 2 sentences, 50.0 of 100",
    ]
    assert run(plant.root, "--prose", ".").stdout == "1 hits in 3 sentences, 33.3 of 100\n"


def test_reads_what_git_tracks_or_does_not_ignore(plant: Plant) -> None:
    for name in ("tracked.py", "new.py", "ignored.py", "removed.py"):
        plant.write(name, "")
    plant.write(".gitignore", "ignored.py\n")
    for words in (["init", "-q"], ["add", "tracked.py", "removed.py"]):
        subprocess.run(["git", *words], cwd=plant.root, check=True)
    (plant.root / "removed.py").unlink()
    assert [file.name for file in plant.tree().files] == [".gitignore", "new.py", "tracked.py"]


def test_walks_where_there_is_no_git(plant: Plant) -> None:
    for name in ("a/b.py", "build/c.py", "a/__pycache__/d.py", ".venv/e.py"):
        plant.write(name, "")
    (plant.root / "link.py").symlink_to("a/b.py")
    assert [file.name for file in plant.tree().files] == ["a/b.py"]


def test_a_binary_file_has_no_text(plant: Plant) -> None:
    (plant.root / "a.png").write_bytes(b"\x89PNG\xff")
    assert plant.tree().by_name["a.png"].text == ""


@pytest.mark.parametrize("name", RULES)
def test_an_empty_tree_keeps_every_rule(plant: Plant, name: str) -> None:
    assert plant.offences(name) == []


def test_reads_each_file_once(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"impl/io/a.h", "impl/io/README.md", "bindings/python/meron/a.py", "capi/a.cpp"}
    for name in names:
        plant.write(name, "text\n")
    read: list[str] = []
    original = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        read.append(path.relative_to(plant.root).as_posix())
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    tree = plant.tree()
    for rule in RULES.values():
        list(rule(tree))
    assert sorted(read) == sorted(names)

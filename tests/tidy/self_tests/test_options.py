# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from rules import options
from self_tests.planting import Plant
from tree import Tree

COMMANDS = {
    "tools/run_tests.py": 'parser.add_argument(\n    "-j", "--jobs", type=int)\n',
    "tools/setup": "#!/bin/sh\ncase $1 in\n  --java) x ;;\n  --quiet | -q) y ;;\nesac\n",
    "tools/train": "#!/bin/sh\n  --lang LANG   which\n",
    "tools/meron/plan.cpp": 'parent.add_subcommand("plan");app->add_option("-n,--ranks", x);',
    "tools/meron/run.cpp": 'parent.add_subcommand("run");app->add_flag("--tag", x);',
    "bindings/python/meron/convert/__main__.py": 'p.add_argument("--to")\n',
}


@pytest.mark.parametrize(
    "command",
    [
        *("tools/test --jobs 3", "tools/test -j 3 --help", "tools/setup --java -q"),
        *("tools/train --lang rust", "build/x/tools/meron/meron plan -n 8", "meron plan --ranks 8"),
        *("python3 -m meron.convert import a --to b", "meron run --tag -- ./prog --own"),
        *("meron run python3 a.py --own", "meron run ./prog --own", "tools/test | grep --count x"),
        *("other --option", "meron is --short"),
    ],
)
def test_accepts_options_that_exist(plant: Plant, command: str) -> None:
    page = f"Run `{command}`.\n\n```\n{command}\n```\n\n    {command}\n"
    assert plant.offences("options", {**COMMANDS, "docs/page.md": page}) == []


@pytest.mark.parametrize(
    "command, name",
    [
        ("tools/test --gone", "tools/test"),
        ("tools/test --jobs 3 --gone", "tools/test"),
        ("tools/setup --gone", "tools/setup"),
        ("tools/train --lang rust --gone=1", "tools/train"),
        ("build/x/meron plan --gone", "meron plan"),
        ("meron run --gone -- ./prog", "meron run"),
        ("python -m meron.convert --gone", "meron.convert"),
    ],
)
def test_finds_options_that_do_not_exist(plant: Plant, command: str, name: str) -> None:
    said = f"docs/page.md:2: {name} has no option --gone"
    for page in (f"\nRun `{command}`.\n", f"```\n{command}\n```\n", f"\n    {command}\n"):
        assert plant.offences("options", {**COMMANDS, "docs/page.md": page}) == [said]


def test_joins_continued_lines(plant: Plant) -> None:
    page = "```\ntools/test \\\n  --gone\n```\n"
    assert len(plant.offences("options", {**COMMANDS, "docs/page.md": page})) == 1


def test_reads_code_in_comments(plant: Plant) -> None:
    text = "# Run `tools/test --gone` first.\n"
    assert len(plant.offences("options", {**COMMANDS, "tools/a.py": text})) == 1


def test_knows_the_commands_of_the_project(project: Tree) -> None:
    commands = options.Commands(project)
    assert {"run", "plan", "info", "io-bench", "checkpoint"} <= commands.subcommands
    names = [*options.TOOLS, "meron run", "meron checkpoint", "meron.convert", "meron.zero.dropin"]
    for name in names:
        known = commands.options_of(name)
        assert known and known > options.ALWAYS, name

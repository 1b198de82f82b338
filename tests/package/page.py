# SPDX-License-Identifier: Apache-2.0
"""A page of documentation as what a reader does with it: commands to type, files to save, and
output to expect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SAVED = re.compile(r"[Ss]ave\s+this\s+as\s+`([^`]+)`")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
MARK = "==== commands {} ===="


@dataclass
class Commands:
    text: str
    printed: list[str] | None = None  # the lines that the page shows; None where it shows none


@dataclass
class SavedFile:
    name: str
    text: str


def steps_of(page: str) -> list[Commands | SavedFile]:
    """The code blocks in order: `sh` is typed, `text` right after it is what that prints, `console`
    shows more that could be typed, and anything else is saved under the name that the sentence
    before it gives."""
    steps: list[Commands | SavedFile] = []
    end = 0
    after_commands = False
    for block in FENCED.finditer(page):
        before = page[end : block.start()].rsplit("\n\n", 2)
        end = block.end()
        language, text = block.groups()
        if language == "sh":
            steps.append(Commands(text))
        elif language == "text" and after_commands and isinstance(steps[-1], Commands):
            steps[-1].printed = text.splitlines()
        elif language not in ("text", "console"):
            name = SAVED.search(" ".join(before))
            assert name, f"nothing says what to do with this block:\n{text}"
            steps.append(SavedFile(name[1], text))
        after_commands = language == "sh"
    return steps


def script_of(steps: list[Commands | SavedFile], folder: Path) -> str:
    """All steps as one script, as one reader does them in one shell. `folder` takes the files."""
    words = ["set -eu"]
    for number, step in enumerate(steps):
        if isinstance(step, Commands):
            words += [f"echo '{MARK.format(number)}'", step.text]
        else:
            (folder / str(number)).write_text(step.text)
            words.append(f"cp '{folder / str(number)}' '{step.name}'")
    return "\n".join(words) + "\n"


def printed_by(output: str, number: int) -> list[str]:
    """The lines of one step. On a busy machine a rank may say that it waits: that is no output."""
    after = output.split(MARK.format(number) + "\n", 1)[1]
    lines = re.split(MARK.format(r"\d+"), after)[0].splitlines()
    return [line for line in lines if not re.search(r"\brank \d+ wait(s|ed)\b", line)]

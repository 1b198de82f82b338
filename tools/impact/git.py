# SPDX-License-Identifier: Apache-2.0
"""Lists the files that differ from a base commit, with uncommitted and untracked ones."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

# The first that exists is what a branch is compared with.
MAIN_BRANCHES = ("origin/HEAD", "origin/main", "upstream/main", "main")


class GitError(Exception):
    """A base that git cannot compare with. The message says what to do."""


@dataclass(frozen=True)
class Change:
    files: list[str]
    base: str  # as a person names it
    uncommitted: int  # number of files that are changed or untracked in the working tree


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["git", *words],
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="surrogateescape",
            )
        except FileNotFoundError:
            raise GitError(
                "--changed needs git to list what changed, and git is not installed. "
                "Install git, or run tools/test --quick."
            ) from None

    def read(self, *words: str) -> str:
        done = self.run(*words)
        if done.returncode != 0:
            raise GitError(f"git {' '.join(words)} failed: {done.stderr.strip()}")
        return done.stdout

    def paths(self, *words: str) -> set[str]:
        return {name for name in self.read(*words).split("\0") if name}

    def is_shallow(self) -> bool:
        return self.run("rev-parse", "--is-shallow-repository").stdout.strip() == "true"

    def commit(self, name: str) -> str | None:
        done = self.run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        )
        return done.stdout.strip() if done.returncode == 0 else None


UNSHALLOW = "This clone is shallow: run `git fetch --unshallow`, then try again."


def find_base(repository: Repository, name: str) -> tuple[str, str]:
    """Returns the commit to compare with, and its name for people."""
    if not name:
        found = next((each for each in MAIN_BRANCHES if repository.commit(each)), None)
        if found is None:
            advice = UNSHALLOW if repository.is_shallow() else "Name one: tools/test --changed BASE"
            raise GitError(
                f"--changed found no branch to compare with ({', '.join(MAIN_BRANCHES)}). {advice}"
            )
        name = found
    if repository.commit(name) is None:
        advice = "`git branch --all` and `git log` list those that exist."
        if repository.is_shallow():
            advice = UNSHALLOW
        raise GitError(f"--changed {name}: this clone has no commit of that name. {advice}")
    done = repository.run("merge-base", name, "HEAD")
    if done.returncode != 0:
        advice = "Name a BASE that HEAD descends from."
        if repository.is_shallow():
            advice = UNSHALLOW
        raise GitError(f"--changed: {name} and HEAD have no common commit here. {advice}")
    return done.stdout.strip(), name


def find_change(root: Path, base: str = "") -> Change:
    """Lists the files that differ between `base` and the working tree. An empty `base` is the
    commit at which this branch left the main branch. Raises GitError."""
    repository = Repository(root)
    top = repository.run("rev-parse", "--show-toplevel")
    if top.returncode != 0 or Path(top.stdout.strip()).resolve() != root.resolve():
        raise GitError(
            f"--changed needs a clone: {root.name} is no git repository of its own. "
            "Run tools/test --quick here."
        )
    commit, name = find_base(repository, base)
    untracked = repository.paths("ls-files", "-z", "--others", "--exclude-standard")
    changed = repository.paths("diff", "--name-only", "--no-renames", "-z", commit, "--")
    dirty = repository.paths("diff", "--name-only", "--no-renames", "-z", "HEAD", "--")
    return Change(sorted(changed | untracked), f"{name} ({commit[:8]})", len(dirty | untracked))

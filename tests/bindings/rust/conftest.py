# SPDX-License-Identifier: Apache-2.0
"""How cargo is run: offline, with its output in the build directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

# A suite that runs in the background (nohup, a shell's &) inherits an ignored SIGINT, as would the
# processes that tests interrupt. With a handler here, they start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parents[3]
CRATES = ROOT / "bindings" / "rust"
EXAMPLE = ROOT / "examples" / "02_language_model" / "rust"
TRANSPORT = ROOT / "examples" / "08_custom_transport" / "rust"


def run(
    command: list[str | Path], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )


def loader_path() -> dict[str, str]:
    """For programs that are started without cargo."""
    folders = [str(Path(os.environ["MERON_LIBRARY"]).parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {"LD_LIBRARY_PATH": ":".join(filter(None, folders))}


def cargo(*arguments: str | Path, folder: Path = CRATES, **environment: str) -> str:
    """Runs cargo, which must succeed; what it said."""
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo (tools/setup --rust brings one)")
    done = run(["cargo", *arguments], folder, environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout + done.stderr

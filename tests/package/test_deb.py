# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, unpacked into an empty root: what they depend on, and programs of a stranger
built and run there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from conftest import NOTICES, VERSION, make_packages, run

for tool in ("cpack", "dpkg-deb", "dpkg-shlibdeps", "pkg-config"):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is missing: tools/setup --dev installs it", allow_module_level=True)

CONSUMER = Path(__file__).parent / "consumer"
SOVERSION = VERSION.rsplit(".", 1)[0]
LIBRARY, DEVELOPMENT, COMMAND = f"libmeron{SOVERSION}", "libmeron-dev", "meron"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = make_packages("deb", tmp_path_factory.mktemp("deb"))
    return {path.name.split("_")[0]: path for path in made}


@pytest.fixture(scope="module")
def root(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("root")
    for package in packages.values():
        run("dpkg-deb", "-x", package, place, cwd=place)
    return place


def field(package: Path, name: str) -> str:
    return run("dpkg-deb", "-f", package, name, cwd=package.parent).strip()


def test_three_packages_that_depend_on_what_they_use(packages: dict[str, Path]) -> None:
    assert set(packages) == {LIBRARY, DEVELOPMENT, COMMAND}
    for package in packages.values():
        assert field(package, "Version") == f"{VERSION}-1"
    same = f"{LIBRARY} (= {VERSION}-1)"
    assert same in field(packages[DEVELOPMENT], "Depends")
    assert same in field(packages[COMMAND], "Depends")
    needed = {item.split()[0] for item in field(packages[LIBRARY], "Depends").split(", ")}
    assert needed == {"libc6", "libgcc-s1", "libstdc++6"}  # found by dpkg-shlibdeps


def test_the_library_is_alone_in_its_package(packages: dict[str, Path]) -> None:
    """Two sonames may be installed side by side: no file of the package lacks the soname."""
    lines = run("dpkg-deb", "-c", packages[LIBRARY], cwd=packages[LIBRARY].parent).splitlines()
    files = [line.split()[5] for line in lines if not line.startswith("d")]
    assert files
    assert all(SOVERSION in file for file in files)
    control = run("dpkg-deb", "-I", packages[LIBRARY], "shlibs", cwd=packages[LIBRARY].parent)
    assert control.strip() == f"libmeron {SOVERSION} {LIBRARY} (>= {VERSION})"


def test_each_has_its_copyright_and_changelog(root: Path) -> None:
    for name in (LIBRARY, DEVELOPMENT, COMMAND):
        documents = {path.name for path in (root / "usr" / "share" / "doc" / name).iterdir()}
        assert documents == {"copyright", "changelog.gz", "changelog.Debian.gz"}
        text = (root / "usr" / "share" / "doc" / name / "copyright").read_text()
        assert all(notice in text for notice in NOTICES)
        _, _, licences = text.partition("License: third-party\n")
        assert all(line.startswith(" ") for line in licences.splitlines())


@pytest.mark.parametrize(
    ("compiler", "source"),
    [
        ([os.environ.get("CC", "cc"), "-std=c99"], "main.c"),
        ([os.environ.get("CXX", "c++"), "-std=c++17"], "main.cpp"),
    ],
)
def test_a_program_is_built_and_run(
    root: Path, tmp_path: Path, compiler: list[str], source: str
) -> None:
    libraries = root / "usr" / "lib"
    paths = {"PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "meron", cwd=tmp_path, **paths).split()
    program = tmp_path / "program"
    run(*compiler, "-Wall", "-Werror", CONSUMER / source, "-o", program, *flags, cwd=tmp_path)
    assert run(program, cwd=tmp_path, LD_LIBRARY_PATH=str(libraries)).strip() == VERSION


def test_the_command_runs_and_has_no_path_of_its_own(root: Path, tmp_path: Path) -> None:
    command = root / "usr" / "bin" / "meron"
    libraries = str(root / "usr" / "lib")
    assert VERSION in run(command, "--version", cwd=tmp_path, LD_LIBRARY_PATH=libraries)
    dynamic = run("objdump", "-p", command, cwd=tmp_path)
    assert "RUNPATH" not in dynamic and "RPATH" not in dynamic
    ranks = run(command, "run", "-n", "2", "--", "true", cwd=tmp_path, LD_LIBRARY_PATH=libraries)
    assert "error" not in ranks

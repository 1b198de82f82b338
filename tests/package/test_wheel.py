# SPDX-License-Identifier: Apache-2.0
"""The wheel, installed into an empty environment, provides the library and the command."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import NOTICES, ROOT, VERSION, blocks, make_packages, run, shown

if importlib.util.find_spec("setuptools") is None or importlib.util.find_spec("numpy") is None:
    pytest.skip("setuptools or numpy is missing: run tools/setup", allow_module_level=True)

PROGRAM = """
import meron, numpy as np
with meron.open(plan="zero3", timeout=30) as ctx:
    weight = ctx.param("weight", (64, 3))
    unit = ctx.unit("layer", [weight])
    with ctx.update([unit]) as update:
        update.write(weight, np.full(weight.shape, 2.0))
    with unit.gather() as full:
        total = full[weight].sum()
    if ctx.rank == 0:
        print(ctx.world_size, ctx.transport, total, meron.library_path, meron.__version__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (made,) = make_packages("wheel", tmp_path_factory.mktemp("wheel"))
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. NumPy and cffi are lent by this interpreter's, so that the
    test needs no network; neither has Meron."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    (site,) = place.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("platlib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", "--no-deps", wheel, cwd=place)
    return place


def test_what_is_not_built_is_named(tmp_path: Path) -> None:
    (tmp_path / "cmake_install.cmake").touch()
    script = ROOT / "tools" / "run_package.py"
    with pytest.raises(
        AssertionError, match=r"the library is not built.* --target meron meron_cli"
    ):
        run(sys.executable, "-B", script, "wheel", "--build", tmp_path, cwd=tmp_path)
    (tmp_path / "capi").mkdir()
    (tmp_path / "capi" / "libmeron.so").touch()
    with pytest.raises(AssertionError, match="the command is not built"):
        run(sys.executable, "-B", script, "wheel", "--build", tmp_path, cwd=tmp_path)


def test_its_name_says_where_it_runs(wheel: Path) -> None:
    pattern = rf"meron-{re.escape(VERSION)}-py3-none-(.*)\.whl"
    match = re.fullmatch(pattern, wheel.name)
    assert match, wheel.name
    if importlib.util.find_spec("auditwheel"):
        assert match[1].startswith("manylinux_2_"), "auditwheel found no policy that it keeps"
        show = run(sys.executable, "-m", "auditwheel", "show", wheel, cwd=wheel.parent)
        assert f'consistent with the following platform tag: "{match[1]}"' in " ".join(show.split())


def test_it_holds_the_library_once_and_no_build_paths(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert sum("libmeron" in name for name in names) == 1
        assert any(name.endswith("licenses/LICENSE") for name in names)
        assert not any("__pycache__" in name or name.endswith(".h") for name in names)


def test_it_holds_the_licences_of_the_code_that_is_compiled_in(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith("LICENSE-third-party.txt")]
        text = archive.read(name).decode()
    assert text == (ROOT / "LICENSE-third-party.txt").read_text()
    for notice in NOTICES:
        assert notice in text


def test_it_holds_every_module(wheel: Path) -> None:
    package = ROOT / "bindings/python/meron"
    modules = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        assert modules <= set(archive.namelist())


def test_one_process_uses_the_library_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    printed = run(installed / "bin" / "python", "-c", PROGRAM, cwd=tmp_path)
    size, transport, total, library, version = printed.split()
    assert (size, transport, total, version) == ("1", "self", "384.0", VERSION)
    assert Path(library).is_relative_to(installed)
    assert Path(library).parent.parent.name == "_prefix"


def test_the_command_of_the_wheel_starts_ranks(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [installed / "bin" / "meron", "run", "-n", "2", "--"]
    printed = run(*command, installed / "bin" / "python", "program.py", cwd=tmp_path)
    assert "2 shm 384.0" in printed
    assert VERSION in run(installed / "bin" / "meron", "--version", cwd=tmp_path)


def test_the_page_for_beginners(installed: Path, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "start" / "python.md").read_text()
    (tmp_path / "fit.py").write_text(blocks(page, "python")[0])
    (tmp_path / "venv").symlink_to(installed)
    printed = run("bash", "-euc", blocks(page, "sh")[1], cwd=tmp_path)
    assert sorted(printed.splitlines()) == sorted(shown(page))


def test_without_the_command_it_says_what_to_do(installed: Path, tmp_path: Path) -> None:
    code = "import meron._command as c; c.CARRIED = c.CARRIED / 'none'; c.main()"
    with pytest.raises(AssertionError, match=r"carries no command .*No such file"):
        run(installed / "bin" / "python", "-c", code, cwd=tmp_path)

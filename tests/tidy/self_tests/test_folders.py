# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from self_tests.planting import Plant

LICENCE = "SPDX-License-Identifier: Apache-2.0"


@pytest.mark.parametrize(
    "folder", ["impl/base", "kernels/cpu", "modules/mpi", "capi", "bindings/python", "tools"]
)
def test_finds_a_folder_without_a_readme(plant: Plant, folder: str) -> None:
    (found,) = plant.offences("readmes", {f"{folder}/a.h": ""})
    assert found.startswith(f"{folder}/README.md:1: ")
    assert plant.offences("readmes", {f"{folder}/README.md": "# here\n"}) == []


def test_wants_no_readme_of_deeper_folders(plant: Plant) -> None:
    files = {"impl/base/README.md": "", "impl/base/deep/a.h": "", "tests/unit/a.cpp": ""}
    assert plant.offences("readmes", files) == []


@pytest.mark.parametrize("name", ["a.h", "a.cpp", "a.py", "CMakeLists.txt", "a.cmake"])
def test_finds_a_source_without_a_licence(plant: Plant, name: str) -> None:
    assert len(plant.offences("licences", {f"impl/base/{name}": "\n"})) == 1
    assert plant.offences("licences", {f"impl/base/{name}": f"// {LICENCE}\n"}) == []


def test_finds_a_script_without_a_licence(plant: Plant) -> None:
    assert plant.offences("licences", {"tools/run": f"#!/bin/sh\n# {LICENCE}\n"}) == []
    assert len(plant.offences("licences", {"tools/run": "#!/bin/sh\necho\n"})) == 1


def test_finds_test_files_of_one_name(plant: Plant) -> None:
    assert plant.offences("test-names", {"tests/a/test_x.py": "", "tests/b/test_y.py": ""}) == []
    (found,) = plant.offences("test-names", {"tests/b/test_x.py": ""})
    assert found.startswith("tests/b/test_x.py:1: 2 files have this base name")


def test_packages_of_tests_may_repeat_a_name(plant: Plant) -> None:
    files = {"tests/a/test_x.py": "", "tests/b/__init__.py": "", "tests/b/test_x.py": ""}
    assert plant.offences("test-names", files) == []

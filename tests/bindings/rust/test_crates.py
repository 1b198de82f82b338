# SPDX-License-Identifier: Apache-2.0
"""The crates' own tests."""

from __future__ import annotations

import re

from conftest import CRATES, cargo, loader_path, run


def environment() -> dict[str, str]:
    """No path of the loader, but for older cargos' documentation tests."""
    version = re.search(r"1\.(\d+)", run(["cargo", "--version"], CRATES).stdout)
    return {"LD_LIBRARY_PATH": ""} if version and int(version[1]) > 80 else loader_path()


def test_the_crates_own_tests() -> None:
    said = cargo("test", "--offline", **environment())
    passed = [int(count) for count in re.findall(r"test result: ok\. (\d+) passed", said)]
    assert sum(passed) >= 40, said
    assert "0 ignored" in said
    assert said.count("compile fail ... ok") >= 4

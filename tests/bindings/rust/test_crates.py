# SPDX-License-Identifier: Apache-2.0
"""The crates' own tests."""

from __future__ import annotations

import re

from conftest import cargo


def test_the_crates_own_tests() -> None:
    said = cargo("test", "--offline", "--workspace")
    passed = [int(count) for count in re.findall(r"test result: ok\. (\d+) passed", said)]
    assert sum(passed) >= 40, said
    assert "0 ignored" in said
    assert said.count("compile fail ... ok") >= 4

# SPDX-License-Identifier: Apache-2.0
"""Builds the package: a wheel for one platform when it carries the library, else one for all.

`tools/package wheel` puts an installed tree (the library and the command) into meron/_prefix.
Everything else is in pyproject.toml.
"""

from __future__ import annotations

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

PREFIX = Path(__file__).parent / "meron" / "_prefix"


class Package(Distribution):
    def has_ext_modules(self) -> bool:
        return PREFIX.exists()


class Wheel(bdist_wheel):
    """cffi calls the library by its C ABI, so that one wheel is right for every Python."""

    def get_tag(self) -> tuple[str, str, str]:
        platform = super().get_tag()[2]
        return "py3", "none", platform


setup(distclass=Package, cmdclass={"bdist_wheel": Wheel})

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_names must find what unity builds hide: each test writes a small tree."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import check_names  # beside this file


class CheckNames(unittest.TestCase):
    def offences(self, **files: str) -> list[str]:
        """Of files by names in which __ is the folder's slash, and _h or _cpp the suffix."""
        folder = tempfile.TemporaryDirectory(prefix="meron-names-")
        self.addCleanup(folder.cleanup)
        for name, text in files.items():
            stem, _, suffix = name.replace("__", "/").rpartition("_")
            path = Path(folder.name, "impl", f"{stem}.{suffix}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_names.check(Path(folder.name))

    def test_one_name_for_two_types_is_found(self) -> None:
        piece = "namespace meron {\nstruct Piece {\n  int %s = 0;\n};\n}  // namespace meron\n"
        found = self.offences(io__piece_h=piece % "begin", gradient__piece_h=piece % "end")
        self.assertEqual(len(found), 1)
        self.assertIn(
            "impl/io/piece.h:2: meron::Piece is a type of impl/gradient/piece.h:2", found[0]
        )

    def test_types_of_other_namespaces_or_types_may_share_a_name(self) -> None:
        self.assertEqual(
            self.offences(
                io__a_h="namespace meron {\nstruct Piece {};\n}\n",
                io__b_h="namespace meron::checkpoint {\nstruct Piece {};\n}\n",
                io__c_h="namespace meron {\nclass Ring {\n  struct Piece {};\n};\n}\n",
                io__d_cpp="namespace meron {\nnamespace {\nstruct Piece {};\n}\n}\n",
                io__e_h="namespace meron {\nstruct Piece;\n}\n",
            ),
            [],
        )

    def test_a_name_that_no_include_declares_is_found(self) -> None:
        header = "namespace meron {\nstruct Range {};\nint bytes_of(int rows);\n}\n"
        use = "%snamespace meron {\nint use(Range r) { return bytes_of(2); }\n}\n"
        self.assertEqual(
            sorted(self.offences(base__range_h=header, io__use_cpp=use % "")),
            [
                "impl/io/use.cpp:2: Range is declared in impl/base/range.h, "
                "which it does not include",
                "impl/io/use.cpp:2: bytes_of is declared in impl/base/range.h, "
                "which it does not include",
            ],
        )
        include = '#include "base/range.h"\n'
        self.assertEqual(self.offences(base__range_h=header, io__use_cpp=use % include), [])
        self.assertEqual(
            self.offences(
                base__range_h=header,
                io__both_h=include,
                io__use_cpp=use % '#include "io/both.h"\n',
            ),
            [],
        )

    def test_names_of_its_own_are_no_offence(self) -> None:
        header = "namespace meron {\nstruct Range {};\nint bytes_of(int rows);\n}\n"
        own = (
            "namespace meron {\nnamespace {\nint bytes_of(long a) { return 1; }\n"
            "struct Range {};\n}\nint use(Range r) { return bytes_of(2) + r.bytes_of(1); }\n"
            '// Range\nconst char* word = "Range";\n}\n'
        )
        self.assertEqual(self.offences(base__range_h=header, io__use_cpp=own), [])


if __name__ == "__main__":
    unittest.main()

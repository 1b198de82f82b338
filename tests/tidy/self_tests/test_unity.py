# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from self_tests.planting import Plant

HEADER = "namespace meron {\nstruct Range {};\nint bytes_of(int rows);\n}\n"
USE = "namespace meron {\nint use(Range r) { return bytes_of(2); }\n}\n"
INCLUDE = '#include "base/range.h"\n'


def test_finds_two_types_of_one_name(plant: Plant) -> None:
    piece = "namespace meron {\nstruct Piece {\n  int %s = 0;\n};\n}  // namespace meron\n"
    files = {"impl/gradient/piece.h": piece % "end", "impl/io/piece.h": piece % "begin"}
    (found,) = plant.offences("one-type", files)
    assert "impl/io/piece.h:2: impl/gradient/piece.h:2 defines another meron::Piece" in found


def test_types_of_other_namespaces_or_types_may_share_a_name(plant: Plant) -> None:
    files = {
        "impl/io/a.h": "namespace meron {\nstruct Piece {};\n}\n",
        "impl/io/b.h": "namespace meron::checkpoint {\nstruct Piece {};\n}\n",
        "impl/io/c.h": "namespace meron {\nclass Ring {\n  struct Piece {};\n};\n}\n",
        "impl/io/d.cpp": "namespace meron {\nnamespace {\nstruct Piece {};\n}\n}\n",
        "impl/io/e.h": "namespace meron {\nstruct Piece;\n}\n",
    }
    assert plant.offences("one-type", files) == []


def test_finds_a_name_that_no_include_declares(plant: Plant) -> None:
    found = plant.offences("includes", {"impl/base/range.h": HEADER, "impl/io/use.cpp": USE})
    home = "is declared in impl/base/range.h, which it does not include"
    assert sorted(found) == [
        f"impl/io/use.cpp:2: Range {home}",
        f"impl/io/use.cpp:2: bytes_of {home}",
    ]
    assert plant.offences("includes", {"impl/io/use.cpp": INCLUDE + USE}) == []
    indirect = {"impl/io/both.h": INCLUDE, "impl/io/use.cpp": f'#include "io/both.h"\n{USE}'}
    assert plant.offences("includes", indirect) == []


def test_names_of_its_own_are_no_offence(plant: Plant) -> None:
    own = (
        "namespace meron {\nnamespace {\nint bytes_of(long a) { return 1; }\n"
        "struct Range {};\n}\nint use(Range r) { return bytes_of(2) + r.bytes_of(1); }\n"
        '// Range\nconst char* word = "Range";\n}\n'
    )
    files = {"impl/base/range.h": HEADER, "impl/io/use.cpp": own}
    assert plant.offences("includes", files) == []

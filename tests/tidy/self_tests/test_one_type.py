# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from self_tests.planting import Plant


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

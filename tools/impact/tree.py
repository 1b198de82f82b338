# SPDX-License-Identifier: Apache-2.0
"""Makes the graph of this tree from a configured build folder."""

from __future__ import annotations

import sys
from pathlib import Path

from impact.cmake import add_build
from impact.graph import Graph
from impact.rules import RULES
from impact.sources import add_sources, tracked

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tidy"))
from layers import ALLOWED  # noqa: E402


def layers_above() -> dict[str, set[str]]:
    """Returns, for each layer, those that may include it, and itself."""
    above: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for name, allowed in ALLOWED.items():
        for below in allowed:
            above[below].add(name)
    return above


def make_graph(root: Path, build: Path) -> Graph:
    """Reads the tree. Raises impact.cmake.NotConfigured if CMake has not described the build."""
    graph = Graph(rules=RULES, layers_above=layers_above())
    add_build(graph, root, build)
    add_sources(graph, root, tracked(root))
    return graph

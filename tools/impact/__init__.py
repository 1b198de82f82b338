# SPDX-License-Identifier: Apache-2.0
"""Computes the tests that a change can reach: `tools/test --changed`.

`graph.py` is the core: a pure function from changed files and a graph to tests. `cmake.py`,
`sources.py` and `rules.py` make the graph, `git.py` lists the changed files, `tiers.py` orders
the tests.
"""

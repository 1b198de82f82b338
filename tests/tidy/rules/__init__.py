# SPDX-License-Identifier: Apache-2.0
"""The rules by name. The first line of a rule's docstring says what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rules import (
    decisions,
    folders,
    layer_table,
    layering,
    links,
    messages,
    one_type,
    options,
    paths,
    prose_rates,
    python_modules,
    rust_modules,
    sizes,
)
from tree import Offence, Tree

Rule = Callable[[Tree], Iterator[Offence]]

# The measures behind the rules that have ceilings of one number.
MEASURES = {"test-names": folders.measure_test_names, **sizes.MEASURES}

RULES: dict[str, Rule] = {
    # Structure
    "layers": layering.check,
    "readmes": folders.readmes,
    "licences": folders.licences,
    "test-names": folders.test_names,
    "python-circles": python_modules.circles,
    "python-layers": python_modules.imports_from_above,
    "python-internals": python_modules.internals,
    "python-state": python_modules.state,
    "rust-circles": rust_modules.check,
    "one-type": one_type.one_type,
    # Sizes
    "lines": sizes.lines,
    "fields": sizes.field_counts,
    "class-files": sizes.class_files,
    "mixins": sizes.mixins,
    # Text
    "messages": messages.check,
    "links": links.check,
    "paths": paths.check,
    "options": options.check,
    "decisions": decisions.check,
    "layer-table": layer_table.check,
    "prose": prose_rates.check,
}

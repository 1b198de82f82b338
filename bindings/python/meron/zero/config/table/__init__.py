# SPDX-License-Identifier: Apache-2.0
"""The table of all keys of DeepSpeed's config: kind, default, and what Meron does with it.

It is the source of checks, defaults, errors, the config classes and docs/config.md. It does not
import Meron, so the generator of the page does not need the library.
"""

from __future__ import annotations

from . import features, monitors, offload, precision, training, zero
from .kinds import DTYPES, Feature, Kind
from .rows import Key, Same, Section, Use
from .zero import KNOWN_MIXTURES

TOP = Section("", "Top level", training.TOP + monitors.TOP + features.TOP, lenient=True)
SECTIONS = (
    TOP,
    *zero.SECTIONS,
    *offload.SECTIONS,
    *precision.SECTIONS,
    *training.SECTIONS,
    *monitors.SECTIONS,
)
BY_PATH: dict[str, Section] = {
    path: section for section in SECTIONS for path in (section.path, *section.also)
}


def keys_of(section: Section) -> dict[str, Key]:
    """The keys of a section by each of their names."""
    return {name: key for key in section.keys for name in (key.name, *key.also)}


KEYS: dict[str, dict[str, Key]] = {path: keys_of(section) for path, section in BY_PATH.items()}

__all__ = [
    "BY_PATH",
    "DTYPES",
    "KEYS",
    "KNOWN_MIXTURES",
    "SECTIONS",
    "Feature",
    "Key",
    "Kind",
    "Same",
    "Section",
    "Use",
]

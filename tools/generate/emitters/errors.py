# SPDX-License-Identifier: Apache-2.0
"""The statuses below 0 as exceptions (Python), kinds of an error (Rust) and an enum (Java)."""

from __future__ import annotations

import textwrap

from emitters.rust import documented
from model import Api, ErrorKind
from plain import sentence

PATHS = {
    "python": "bindings/python/meron/errors.py",
    "rust": "bindings/rust/meron/src/error_kind.rs",
    "java": "bindings/swig/java/org/meron/Status.java",
}
# By a status' hundreds: Python's family, and how far the errors of it reach.
FAMILIES = {
    1: ("CallError", "The call alone: the context and its groups are untouched and usable."),
    2: ("ResourceError", "A resource of this process or host: nothing was changed."),
    3: (
        "GroupError",
        "The group is broken: each further call on it gives the error, on every rank.",
    ),
    4: ("ContextError", "The whole context is unusable."),
}

PYTHON = '''\
# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
"""The exceptions: one class per status code, grouped by how much an error damages.

`CallError`: the call alone failed, everything is usable. `ResourceError`: this process or host
lacks something, nothing was changed. `GroupError`: the group is broken on all of its ranks.
`ContextError`: the context is unusable. If Python has an exception for the same thing the class
is one of those too: `except ValueError` catches an `ArgumentError`, `except TimeoutError` a
`DeadlineError`, `except FileNotFoundError` a `NotFoundError`, and `except RuntimeError` a
`StateError` and a `GroupError`. Those that are an OSError have its `errno`.
"""

from __future__ import annotations

from typing import Any

from meron._error import CallError, ContextError, Error, GroupError, ResourceError

__all__ = [
{names}]

{classes}

BY_STATUS: dict[int, type[Error]] = {{
{table}}}
BY_CLASS: dict[int, type[Error]] = {{
{families}}}


def make(status: int, message: str, **fields: Any) -> Error:
    """The exception for a status; for a code of a later library the family's own class."""
    kind = BY_STATUS.get(status) or BY_CLASS.get(-status // 100, Error)
    return kind(message, status=status, **fields)


def argument(message: str, subject: str = "", advice: str = "") -> ArgumentError:
    """An ArgumentError that Python found before the library was called."""
    return ArgumentError(message, subject=subject, advice=advice)
'''

RUST = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
//! The kinds of errors.

use meron_sys as sys;

/// The kind of an error; the kinds stand in groups by how much they damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {{
{kinds}
    /// A status that this version of the crate does not know.
    Other(i32),
}}

impl ErrorKind {{
    /// The kind that a status of the C interface stands for.
    pub(crate) fn of(status: sys::meron_status) -> ErrorKind {{
        match status {{
{arms}            other => ErrorKind::Other(other),
        }}
    }}
}}
"""

JAVA = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/base.h by tools/generate/generate.py: do not edit.
package org.meron;

/**
 * Status of a failed call, grouped by the extent of the damage: -1xx the call alone, -2xx a
 * resource of this process or host, -3xx the group (on all of its ranks), -4xx the whole context.
 */
public enum Status {{
{values}    /** A code that only a later library has: see {{@link MeronException#code}}. */
    UNKNOWN(0);

    private final int code;

    Status(int code) {{
        this.code = code;
    }}

    /** The number, as in meron/base.h. */
    public int code() {{
        return code;
    }}

    /** The status of a code. */
    public static Status of(int code) {{
        for (Status status : values()) {{
            if (status.code == code) return status;
        }}
        return UNKNOWN;
    }}
}}
"""


def emit(api: Api) -> dict[str, str]:
    return {
        PATHS["python"]: python(api.errors),
        PATHS["rust"]: rust(api.errors),
        PATHS["java"]: java(api.errors),
    }


def family(error: ErrorKind) -> int:
    return -error.code // 100


def python(errors: list[ErrorKind]) -> str:
    names = sorted(["Error", *(name for name, _ in FAMILIES.values()), *(e.python for e in errors)])
    return PYTHON.format(
        names="".join(f'    "{name}",\n' for name in names),
        classes="\n".join(python_class(error) for error in errors),
        table="".join(f"    {error.code}: {error.python},\n" for error in errors),
        families="".join(f"    {key}: {name},\n" for key, (name, _) in FAMILIES.items()),
    )


def python_class(error: ErrorKind) -> str:
    bases = ", ".join(filter(None, (FAMILIES[family(error)][0], error.base)))
    doc = textwrap.fill(sentence(error.doc), 96, subsequent_indent="    ")
    return (
        f"\nclass {error.python}({bases}):\n"
        f'    """{doc}"""\n\n'
        f'    status, name = {error.code}, "{error.status}"\n'
    )


def rust(errors: list[ErrorKind]) -> str:
    kinds, last = "", 0
    for error in errors:
        if family(error) != last:
            last = family(error)
            kinds += f"{'' if not kinds else chr(10)}    // {FAMILIES[last][1]}\n"
        kinds += textwrap.indent(documented(error.doc + "."), "    ") + f"    {error.kind},\n"
    arms = "".join(f"            sys::{e.status} => ErrorKind::{e.kind},\n" for e in errors)
    return RUST.format(kinds=kinds, arms=arms)


def java(errors: list[ErrorKind]) -> str:
    return JAVA.format(
        values="".join(
            f"    /** {sentence(error.doc)} */\n"
            f"    {error.status.removeprefix('MERON_E_')}({error.code}),\n"
            for error in errors
        )
    )

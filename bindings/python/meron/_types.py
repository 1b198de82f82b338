# SPDX-License-Identifier: Apache-2.0
"""The C types that the package instantiates, by name, all read at once.

cffi reads each name with a parser that goes through every declaration first: some milliseconds for
each, in the middle of a step or as the first save begins. One struct that has a member of each type
costs one such pass, when the library is loaded.
"""

from __future__ import annotations

import re
from typing import Any

from meron._cdef import CDEF

# Those that are no pointer to a struct or a handle.
OTHERS = (
    "char *",
    "char **",
    "const char **",
    "const char *[]",
    "const float *",
    "float *",
    "double *",
    "size_t *",
    "meron_future[]",
    "int32_t *",
    "uint32_t *",
    "uint64_t *",
    "uintptr_t *",
    "void *",
    "void **",
    "struct DLManagedTensorVersioned **",
    "meron_error **",
    "char[]",
    "int32_t[]",
    "int64_t[]",
    "uint64_t[]",
    "meron_checkpoint_tensor[]",
    "meron_destination[]",
    "meron_flat_destination[]",
    "meron_optimizer[]",
    "meron_param[]",
    "meron_source[]",
    "meron_unit[]",
)


def named_types(ffi: Any) -> dict[str, Any]:
    """cffi's types by their names: pointers to all structs and handles, and OTHERS."""
    structs = re.findall(r"^(?:typedef struct \{.*)?\} (meron_\w+);", CDEF, re.MULTILINE)
    names = [f"{struct} *" for struct in structs] + list(OTHERS)
    members = []
    for number, name in enumerate(names):
        if name.endswith("[]"):
            members.append(f"{name.removesuffix('[]')} (*t{number})[];")
        else:
            members.append(f"{name} t{number};")
    ffi.cdef("struct meron_python_types {" + "\n".join(members) + "};")
    fields = dict(ffi.typeof("struct meron_python_types").fields)
    return {
        name: fields[f"t{number}"].type.item if name.endswith("[]") else fields[f"t{number}"].type
        for number, name in enumerate(names)
    }

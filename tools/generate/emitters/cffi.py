# SPDX-License-Identifier: Apache-2.0
"""The declarations that Python's cffi reads."""

from __future__ import annotations

import textwrap

from model import (
    Api,
    Callback,
    Constant,
    CType,
    Enum,
    Function,
    Handle,
    Opaque,
    Param,
    Struct,
)

TEMPLATE = '''\
# SPDX-License-Identifier: Apache-2.0
# Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
"""The C interface as cffi reads it."""

from __future__ import annotations

# The version of the headers that the declarations were made from.
VERSION = "{version}"

CDEF = """
{declarations}"""
'''


def emit(api: Api) -> dict[str, str]:
    named = api.named()
    declarations = "".join(declare(named[name]) for name in api.order)
    text = TEMPLATE.format(version=api.version, declarations=declarations)
    return {"bindings/python/meron/_cdef.py": text}


def declare(item: Constant | Handle | Opaque | Enum | Struct | Callback | Function) -> str:
    if isinstance(item, Constant):
        return f"#define {item.name} {item.value}\n"
    if isinstance(item, Handle):
        return f"typedef struct {{ uint64_t id; }} {item.name};\n"
    if isinstance(item, Opaque):
        tagged = item.name.startswith("struct ")
        return f"{item.name};\n" if tagged else f"typedef struct {item.name} {item.name};\n"
    if isinstance(item, Enum):
        values = "".join(f"  {value.name} = {value.value},\n" for value in item.values)
        return f"typedef {item.underlying} {item.name};\nenum {{\n{values}}};\n"
    if isinstance(item, Struct):
        fields = "".join(
            f"  {CType.parse(field.type).declare(field.name)};\n" for field in item.fields
        )
        return f"typedef struct {{\n{fields}}} {item.name};\n"
    params = parameters(item.params)
    if isinstance(item, Callback):
        line = f"typedef {CType.parse(item.returns).declare('')}(*{item.name})({params});"
    else:
        line = f"{CType.parse(item.returns).declare(item.name)}({params});"
    return textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False) + "\n"


def parameters(params: list[Param]) -> str:
    return ", ".join(CType.parse(param.type).declare(param.name) for param in params) or "void"

# SPDX-License-Identifier: Apache-2.0
"""tests/capi/contract/functions.h: every function as one that callbacks may call, or may not."""

from __future__ import annotations

from collections.abc import Iterable

from model import Api, Function

# log and should_stop may call it, the other callbacks may not: the test knows it by name.
CLOSE = "meron_context_close"

TEXT = """\
// SPDX-License-Identifier: Apache-2.0
// Generated from include/meron/*.h by tools/generate/generate.py: do not edit.
// Every function of the ABI that can fail, to be called with zeros, and whether a callback may.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "meron/meron.h"

namespace meron::test {{

struct Function {{
  const char* name;
  meron_status (*call)(meron_error**);
}};

// Calls it with null handles, null pointers and zeros.
template <class... A>
meron_status with_zeros(meron_status (*function)(A...), meron_error** err) {{
  std::tuple<A...> arguments{{}};
  std::get<sizeof...(A) - 1>(arguments) = err;
  return std::apply(function, arguments);
}}
// clang-format off
#define FUNCTION(name) {{#name, [](meron_error** err) {{ return with_zeros(name, err); }}}}
// clang-format on

// Functions that look and release.
inline std::vector<Function> allowed_functions() {{
  return {{
{allowed}  }};
}}

// Functions that begin, change or wait for something.
inline std::vector<Function> refused_functions() {{
  return {{
{refused}  }};
}}

// log and should_stop may call it, the other callbacks may not.
inline Function close_function() {{
  return FUNCTION({close});
}}

#undef FUNCTION

// They return no status, or read an error.
inline std::vector<std::string> functions_that_cannot_fail() {{
  // clang-format off
  return {{
{others}  }};
  // clang-format on
}}

}}  // namespace meron::test
"""


def emit(api: Api) -> dict[str, str]:
    functions = sorted(api.functions, key=lambda function: function.name)
    fallible = [each for each in functions if can_fail(each) and each.name != CLOSE]
    text = TEXT.format(
        allowed=entries(each.name for each in fallible if each.callback),
        refused=entries(each.name for each in fallible if not each.callback),
        close=CLOSE,
        others="".join(f'      "{each.name}",\n' for each in functions if not can_fail(each)),
    )
    return {"tests/capi/contract/functions.h": text}


def can_fail(function: Function) -> bool:
    return any(param.role == "error" for param in function.params)


def entries(names: Iterable[str]) -> str:
    return "".join(f"      FUNCTION({name}),\n" for name in names)

# SPDX-License-Identifier: Apache-2.0
"""A function per update rule that makes an optimizer. (Java has one for any rule.)"""

from __future__ import annotations

from emitters.julia import docstring
from emitters.methods import LICENSE, NOTE, fill
from emitters.rust import documented
from model import Api, ValueField, ValueType
from plain import Prose, sentence

# Numbers that have names of torch's in Python.
TORCH = {"learning_rate": "lr", "epsilon": "eps"}
# Arguments that Python takes without their names: where torch.optim has them in the same place.
ORDER = ("lr", "betas", "eps", "weight_decay")
POSITIONAL = {"adagrad": ("lr",), "sgd": ("lr", "momentum", "dampening")}


def emit(api: Api) -> dict[str, str]:
    rules = [value for value in api.value_types if value.rule]
    return {
        "bindings/python/meron/_optimizing.py": python(rules, Text(api, "python")),
        "include/meron/cpp/rules.hpp": cpp(rules, Text(api, "cpp")),
        "bindings/rust/meron/src/rules.rs": rust(rules, Text(api, "rust")),
        "bindings/julia/src/rules.jl": julia(rules, Text(api, "julia")),
    }


class Text:
    """The headers' text about meron_optimizer_create, in a language's terms."""

    def __init__(self, api: Api, language: str) -> None:
        prose = Prose(api, language)
        function = api.named()["meron_optimizer_create"]
        self.what = prose.text(f"{function.brief} {function.doc}")  # type: ignore[union-attr]
        self.blocks = prose.text(sentence(f"blocks {function.blocks}"))  # type: ignore[union-attr]
        self.errors = prose.errors_of(function)  # type: ignore[arg-type]


def function_of(rule: ValueType) -> str:
    return rule.names["rust"].lower()


# ---- Python --------------------------------------------------------------------------------------

PYTHON = '''\
# {license}
# {note}
"""The part of a context that makes optimizers."""

from __future__ import annotations

from collections.abc import Iterable

from meron._base_context import BaseContext
from meron._native import lib
from meron.optimizer import Optimizer
from meron.unit import Unit


class Optimizing(BaseContext):
    """The functions of `meron.Context` that create optimizers, one for each rule.

{what}

{blocks}

    Raises {errors}.
    """
{functions}'''


def python(rules: list[ValueType], text: Text) -> str:
    return PYTHON.format(
        license=LICENSE,
        note=NOTE,
        what=fill(text.what, " " * 4),
        blocks=fill(text.blocks, " " * 4),
        errors=fill(f"Raises {text.errors}.", " " * 4).strip().removeprefix("Raises ").rstrip("."),
        functions="".join(python_function(rule) for rule in rules),
    )


def python_function(rule: ValueType) -> str:
    fields = {field.name: field for field in rule.fields}
    taken = docs = passed = ""
    keywords = False
    for name, field in fields.items():
        own, kind, default = TORCH.get(name, name), "float", repr(field.default)
        to, doc = field.of, field.doc
        if name == "beta2":
            continue
        if name == "beta1":
            own, to, kind = "betas", "betas", "tuple[float, float]"
            default = f"({field.default!r}, {fields['beta2'].default!r})"
            doc = f"the first: {field.doc}; the second: {fields['beta2'].doc}"
        elif field.kind == "flag":
            kind, default = "bool", str(bool(field.default))
        if not keywords and own not in POSITIONAL.get(function_of(rule), ORDER):
            taken, keywords = taken + "        *,\n", True
        taken += f"        {own}: {kind} = {default},\n"
        docs += fill(f"{own}: {doc}.", " " * 12) + "\n"
        passed += f"            {to}={own},\n"
    return (
        f"\n    def {function_of(rule)}(\n        self,\n        units: Iterable[Unit],\n{taken}"
        f"    ) -> Optimizer:\n"
        f'        """{fill(sentence(rule.doc), " " * 8).strip()}\n\n'
        f'        Args:\n{docs}        """\n'
        f"        return Optimizer(\n            self,\n            units,\n"
        f"            lib.{rule.rule},\n{passed}        )\n"
    )


# ---- C++ -----------------------------------------------------------------------------------------

CPP = """\
// {license}
// {note}
// meron/cpp/rules.hpp: optimizers, by their update rule.
#ifndef MERON_CPP_RULES_HPP
#define MERON_CPP_RULES_HPP

#include "meron/cpp/optimizer.hpp"

namespace meron {{
inline namespace MERON_CPP_NAMESPACE {{

{what}
{functions}
}}  // namespace MERON_CPP_NAMESPACE
}}  // namespace meron

#endif  // MERON_CPP_RULES_HPP
"""


def cpp(rules: list[ValueType], text: Text) -> str:
    what = f"{text.what} {text.blocks} Throws {text.errors}."
    functions = ""
    for rule in rules:
        head = f"[[nodiscard]] inline Optimizer {function_of(rule)}(const UnitList& units,"
        head += f" const {rule.names['cpp']}& rule = {{}}) {{"
        functions += f"{head}\n  return Optimizer::make(units, rule.raw());\n}}\n"
    return CPP.format(license=LICENSE, note=NOTE, what=fill(what, "// "), functions=functions)


# ---- Rust ----------------------------------------------------------------------------------------

RUST = """\
// {license}
// {note}
//! Optimizers, by their update rule.

use crate::{{{names}, Result, Unit}};

impl Context {{
{functions}}}
"""


def rust(rules: list[ValueType], text: Text) -> str:
    functions = []
    for rule in rules:
        parts = [sentence(rule.doc), text.what, text.blocks, "# Errors", f"{text.errors}."]
        doc = "///\n".join(documented(part) for part in parts)
        doc = "".join(f"    {line}\n" for line in doc.splitlines())
        functions.append(
            f"{doc}    pub fn {function_of(rule)}(&self, units: &[&Unit], "
            f"options: &{rule.names['rust']}) -> Result<Optimizer> {{\n"
            "        Optimizer::create(self.shared(), units, &options.raw())\n    }\n"
        )
    names = sorted([*(rule.names["rust"] for rule in rules), "Context", "Optimizer"])
    return RUST.format(
        license=LICENSE, note=NOTE, names=", ".join(names), functions="\n".join(functions)
    )


# ---- Julia ---------------------------------------------------------------------------------------


def julia(rules: list[ValueType], text: Text) -> str:
    made = "".join(f"\n{julia_function(rule, text)}" for rule in rules)
    return f"# {LICENSE}\n# {NOTE}\n# Optimizers, by their update rule.\n{made}"


def julia_function(rule: ValueType, text: Text) -> str:
    name = function_of(rule)
    shown = ", ".join(field.name for field in rule.fields)
    numbers = "\n".join(
        fill(f"- `{field.name}` = {julia_number(field)}: {field.doc}.", "") for field in rule.fields
    )
    parts = [f"    {name}(units; {shown})", fill(sentence(rule.doc), ""), fill(text.what, "")]
    parts += [numbers, fill(f"{text.blocks} Throws {text.errors}.", "")]
    known = ", ".join(f":{field.name}" for field in rule.fields)
    return (
        f"export {name}\n"
        + docstring("\n\n".join(parts))
        + f"{name}(units; options...) = make_optimizer(\n"
        f'    units, "{name}", LibMeron.{rule.rule},\n    ({known}), options)\n'
    )


def julia_number(field: ValueField) -> str:
    return str(bool(field.default)).lower() if field.kind == "flag" else repr(field.default)

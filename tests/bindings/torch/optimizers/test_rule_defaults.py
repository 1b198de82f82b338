# SPDX-License-Identifier: Apache-2.0
"""Each rule has the same defaults in C, `meron.Context`, `meron.torch` and `torch.optim`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import meron
import meron.torch as mt

API = json.loads((Path(__file__).parents[4] / "capi" / "api.json").read_text())
OPTIONS = next(item for item in API["structs"] if item["name"] == "meron_optimizer_options")
RULES = ("AdamW", "Adam", "Adagrad", "Lion", "SGD")
# Names of C that differ in Python.
NAMES = {"learning_rate": "lr", "epsilon": "eps"}


def in_c(rule: str) -> dict[str, Any]:
    """The numbers of a rule's INIT macro, by their names in Python."""
    macro = f"MERON_OPTIMIZER_{rule.upper()}_INIT"
    values = next(init["values"] for init in OPTIONS["inits"] if init["macro"] == macro)
    named = {NAMES.get(name, name): value for name, value in values.items()}
    named["betas"] = (named.pop("beta1"), named.pop("beta2"))
    named["momentum"] = named["betas"][0]
    return named


def defaults(function: Any) -> dict[str, Any]:
    """The defaults of a function's arguments that are numbers of a rule."""
    known = in_c("AdamW")
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.name in known}


@pytest.mark.parametrize("rule", RULES)
def test_a_context_has_the_defaults_of_c(rule: str) -> None:
    found = defaults(getattr(meron.Context, rule.lower()))
    assert {"lr", "weight_decay", "max_norm"} < found.keys()
    assert found == {name: in_c(rule)[name] for name in found}


@pytest.mark.parametrize("rule", RULES)
def test_meron_torch_has_the_defaults_of_c(rule: str) -> None:
    found = defaults(getattr(mt, rule))
    assert {"lr", "weight_decay", "max_norm"} < found.keys()
    assert found == {name: in_c(rule)[name] for name in found}


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "Lion"])
def test_torch_has_them_too(rule: str) -> None:
    theirs = defaults(getattr(torch.optim, rule))
    ours = defaults(getattr(mt, rule))
    assert theirs == {name: ours[name] for name in theirs}

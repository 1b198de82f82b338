# SPDX-License-Identifier: Apache-2.0
"""The trees of Lightning that Meron finds: versions, and arguments of strategies."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys

import pytest


def parameters(function: object) -> list[tuple[str, object]]:
    return [
        (name, each.default)
        for name, each in inspect.signature(function).parameters.items()  # type: ignore[arg-type]
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_strategies_take_the_arguments_of_deepspeed_strategy(name: str) -> None:
    pytest.importorskip(name)
    from meron.lightning import fabric_strategy, register, trainer_strategy
    from meron.lightning.settings import NAMES
    from meron.lightning.trees import KNOWN

    trainer, fabric = (importlib.import_module(f"{path}.strategies") for path in KNOWN[name])
    ours, theirs = trainer_strategy(name).__init__, trainer.DeepSpeedStrategy.__init__
    assert parameters(ours) == parameters(theirs)
    ours, theirs = fabric_strategy(name).__init__, fabric.DeepSpeedStrategy.__init__
    assert parameters(ours) == parameters(theirs)
    register(name)
    for registry in (trainer.StrategyRegistry, fabric.STRATEGY_REGISTRY):
        assert [each for each in registry if each.startswith("meron")] == sorted(NAMES)
    made = trainer.StrategyRegistry.get("meron_stage_3_offload_nvme")
    assert made.config["zero_optimization"]["offload_param"]["device"] == "nvme"
    assert made.zero_stage_3 and made.remote_device == "nvme"
    assert isinstance(made, trainer.DDPStrategy)


def test_rejects_trees_that_are_not_installed_or_were_withdrawn() -> None:
    from meron import errors
    from meron.lightning.trees import check_version, tree

    with pytest.raises(errors.ArgumentError, match="no tree"):
        tree("thunder")
    for version in ("2.4.9", "2.6.2", "2.6.3"):
        with pytest.raises(ImportError, match=re.escape(version)):
            check_version("lightning", version)
    check_version("lightning", "2.5.0")
    hidden = "import sys; sys.modules.update(lightning=None, pytorch_lightning=None)\n"
    source = (
        "import importlib.util as u; plain = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if 'lightning' == name[-9:] and '.' not in name "
        "else plain(name, *a)\nimport meron.lightning"
    )
    done = subprocess.run(
        [sys.executable, "-c", hidden + source], capture_output=True, text=True, env=os.environ
    )
    assert "ImportError" in done.stderr and "pip install" in done.stderr, done.stderr


def test_the_import_without_torch_names_the_install() -> None:
    source = "import sys; sys.modules['torch'] = None\nimport meron.lightning"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=os.environ
    )
    assert "need PyTorch" in done.stderr and "pip install torch" in done.stderr, done.stderr

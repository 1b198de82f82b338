# SPDX-License-Identifier: Apache-2.0
"""meron.lightning: the programs of the folder trainer, and what needs no ranks."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run_ranks

pytest.importorskip("lightning", reason="tools/setup --integrations installs it")

PROGRAMS = Path(__file__).parent / "trainer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def run_program(program: str, ranks: int, folder: Path) -> None:
    path = PROGRAMS / f"{program}.py"
    done = run_ranks(ranks, path, folder)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    wanted = re.findall(r"^def (case_\w+)", path.read_text("utf-8"), re.MULTILINE)
    assert re.findall(r"passed (\w+)", done.stdout) == wanted


def test_the_trainer_beside_ddp(folder: Path) -> None:
    run_program("training", 2, folder)


def test_models_beside_each_other_and_refusals(folder: Path) -> None:
    run_program("models", 2, folder)


def test_runs_that_fail(folder: Path) -> None:
    run_program("failures", 2, folder)


def test_copies_and_calls_out_of_order(folder: Path) -> None:
    run_program("copies", 2, folder)


def test_fabric_beside_ddp(folder: Path) -> None:
    run_program("fabric_runs", 2, folder)


def test_checkpoints(folder: Path) -> None:
    run_program("saving", 2, folder)


def test_checkpoints_as_one_file(folder: Path) -> None:
    run_program("files", 2, folder)


def test_runs_of_deepspeed_go_on(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="DeepSpeed is not installed")
    run_program("deepspeed_runs", 2, tmp_path)


@pytest.mark.parametrize("ranks", [1, 3])
def test_resuming_at_another_number_of_ranks(ranks: int, folder: Path) -> None:
    run_program("resuming", ranks, folder)


def test_published_weights_in_configure_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="tools/setup --integrations installs it")
    run_program("pretrained", 2, tmp_path)


def parameters(function: object) -> list[tuple[str, object]]:
    return [
        (name, each.default)
        for name, each in inspect.signature(function).parameters.items()  # type: ignore[arg-type]
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]


@pytest.mark.parametrize("name", ["lightning", "pytorch_lightning"])
def test_arguments_are_those_of_deepspeed_strategy(name: str) -> None:
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


def test_a_tree_that_is_not_installed_or_was_withdrawn() -> None:
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


def test_without_torch() -> None:
    source = "import sys; sys.modules['torch'] = None\nimport meron.lightning"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=os.environ
    )
    assert "need PyTorch" in done.stderr and "pip install torch" in done.stderr, done.stderr

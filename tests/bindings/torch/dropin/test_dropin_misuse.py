# SPDX-License-Identifier: Apache-2.0
"""Configs and process groups as users of `deepspeed` get them wrong, in one process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import meron
from meron.zero import dropin
from meron.zero.config import parse

PACKAGE = Path(meron.__file__).parent


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{\n "zero_optimization": {"stage": 3,\n "x": \n}', "line 4"),
        (b'{"zero_optimization": {"stage": 1}', "line 1 column"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"[1]", "no JSON object"),
        (b"\xff\xfe{}", "no text in UTF-8"),
        (b'{"fp16": {}, "fp16": {}}', "occurs twice"),
    ],
)
@pytest.mark.parametrize("hjson", [False, True])
def test_a_broken_config_file_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str, hjson: bool
) -> None:
    if hjson:
        pytest.importorskip("hjson")
    else:
        monkeypatch.setitem(sys.modules, "hjson", None)  # as if it were not installed
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(meron.ParseError) as caught:
        parse(str(file))
    assert words in str(caught.value) and "config.json" in str(caught.value)


def test_a_config_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(meron.ArgumentError, match="no config file"):
        parse(str(tmp_path / "none.json"))
    with pytest.raises(meron.ArgumentError, match=f"{tmp_path.name}.*Is a directory"):
        parse(str(tmp_path))
    with pytest.raises(meron.ArgumentError, match="of type int"):
        parse(3)  # type: ignore[arg-type]


def test_a_config_of_a_newer_deepspeed_names_the_keys() -> None:
    with pytest.raises(meron.ArgumentError, match=r"new_feature.*0\.19\.8"):
        parse({"new_feature": {"enabled": True}}, unknown="raise")
    with pytest.raises(meron.ArgumentError, match=r"zero_optimization\.quantum"):
        parse({"zero_optimization": {"quantum": 1}}, unknown="warn")
    assert parse({"new_feature": {"enabled": True}}, unknown="warn").unknown


def test_keys_that_contradict_are_named_as_keys() -> None:
    block = {"stage": 3, "zero_hpz_partition_size": 2}
    block["offload_param"] = {"device": "nvme", "nvme_path": "/d"}  # type: ignore[assignment]
    with pytest.raises(meron.ArgumentError) as caught:
        parse({"zero_optimization": block})
    assert caught.value.subject == "zero_optimization.zero_hpz_partition_size"


GROUPS = """
import torch
import deepspeed
{first}
deepspeed.init_distributed()
deepspeed.init_distributed(dist_backend="gloo")
assert torch.distributed.get_world_size() == deepspeed.comm.get_world_size() == 1
sgd = {{"type": "SGD", "params": {{"lr": 0.1}}}}
config = {{"train_micro_batch_size_per_gpu": 1, "optimizer": sgd}}
for _ in range(2):
    engine, *_ = deepspeed.initialize(model=torch.nn.Linear(2, 2), config=config)
    engine.backward(engine(torch.ones(1, 2)).sum())
    engine.step()
assert engine.was_step_applied()
torch.distributed.destroy_process_group()
print("done")
"""
FIRST = {
    "nothing": "",
    "torch": 'torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), '
    "rank=0, world_size=1)",
    "deepspeed": 'deepspeed.init_distributed("gloo", timeout=__import__("datetime").timedelta(1))',
}


@pytest.mark.parametrize("first", FIRST)
def test_process_groups_are_made_once(first: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GROUPS.format(first=FIRST[first])],
        env={**os.environ, "PYTHONPATH": dropin.python_path(os.environ.get("PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr


def test_an_unknown_backend_is_named() -> None:
    code = "import deepspeed; deepspeed.init_distributed('glooo')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": dropin.python_path(os.environ.get("PYTHONPATH"))},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0 and "glooo" in done.stderr


# ---- Imports point one way ----------------------------------------------------------------------


def imported(file: Path) -> set[str]:
    """The modules of Meron that a file imports, in functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return {name for name in found if name.split(".")[0] == "meron"}


@pytest.mark.parametrize(
    ("folder", "above"),
    [
        ("torch", ("meron.zero", "meron.lightning")),
        ("checkpointing", ("meron.zero", "meron.lightning")),
        ("zero", ("meron.lightning",)),
    ],
)
def test_nothing_imports_what_is_above_it(folder: str, above: tuple[str, ...]) -> None:
    for file in (PACKAGE / folder).rglob("*.py"):
        wrong = {name for name in imported(file) if name.startswith(above)}
        assert not wrong, f"{file.relative_to(PACKAGE)} imports {wrong}"

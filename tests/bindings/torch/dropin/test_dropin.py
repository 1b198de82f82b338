# SPDX-License-Identifier: Apache-2.0
"""The package `deepspeed` of meron.zero.dropin: found, in use only on request, and its comm."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent


def folder() -> str:
    from meron.zero import dropin

    return dropin.folder()


def paths(*first: str | Path) -> str:
    return os.pathsep.join([*map(str, first), os.environ.get("PYTHONPATH", "")])


def run(*arguments: str, python_path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
    )


def real_one(tmp_path: Path) -> Path:
    """A folder with another distribution named deepspeed."""
    site = tmp_path / "site"
    (site / "deepspeed").mkdir(parents=True)
    (site / "deepspeed" / "__init__.py").write_text('__version__ = "0.17.1"\n')
    metadata = site / "deepspeed-0.17.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.17.1\n")
    return site


def test_names_and_gates_of_libraries() -> None:
    done = run(str(PROGRAMS / "names.py"), python_path=paths(folder()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


def test_every_name_exists_or_refuses_in_words() -> None:
    done = run(str(PROGRAMS / "surface.py"), python_path=paths(folder()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "done"


def test_the_command_prints_one_folder() -> None:
    done = run("-m", "meron.zero.dropin", python_path=paths())
    assert (done.returncode, done.stdout.strip()) == (0, folder())
    package = Path(folder(), "deepspeed")
    assert (package / "__init__.py").is_file()
    done = run("-m", "meron.zero.dropin", "--check", python_path=paths(folder()))
    assert done.returncode == 0, done.stdout
    assert "0.19.8+meron, Meron's" in done.stdout


def test_the_metadata_has_the_version_of_the_code() -> None:
    from meron.zero.dropin import version

    (metadata,) = Path(folder()).glob("deepspeed-*.dist-info/METADATA")
    assert metadata.parent.name == f"deepspeed-{version.VERSION}.dist-info"
    assert f"Version: {version.VERSION}" in metadata.read_text().splitlines()


def test_a_config_is_a_dict_without_hiding_its_attributes() -> None:
    """engine.config is both: no field may have the name of a method of dict."""
    import dataclasses

    from meron.zero.config import Config
    from meron.zero.engine_config import as_engine_config

    assert not {field.name for field in dataclasses.fields(Config)} & set(dir(dict))
    source = {"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}
    config = as_engine_config(source, Config(stage=2))
    assert config == source and config.stage == 2
    config.clipping = 1.0
    assert config.clipping == 1.0 and "clipping" not in config
    assert not hasattr(config, "nothing")


def test_an_installed_one_is_not_shadowed_by_accident(tmp_path: Path) -> None:
    """Only who is first on the path, or who insists, takes the name."""
    real = real_one(tmp_path)
    code = "import deepspeed; print(deepspeed.__version__)"
    done = run("-m", "meron.zero.dropin", "--check", python_path=paths(real))
    assert done.returncode == 1 and "0.17.1, not Meron's" in done.stdout
    done = run("-c", code, python_path=paths(folder(), real))
    assert (done.returncode, done.stdout.strip()) == (0, "0.19.8+meron"), done.stderr
    assert "two packages are named deepspeed" in done.stderr and "0.17.1" in done.stderr
    done = run("-c", code, python_path=paths(real, folder()))
    assert (done.returncode, done.stdout.strip()) == (0, "0.17.1"), done.stderr


def test_install_refuses_beside_an_installed_one(tmp_path: Path) -> None:
    real = real_one(tmp_path)
    code = """
from meron import StateError
from meron.zero import compat
try:
    compat.install()
except StateError as error:
    print(error)
compat.install(replace=True)
import deepspeed.comm
print(deepspeed.__version__)
"""
    done = run("-c", code, python_path=paths(real))
    first, last = done.stdout.splitlines()
    assert "deepspeed 0.17.1 is installed" in first and "install(replace=True)" in first
    assert (done.returncode, last) == (0, "0.19.8+meron"), done.stderr
    code = "import deepspeed; from meron.zero import compat; compat.install(replace=True)"
    done = run("-c", code, python_path=paths(real))
    assert done.returncode == 1 and "imported already" in done.stderr


def test_a_model_on_the_cpu_computes_on_the_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with DeepSpeed: Trainer and scripts put inputs there, and the model is initialize's."""
    import torch

    from meron.zero import compat

    chosen: list[object] = []
    current: list[int] = [0]
    device = types.SimpleNamespace(
        cuda=True,
        device_count=lambda: 4,
        set_device=lambda index: current.append(index),
        current_device_name=lambda: f"cuda:{current[-1]}",
    )
    monkeypatch.setattr(compat, "get_accelerator", lambda: device)
    noted = functools.wraps(compat.initialize_engine)(
        lambda **named: chosen.append(named["device"])
    )
    monkeypatch.setattr(compat, "initialize_engine", noted)
    start = functools.partial(compat.initialize, dist_init_required=False, config={})
    monkeypatch.delenv("MERON_TORCH_DEVICE", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv("MERON_LOCAL_RANK", raising=False)
    start(model=torch.nn.Linear(1, 1))
    monkeypatch.setenv("LOCAL_RANK", "3")
    start(model=torch.nn.Linear(1, 1))
    start(model=torch.nn.Linear(1, 1), device="cpu")
    monkeypatch.setenv("MERON_TORCH_DEVICE", "cpu")
    start(model=torch.nn.Linear(1, 1))
    device.cuda = False
    start(model=torch.nn.Linear(1, 1))
    assert chosen == ["cuda:0", "cuda:3", "cpu", None, None]


def test_a_source_tree_is_not_shadowed_either(tmp_path: Path) -> None:
    """DeepSpeed on the path without metadata of a distribution."""
    for name in ("deepspeed", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('__version__ = "0.17.1"\n')
    code = "from meron.zero import compat; compat.install('mine')"
    done = run("-c", code, python_path=paths(tmp_path))
    assert done.returncode == 1 and "mine (a source tree) is installed" in done.stderr, done.stderr
    done = run("-m", "meron.zero.dropin", "--check", python_path=paths(tmp_path))
    assert done.returncode == 1 and "not Meron's" in done.stdout, done.stderr
    done = run("-c", "import deepspeed", python_path=paths(folder(), tmp_path))
    assert done.returncode == 0 and "two packages are named deepspeed" in done.stderr


def test_install_where_there_is_none_or_the_drop_in(tmp_path: Path) -> None:
    code = "from meron.zero import compat; compat.install(name='ds'); import ds.comm, ds.moe.layer"
    code += "; compat.install(name='ds'); print(ds.__version__)"
    done = run("-c", code, python_path=paths())
    assert (done.returncode, done.stdout.strip()) == (0, "0.19.8+meron"), done.stderr
    code = "import deepspeed; from meron.zero import compat; compat.install(replace=True)"
    done = run("-c", code, python_path=paths(folder()))
    assert done.returncode == 0, done.stderr

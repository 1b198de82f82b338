# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from graphs import circles_of
from rules import python_modules
from self_tests.planting import Plant
from tree import Tree

HOME = python_modules.HOME
SOUND = {
    "meron/__init__.py": "",
    "meron/torch/__init__.py": "",
    "meron/torch/torch_internals.py": "import torch\nversion = lambda t: t._version\nC = '_C.x'\n",
    "meron/torch/registry.py": "contexts = {}\nloading = None\n",
    "meron/zero/__init__.py": "import meron.torch\n",
    "meron/lightning/__init__.py": "import meron.zero\n",
}


def offences(plant: Plant, rule: str, path: str, text: str) -> list[str]:
    files = {**SOUND, path: text}
    return plant.offences(rule, {f"{HOME}/{name}": each for name, each in files.items()})


def circles(plant: Plant, **files: str) -> list[list[str]]:
    """Names have `__` for a folder's slash; `init` is a package's own file."""
    for name, text in {"init": "", **files}.items():
        path = name.replace("__", "/")
        path = path.removesuffix("init") + "__init__" if path.endswith("init") else path
        plant.write(f"{HOME}/meron/{path}.py", text)
    return circles_of(python_modules.graph_of(python_modules.modules_of(plant.tree())))


def test_imports_of_one_direction_are_no_circle(plant: Plant) -> None:
    files = {"init": "from meron import a", "a": "from meron.b import x", "b": "x = 1"}
    assert circles(plant, **files) == []


def test_finds_a_circle(plant: Plant) -> None:
    found = circles(plant, a="from meron.b import x", b="import meron.c", c="import meron.a")
    assert found == [["meron.a", "meron.b", "meron.c"]]
    assert plant.offences("python-circles") == [
        f"{HOME}/meron/{name}.py:1: imports meron.{other}, in a circle of meron.a, meron.b, meron.c"
        for name, other in ("ab", "bc", "ca")
    ]


def test_imports_in_functions_and_for_type_checkers_count(plant: Plant) -> None:
    function = "def f():\n    from meron import b"
    checker = "if TYPE_CHECKING:\n    from meron.a import f"
    assert circles(plant, a=function, b=checker) == [["meron.a", "meron.b"]]


def test_relative_imports_and_packages_count(plant: Plant) -> None:
    found = circles(plant, p__init="from .q import x", p__q="from ..r import y", r="import meron.p")
    assert found == [["meron.p", "meron.p.q", "meron.r"]]


def test_accepts_sound_modules(plant: Plant) -> None:
    text = "import torch\nLIMITS = {'a': 1}\nclass A:\n  def __init__(s):\n    s.x = torch.ones\n"
    for rule in ("python-internals", "python-state", "python-layers", "python-circles"):
        assert offences(plant, rule, "meron/torch/a.py", text) == []


@pytest.mark.parametrize("package", ["torch", "zero", "lightning"])
@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx = torch._C._thing\n",
        "from torch._C import thing\n",
        "from torch.nn.modules.module import _Keys\n",
        "import torch._dynamo\n",
        "def f(t):\n  return t._version\n",
        "def f(t):\n  return t.grad_fn\n",
        "def f(t):\n  return getattr(t, '_version')\n",
        "def f(module):\n  return module._some_hooks\n",
    ],
)
def test_finds_private_names_of_torch(plant: Plant, package: str, text: str) -> None:
    assert offences(plant, "python-internals", f"meron/{package}/a.py", text)


def test_accepts_private_names_of_the_package(plant: Plant) -> None:
    text = "class A:\n  def _f(self):\n    self._x = 1\n"
    text += "def g(a):\n  a._f()\n  return a._x, a._meron\n"
    assert offences(plant, "python-internals", "meron/torch/a.py", text) == []


@pytest.mark.parametrize(
    "text",
    [
        "known = {}\n",
        "known: dict[str, int] = {}\n",
        "KNOWN = []\n",
        "import weakref\nknown = weakref.WeakSet()\n",
        "import threading\nhere = threading.local()\n",
        "current = None\n",
        "n = 0\ndef f():\n  global n\n  n += 1\n",
    ],
)
def test_finds_state_of_modules(plant: Plant, text: str) -> None:
    assert offences(plant, "python-state", "meron/torch/a.py", text)


@pytest.mark.parametrize(
    "path, text",
    [
        ("meron/torch/a.py", "def f():\n  from meron import zero\n"),
        ("meron/torch/a.py", "import meron.lightning\n"),
        ("meron/zero/a.py", "import meron.lightning\n"),
        ("meron/checkpointing/a.py", "import meron.torch.registry\n"),
    ],
)
def test_finds_imports_from_above(plant: Plant, path: str, text: str) -> None:
    assert offences(plant, "python-layers", path, text)


def test_finds_a_package_without_its_internals(plant: Plant) -> None:
    assert plant.offences("python-internals", {f"{HOME}/meron/__init__.py": ""})


def test_sees_the_package_of_the_project(project: Tree) -> None:
    modules = python_modules.modules_of(project)
    assert {"meron", "meron.context", python_modules.INTERNALS, python_modules.REGISTRY} <= set(
        modules
    )
    assert any(python_modules.graph_of(modules).values())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""python_rules must find what it is there to find: each test plants a module beside sound ones."""

from __future__ import annotations

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import python_rules  # beside this file

SOUND = {
    "meron/__init__.py": "",
    "meron/torch/__init__.py": "",
    "meron/torch/torch_internals.py": "import torch\nversion = lambda t: t._version\nC = '_C.x'\n",
    "meron/torch/registry.py": "contexts = {}\nloading = None\n",
    "meron/zero/__init__.py": "import meron.torch\n",
    "meron/lightning/__init__.py": "import meron.zero\n",
}


class PythonRules(unittest.TestCase):
    def offences(self, path: str, text: str) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="meron-rules-") as folder:
            for name, content in {**SOUND, path: text}.items():
                file = Path(folder) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content, encoding="utf-8")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                python_rules.main([folder])
            return said.getvalue().splitlines()[:-1]

    def test_sound_modules_pass(self) -> None:
        text = (
            "import torch\nLIMITS = {'a': 1}\nclass A:\n  def __init__(s):\n    s.x = torch.ones\n"
        )
        self.assertEqual(self.offences("meron/torch/a.py", text), [])

    def test_private_names_of_torch_are_found(self) -> None:
        for text in (
            "import torch\nx = torch._C._thing\n",
            "from torch._C import thing\n",
            "from torch.nn.modules.module import _Keys\n",
            "import torch._dynamo\n",
            "def f(t):\n  return t._version\n",
            "def f(t):\n  return t.grad_fn\n",
            "def f(t):\n  return getattr(t, '_version')\n",
            "def f(module):\n  return module._some_hooks\n",
        ):
            for package in ("torch", "zero", "lightning"):
                with self.subTest(text=text, package=package):
                    self.assertTrue(self.offences(f"meron/{package}/a.py", text))

    def test_own_private_names_pass(self) -> None:
        text = "class A:\n  def _f(self):\n    self._x = 1\n"
        text += "def g(a):\n  a._f()\n  return a._x, a._meron\n"
        self.assertEqual(self.offences("meron/torch/a.py", text), [])

    def test_state_of_modules_is_found(self) -> None:
        for text in (
            "known = {}\n",
            "known: dict[str, int] = {}\n",
            "KNOWN = []\n",
            "import weakref\nknown = weakref.WeakSet()\n",
            "import threading\nhere = threading.local()\n",
            "current = None\n",
            "n = 0\ndef f():\n  global n\n  n += 1\n",
        ):
            with self.subTest(text=text):
                self.assertTrue(self.offences("meron/torch/a.py", text))

    def test_imports_from_above_are_found(self) -> None:
        for path, text in (
            ("meron/torch/a.py", "def f():\n  from meron import zero\n"),
            ("meron/torch/a.py", "import meron.lightning\n"),
            ("meron/zero/a.py", "import meron.lightning\n"),
            ("meron/checkpointing/a.py", "import meron.torch.registry\n"),
        ):
            with self.subTest(path=path, text=text):
                self.assertTrue(self.offences(path, text))

    def test_the_tree_has_none(self) -> None:
        self.assertEqual(python_rules.main([]), 0)


if __name__ == "__main__":
    unittest.main()

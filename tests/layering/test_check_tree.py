#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_tree must find what it is there to find: each test plants one offence in a small tree."""

from __future__ import annotations

import shutil
import tempfile
import unittest
from pathlib import Path

import check_tree  # beside this file

ROOT = Path(__file__).resolve().parents[2]
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class CheckTree(unittest.TestCase):
    def setUp(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="meron-check-tree-"))
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        deep = ("impl/", "kernels/", "modules/")
        if path.startswith((*deep, "capi/", "tools/", "examples/")):
            depth = 2 if path.startswith(deep) else 1
            readme = self.root.joinpath(*Path(path).parts[:depth]) / "README.md"
            readme.write_text("# here\n", encoding="utf-8")

    def offences(self) -> list[str]:
        return [str(offence) for offence in check_tree.check(self.root)]

    def include(self, path: str, include: str) -> list[str]:
        self.write(path, f"{SPDX}#pragma once\n#include {include}\n")
        return self.offences()

    def assert_offence(self, path: str, include: str) -> None:
        found = self.include(path, include)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f"{path}:3: "), found[0])

    def test_edges_that_point_down_are_fine(self) -> None:
        self.write("impl/base/a.h", f'{SPDX}#include <memory>\n#include "meron/base.h"\n')
        self.write("impl/os/a.cpp", f'{SPDX}#include "base/a.h"\n#include <sys/mman.h>\n')
        self.write("impl/optim/a.cpp", f'{SPDX}#include "kernels/cpu/adamw.h"\n')
        self.write("impl/engine/a.h", f'{SPDX}#include "optim/a.h"\n#include "unit/a.h"\n')
        self.write("kernels/cpu/a.cpp", f'{SPDX}#include <hwy/base.h>\n#include "hwy/highway.h"\n')
        self.write("kernels/cuda/a.cu", f"{SPDX}#include <cuda_runtime.h>\n#include <cmath>\n")
        self.write("kernels/cuda/a.cuh", f'{SPDX}#include "kernels/cpu/adamw.h"\n')
        self.write("modules/cuda/a.cpp", f"{SPDX}#include <cuda_runtime_api.h>\n")
        self.write("capi/a.cpp", f'{SPDX}#include "engine/a.h"\n#include "meron/meron.h"\n')
        self.write("include/meron/a.h", f'{SPDX}#include <stdint.h>\n#include "meron/base.h"\n')
        self.write("examples/01/a.c", f'{SPDX}#include "b.h"\n#include <meron/meron.h>\n')
        self.write("examples/01/b.h", f"{SPDX}#include <unistd.h>\n")
        self.write("modules/mpi/a.cpp", f'{SPDX}#include <mpi.h>\n#include "modules/mpi/b.h"\n')
        self.write("modules/mpi/b.h", f'{SPDX}#include "meron/base.h"\n#include <unistd.h>\n')
        self.write("impl/rendezvous/a.cpp", f'{SPDX}#include "modules/mpi/mpi_module.h"\n')
        self.assertEqual(self.offences(), [])

    def test_upward(self) -> None:
        self.assert_offence("impl/base/a.h", '"os/file.h"')
        self.write("impl/base/a.h", SPDX)
        self.assert_offence("impl/unit/a.h", '"engine/context.h"')

    def test_sideways(self) -> None:
        self.assert_offence("impl/memory/a.h", '"plan/plan.h"')

    def test_messages_know_neither_calls_nor_how_ranks_met(self) -> None:
        self.assert_offence("impl/transport/a.h", '"call_log/channel.h"')
        self.write("impl/transport/a.h", SPDX)
        self.assert_offence("impl/call_log/a.h", '"rendezvous/join.h"')

    def test_later_layers_are_known(self) -> None:
        self.assert_offence("impl/transport/a.h", '"quant/wire.h"')

    def test_plan_is_pure(self) -> None:
        self.assert_offence("impl/plan/a.cpp", '"os/file.h"')

    def test_indented_and_spaced_includes_are_seen(self) -> None:
        self.write("impl/base/a.h", f'{SPDX}#if 1\n  #  include"engine/context.h"\n#endif\n')
        self.assertEqual(len(self.offences()), 1)

    def test_relative_includes(self) -> None:
        self.assert_offence("impl/memory/a.cpp", '"arena.h"')
        self.write("impl/memory/a.cpp", SPDX)
        self.assert_offence("impl/os/a.cpp", '"../base/result.h"')

    def test_angle_brackets_do_not_hide_a_layer(self) -> None:
        self.assert_offence("impl/base/a.h", "<engine/context.h>")

    def test_unknown_folder(self) -> None:
        self.write("impl/misc/a.h", SPDX)
        self.assertEqual(len(self.offences()), 1)
        shutil.rmtree(self.root / "impl/misc")
        self.assert_offence("impl/os/a.h", '"misc/a.h"')

    def test_kernels_stand_alone(self) -> None:
        self.assert_offence("kernels/cpu/a.h", '"base/dtype.h"')
        self.assert_offence("kernels/cpu/a.h", '"meron/base.h"')

    def test_kernels_for_devices(self) -> None:
        for path, include in (
            ("kernels/cuda/a.cu", '"base/dtype.h"'),
            ("kernels/cuda/a.cuh", '"a.h"'),
            ("kernels/cuda/a.h", "<hwy/highway.h>"),
            ("kernels/cpu/a.h", '"kernels/cuda/kernels.h"'),
            ("kernels/cpu/b.h", "<cuda_runtime.h>"),
            ("impl/optim/a.cpp", "<cuda_runtime_api.h>"),
        ):
            self.assert_offence(path, include)
            self.write(path, SPDX)

    def test_kernels_are_not_for_the_bottom(self) -> None:
        self.assert_offence("impl/os/a.cpp", '"kernels/cpu/adamw.h"')

    def test_the_part_for_io_sees_no_engine(self) -> None:
        for header in ('"engine/engine.h"', '"capi/guard.h"', '"plan/plan.h"'):
            self.assert_offence("capi/io.cpp", header)
        for header in ('"io/file_io.h"', '"capi/call.h"', '"base/handles.h"', '"meron/io.h"'):
            self.assertEqual(self.include("capi/io.cpp", header), [])

    def test_capi_sees_the_engine_alone(self) -> None:
        self.assert_offence("capi/param.cpp", '"unit/unit.h"')

    def test_examples_see_the_public_headers_alone(self) -> None:
        self.assert_offence("examples/02/a.c", '"engine/context.h"')

    def test_public_headers(self) -> None:
        for include in ("<vector>", "<unistd.h>", "<cuda.h>", '"base/dtype.h"'):
            self.assert_offence("include/meron/a.h", include)

    def test_public_headers_of_cxx(self) -> None:
        self.assertEqual(self.include("include/meron/cpp/x.hpp", "<memory>"), [])
        self.assertEqual(self.include("include/meron/cpp/x.hpp", '"meron/base.h"'), [])
        self.assert_offence("include/meron/cpp/x.hpp", "<unistd.h>")

    def test_system_calls_have_one_home(self) -> None:
        for include in ("<sys/mman.h>", "<unistd.h>", "<linux/futex.h>"):
            self.assert_offence("impl/transport/a.cpp", include)
        self.assertEqual(self.include("impl/transport/a.cpp", "<sys/auxv.h>"), [])

    def test_libraries_have_one_home(self) -> None:
        self.assert_offence("impl/optim/a.cpp", "<hwy/highway.h>")
        self.assert_offence("impl/optim/a.cpp", '"hwy/highway.h"')
        self.assert_offence("impl/optim/a.cpp", "<gtest/gtest.h>")

    def test_modules_see_the_public_headers_alone(self) -> None:
        self.assert_offence("modules/mpi/a.cpp", '"base/result.h"')

    def test_modules_are_not_linked(self) -> None:
        self.assert_offence("impl/rendezvous/a.cpp", "<mpi.h>")
        self.assert_offence("impl/rendezvous/a.cpp", '"modules/mpi/world.h"')
        self.assert_offence("impl/rendezvous/a.cpp", '"modules/mpi/other_module.h"')
        self.assert_offence("impl/rendezvous/a.cpp", "<modules/mpi/world.h>")
        self.write("impl/rendezvous/a.cpp", SPDX)
        self.assert_offence("impl/unit/a.cpp", '"modules/mpi/mpi_module.h"')

    def test_readme(self) -> None:
        for folder in (
            "impl/base",
            "kernels/cpu",
            "modules/mpi",
            "capi",
            "bindings/python",
            "tools",
        ):
            self.write(f"{folder}/a.h", SPDX)
            (self.root / folder / "README.md").unlink(missing_ok=True)
            self.assertEqual(len(self.offences()), 1, folder)
            self.assertIn(f"{folder}/README.md:1: ", self.offences()[0])
            shutil.rmtree(self.root / folder)

    def test_licence(self) -> None:
        for name in ("a.h", "a.cpp", "a.py", "CMakeLists.txt"):
            self.write(f"impl/base/{name}", "\n")
            self.assertEqual(len(self.offences()), 1, name)
            (self.root / "impl/base" / name).unlink()
        self.write("tools/run", "#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n")
        self.assertEqual(self.offences(), [])
        self.write("tools/run", "#!/bin/sh\necho\n")
        self.assertEqual(len(self.offences()), 1)

    def test_a_bad_edge_planted_in_a_copy_of_the_project(self) -> None:
        copy = self.root / "copy"
        for folder in ("impl", "include", "kernels"):
            shutil.copytree(ROOT / folder, copy / folder)
        before = {str(offence) for offence in check_tree.check(copy)}
        header = copy / "impl/base/result.h"
        lines = header.read_text(encoding="utf-8").splitlines()
        header.write_text("\n".join([*lines, '#include "engine/engine.h"', ""]), encoding="utf-8")
        after = {str(offence) for offence in check_tree.check(copy)}
        (planted,) = after - before
        self.assertTrue(planted.startswith(f"impl/base/result.h:{len(lines) + 1}: "), planted)


if __name__ == "__main__":
    unittest.main()

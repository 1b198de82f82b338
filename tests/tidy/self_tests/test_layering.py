# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from layers import ALLOWED, DESCRIPTIONS, LAYERS, NOT_ALLOWED
from rules import layering
from self_tests.planting import Plant
from tree import Tree


def offences(plant: Plant, path: str, include: str) -> list[str]:
    return plant.offences("layers", {path: f"// licence\n#pragma once\n#include {include}\n"})


@pytest.mark.parametrize(
    "path, include",
    [
        ("impl/base/a.h", '"meron/base.h"'),
        ("impl/base/a.h", "<memory>"),
        ("impl/os/a.cpp", '"base/a.h"'),
        ("impl/os/a.cpp", "<sys/mman.h>"),
        ("impl/optim/a.cpp", '"kernels/cpu/adamw.h"'),
        ("impl/engine/a.h", '"optim/a.h"'),
        ("impl/engine/a.h", '"unit/a.h"'),
        ("impl/rendezvous/a.cpp", '"modules/mpi/mpi_module.h"'),
        ("impl/transport/a.cpp", "<sys/auxv.h>"),
        ("kernels/cpu/a.cpp", "<hwy/base.h>"),
        ("kernels/cpu/a.cpp", '"hwy/highway.h"'),
        ("kernels/cuda/a.cu", "<cuda_runtime.h>"),
        ("kernels/cuda/a.cu", "<cmath>"),
        ("kernels/cuda/a.cuh", '"kernels/cpu/adamw.h"'),
        ("modules/cuda/a.cpp", "<cuda_runtime_api.h>"),
        ("modules/mpi/a.cpp", "<mpi.h>"),
        ("modules/mpi/a.cpp", '"modules/mpi/b.h"'),
        ("modules/mpi/b.h", '"meron/base.h"'),
        ("modules/mpi/b.h", "<unistd.h>"),
        ("capi/a.cpp", '"engine/a.h"'),
        ("capi/a.cpp", '"meron/meron.h"'),
        ("include/meron/a.h", "<stdint.h>"),
        ("include/meron/a.h", '"meron/base.h"'),
        ("include/meron/cpp/x.hpp", "<memory>"),
        ("include/meron/cpp/x.hpp", '"meron/base.h"'),
        ("examples/01/a.c", '"b.h"'),
        ("examples/01/a.c", "<meron/meron.h>"),
        ("examples/01/b.h", "<unistd.h>"),
        ("capi/io.cpp", '"io/file_io.h"'),
        ("capi/io.cpp", '"capi/call.h"'),
        ("capi/io.cpp", '"base/handles.h"'),
        ("capi/io.cpp", '"meron/io.h"'),
    ],
)
def test_allows_includes_that_point_down(plant: Plant, path: str, include: str) -> None:
    assert offences(plant, path, include) == []


@pytest.mark.parametrize(
    "path, include",
    [
        # upwards
        ("impl/base/a.h", '"os/file.h"'),
        ("impl/unit/a.h", '"engine/context.h"'),
        ("impl/transport/a.h", '"quant/wire.h"'),
        # sideways
        ("impl/memory/a.h", '"plan/plan.h"'),
        # messages are independent of calls, and calls of the rendezvous
        ("impl/transport/a.h", '"call_log/channel.h"'),
        ("impl/call_log/a.h", '"rendezvous/join.h"'),
        # the plan is pure
        ("impl/plan/a.cpp", '"os/file.h"'),
        # relative to the file
        ("impl/memory/a.cpp", '"arena.h"'),
        ("impl/os/a.cpp", '"../base/result.h"'),
        # angle brackets hide no layer
        ("impl/base/a.h", "<engine/context.h>"),
        # an unknown folder
        ("impl/os/a.h", '"misc/a.h"'),
        # kernels stand alone
        ("kernels/cpu/a.h", '"base/dtype.h"'),
        ("kernels/cpu/a.h", '"meron/base.h"'),
        # kernels for devices
        ("kernels/cuda/a.cu", '"base/dtype.h"'),
        ("kernels/cuda/a.cuh", '"a.h"'),
        ("kernels/cuda/a.h", "<hwy/highway.h>"),
        ("kernels/cpu/a.h", '"kernels/cuda/kernels.h"'),
        ("kernels/cpu/b.h", "<cuda_runtime.h>"),
        ("impl/optim/a.cpp", "<cuda_runtime_api.h>"),
        # the lowest layers call no kernel
        ("impl/os/a.cpp", '"kernels/cpu/adamw.h"'),
        # the part of capi/ for meron/io.h
        ("capi/io.cpp", '"engine/engine.h"'),
        ("capi/io.cpp", '"capi/guard.h"'),
        ("capi/io.cpp", '"plan/plan.h"'),
        # capi/ calls the engine only
        ("capi/param.cpp", '"unit/unit.h"'),
        # examples use the public headers
        ("examples/02/a.c", '"engine/context.h"'),
        # public headers
        ("include/meron/a.h", "<vector>"),
        ("include/meron/a.h", "<unistd.h>"),
        ("include/meron/a.h", "<cuda.h>"),
        ("include/meron/a.h", '"base/dtype.h"'),
        ("include/meron/cpp/x.hpp", "<unistd.h>"),
        # system calls and libraries have one home
        ("impl/transport/a.cpp", "<sys/mman.h>"),
        ("impl/transport/a.cpp", "<unistd.h>"),
        ("impl/transport/a.cpp", "<linux/futex.h>"),
        ("impl/optim/a.cpp", "<hwy/highway.h>"),
        ("impl/optim/a.cpp", '"hwy/highway.h"'),
        ("impl/optim/a.cpp", "<gtest/gtest.h>"),
        # modules
        ("modules/mpi/a.cpp", '"base/result.h"'),
        ("impl/rendezvous/a.cpp", "<mpi.h>"),
        ("impl/rendezvous/a.cpp", '"modules/mpi/world.h"'),
        ("impl/rendezvous/a.cpp", '"modules/mpi/other_module.h"'),
        ("impl/rendezvous/a.cpp", "<modules/mpi/world.h>"),
        ("impl/unit/a.cpp", '"modules/mpi/mpi_module.h"'),
    ],
)
def test_finds_a_forbidden_include(plant: Plant, path: str, include: str) -> None:
    (found,) = offences(plant, path, include)
    assert found.startswith(f"{path}:3: ")


def test_finds_indented_and_spaced_includes(plant: Plant) -> None:
    text = '#if 1\n  #  include"engine/context.h"\n#endif\n'
    assert len(plant.offences("layers", {"impl/base/a.h": text})) == 1


def test_finds_a_folder_that_is_no_layer(plant: Plant) -> None:
    assert len(plant.offences("layers", {"impl/misc/a.h": "", "impl/misc/b.h": ""})) == 1


def test_finds_an_include_planted_in_the_project(project: Tree) -> None:
    lines = project.by_name["impl/base/result.h"].text.splitlines()
    tree = Tree(project.root)
    tree.by_name["impl/base/result.h"].text = "\n".join([*lines, '#include "engine/engine.h"', ""])
    (planted,) = [str(offence) for offence in layering.check(tree)]
    assert planted.startswith(f"impl/base/result.h:{len(lines) + 1}: ")


def test_the_tables_agree() -> None:
    layers = [layer for row in LAYERS for layer in row]
    assert len(set(layers)) == len(layers)
    assert set(ALLOWED) == set(layers) == set(DESCRIPTIONS) - {"capi"}
    assert all(not ALLOWED[layer] & NOT_ALLOWED[layer] for layer in NOT_ALLOWED)
    assert ALLOWED["os"] == {"base", "os"}

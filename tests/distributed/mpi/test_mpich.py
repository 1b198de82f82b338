# SPDX-License-Identifier: Apache-2.0
"""libmeron_mpi.so made for MPICH: by itself, and under the engine, in a trainer on nodes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = Path(os.environ["MERON_LIBRARY"])
DRIVER = os.environ["MERON_MPI_DRIVER"]
PATIENCE = 120  # seconds after which a test that hangs fails


def execute(words: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the engine and the module for MPICH, which it finds beside itself."""
    for program in ("mpicc.mpich", "mpiexec.mpich"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} (tools/setup --dev installs MPICH)")
    made = tmp_path_factory.mktemp("mpich")
    folder = ROOT / "modules/mpi"
    words = ["mpicc.mpich", "-x", "c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread"]
    words += ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fvisibility=hidden"]
    words += [f"-I{ROOT}", f"-I{ROOT / 'include'}", *map(str, sorted(folder.glob("*.cpp")))]
    words += [f"-Wl,--version-script={folder / 'meron_mpi.map'}", "-Wl,-z,nodelete,-z,defs"]
    done = execute([*words, "-o", str(made / "libmeron_mpi.so"), "-lstdc++"])
    assert done.returncode == 0, done.stdout
    for link in LIBRARY.parent.glob("libmeron.so*"):
        shutil.copy(link, made)
    return made


# Without too_long, because MPICH ends the process. MPICH reports stale messages at its end.
@pytest.mark.parametrize("case", ["messages", "reuse", "worlds", "threads", "abi", "closes_late"])
def test_the_module(libraries: Path, case: str) -> None:
    module = libraries / "libmeron_mpi.so"
    done = execute(["mpiexec.mpich", "-n", "4", DRIVER, str(module), case])
    assert done.returncode == 0, done.stdout


# MERON_NODE makes nodes of this host's ranks: one, so that MPI only lets them meet, and two of two.
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("plan", ["zero1", "zero3"])
def test_a_trainer_gets_the_bits_of_one_host(
    libraries: Path, tmp_path: Path, plan: str, nodes: int
) -> None:
    program = os.environ.get("MERON_LANGUAGE_MODEL")
    if program is None:
        pytest.skip("the examples are not built")
    words = [program, "--steps", "6", "--width", "128", "--layers", "2", "--accumulate", "2"]
    words += ["--plan", plan, "--product", "plain", "--quiet", "--json"]
    launch = ["mpiexec.mpich"]
    for node in range(nodes):
        launch += [":"] if node > 0 else []
        launch += ["-n", str(4 // nodes), "-env", "MERON_NODE", f"node {node}"]
        launch += [*words, str(tmp_path / "mpich")]
    own = {"OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": str(libraries)}
    done = execute(launch, **own)
    assert done.returncode == 0, done.stdout
    alone = [os.environ["MERON_COMMAND"], "run", "-n", "4", "--", *words, str(tmp_path / "shm")]
    done = execute(alone, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout
    mpich, shm = (json.loads((tmp_path / name).read_text()) for name in ("mpich", "shm"))
    assert (mpich["transport"], shm["transport"]) == ("mpi", "shm")
    assert mpich["bytes_equal"]
    assert mpich["losses"] == shm["losses"]

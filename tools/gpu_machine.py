# SPDX-License-Identifier: Apache-2.0
"""A machine's resources for tools/gpu-check: devices, compilers, and Python with its packages."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

CUDA_FOLDERS = ("bin", "compute-sanitizer")
PATIENCE = 20  # seconds for a program that only says its version

# Run by the Python that runs the tests: torch and its NCCL, as one line of JSON.
TORCH = """
import json
try:
    import torch
except ImportError as error:
    print(json.dumps({"missing": str(error)}))
    raise SystemExit
facts = {"version": torch.__version__, "cuda": torch.version.cuda}
facts["devices"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
try:
    facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
except Exception:
    facts["nccl"] = None
print(json.dumps(facts))
"""

# Prints the folder of NCCL in PyTorch's wheels, for the Python that runs the tests.
NCCL = """
import importlib.util, pathlib
found = importlib.util.find_spec("nvidia.nccl")
for folder in found.submodule_search_locations if found else ():
    for file in pathlib.Path(folder, "lib").glob("libnccl.so*"):
        print(file)
"""


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_mib: int
    architecture: str  # as CMAKE_CUDA_ARCHITECTURES has it: 90
    driver: str


@dataclass
class Machine:
    gpus: list[Gpu]
    nvcc: Path | None = None
    nvcc_version: str = ""
    compiler: str = ""
    cmake: str = ""
    ninja: str = ""
    sanitizer: Path | None = None
    nccl: Path | None = None  # that of Python's packages; the loader may find another
    packages: dict[str, bool] = field(default_factory=dict)

    @property
    def architectures(self) -> str:
        return ";".join(sorted({gpu.architecture for gpu in self.gpus if gpu.architecture}))

    def lines(self) -> Iterator[str]:
        """The resources that were found, and a remedy for each missing one."""
        for gpu in self.gpus:
            yield f"GPU       {gpu.name}, {gpu.memory_mib} MiB, driver {gpu.driver}"
        yield (
            f"nvcc      {self.nvcc_version}"
            if self.nvcc
            else (
                "nvcc      missing: put CUDA's nvcc on the PATH, or name its folder by CUDA_HOME; "
                "without it no device code is built"
            )
        )
        yield f"compiler  {self.compiler or 'missing: install g++ 12 or later, or name one by CXX'}"
        yield f"cmake     {self.cmake or 'missing: install CMake 3.25 or later'}"
        yield f"ninja     {self.ninja or 'missing: install ninja'}"
        missing = [name for name, there in self.packages.items() if not there]
        note = f", without {' and '.join(missing)}: pip installs them" if missing else ""
        yield f"python    {platform.python_version()}{note}"
        if self.nccl:
            yield f"NCCL      {self.nccl}"

    def facts(self) -> dict[str, object]:
        """Describes the machine for comparisons, without the name of the host or its owner."""
        return {
            "gpus": [asdict(gpu) for gpu in self.gpus],
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(),
            "system": system_name(),
        }

    def versions(self) -> dict[str, str | None]:
        return {
            "driver": self.gpus[0].driver if self.gpus else None,
            "nvcc": self.nvcc_version or None,
            "compiler": self.compiler or None,
            "cmake": self.cmake or None,
            "ninja": self.ninja or None,
            "python": platform.python_version(),
        }


def output_of(words: Sequence[str | Path]) -> str:
    """Empty if the program is not there, fails, or hangs."""
    try:
        done = subprocess.run(
            list(map(str, words)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


# ---- Devices ------------------------------------------------------------------------------------


def find_gpus() -> list[Gpu]:
    return gpus_of_smi() or gpus_of_driver()


def gpus_of_smi() -> list[Gpu]:
    program = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    query = "--query-gpu=name,memory.total,compute_cap,driver_version"
    return parse_smi(output_of([program, query, "--format=csv,noheader,nounits"]))


def parse_smi(text: str) -> list[Gpu]:
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 4:
            continue
        name, memory, capability, driver = cells
        architecture = re.fullmatch(r"(\d+)\.(\d)", capability)
        gpus.append(
            Gpu(
                name,
                int(memory) if memory.isdigit() else 0,
                architecture[1] + architecture[2] if architecture else "",
                driver,
            )
        )
    return gpus


def gpus_of_driver() -> list[Gpu]:
    """GPUs of a driver without its command."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count, version = ctypes.c_int(), ctypes.c_int()
        failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
        if failed or driver.cuDriverGetVersion(ctypes.byref(version)):
            return []
    except (OSError, AttributeError):
        return []
    shown = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return [Gpu("a CUDA device", 0, "", shown)] * count.value


# ---- Programs -----------------------------------------------------------------------------------


def find_cuda_program(name: str) -> Path | None:
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in filter(None, homes):
        for folder in CUDA_FOLDERS:
            program = Path(home, folder, name)
            if os.access(program, os.X_OK):
                return program
    return None


def first_line(text: str) -> str:
    return text.splitlines()[0].strip() if text.strip() else ""


def look(gpus: list[Gpu]) -> Machine:
    machine = Machine(gpus, nvcc=find_cuda_program("nvcc"))
    if machine.nvcc:
        found = re.search(r"V(\d[\d.]*)", output_of([machine.nvcc, "--version"]))
        machine.nvcc_version = found[1] if found else "of an unknown version"
    machine.compiler = first_line(output_of([os.environ.get("CXX", "c++"), "--version"]))
    machine.cmake = first_line(output_of(["cmake", "--version"])).removeprefix("cmake version ")
    machine.ninja = first_line(output_of(["ninja", "--version"]))
    machine.sanitizer = find_cuda_program("compute-sanitizer")
    machine.nccl = find_nccl()
    machine.packages = {name: has_package(name) for name in ("numpy", "pytest")}
    return machine


def find_nccl() -> Path | None:
    # Without the package `nvidia` looking for its part is an error: then nothing is said.
    path = first_line(output_of([sys.executable, "-c", NCCL]))
    return Path(path) if path else None


def has_package(name: str) -> bool:
    words = [sys.executable, "-c", f"import importlib.util as u; assert u.find_spec({name!r})"]
    return subprocess.run(words, capture_output=True).returncode == 0


def cpu_name() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.machine()


def system_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()


# ---- torch --------------------------------------------------------------------------------------


def start_looking_for_torch() -> subprocess.Popen[str]:
    """Starts the import of torch, which takes long the first time, beside the build of Meron."""
    return subprocess.Popen(
        [sys.executable, "-c", TORCH],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def torch_facts(asked: subprocess.Popen[str], seconds: float) -> dict[str, object]:
    try:
        text, _ = asked.communicate(timeout=seconds)
        facts: dict[str, object] = json.loads(text.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        asked.kill()
        asked.communicate()
        return {"missing": "importing it took too long"}
    except (ValueError, IndexError):
        return {"missing": "importing it failed"}
    return facts

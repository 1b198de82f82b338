# SPDX-License-Identifier: Apache-2.0
"""Tests tools/gpu-check on a machine without a GPU: the time of each phase, the end of a program,
the condition of a pass, the output of meron_add_gpu_test, and the pack."""

from __future__ import annotations

import io
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import gpu_machine
import gpu_pack
import gpu_report
import gpu_sanitizer
import run_gpu_check
from gpu_machine import Gpu, Machine
from gpu_phases import Check, Counts, Outcome, Phase, allot, lines_like, run_phases
from tally import Tally

ROOT = Path(__file__).resolve().parents[2]
H200 = "NVIDIA H200, 143771, 9.0, 580.159.04\n"
PATIENCE = 120


@pytest.fixture
def check(tmp_path):
    return Check(tmp_path, io.StringIO(), Machine([]))


# ---- Phases -------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def fake(clock, name, limit, least, takes, result="passed", needs=()):
    """A phase that takes its time, and never more than it was given."""

    def run(check, seconds):
        clock.now += min(takes, seconds)
        return Outcome(result if takes <= seconds else "failed")

    return Phase(name, limit, least, run, needs)


def results_of(check, clock, phases, budget):
    return {
        one.name: (one.result, one.seconds)
        for one in run_phases(phases, check, clock.now + budget, clock)
    }


def test_a_phase_reserves_the_time_of_later_ones():
    clock = Clock()
    phases = [fake(clock, name, 100, 20, 0) for name in "abc"]
    assert allot(phases, 500) == 100
    assert allot(phases, 120) == 80
    assert allot(phases, 50) == 20  # it is begun all the same
    assert allot(phases, 19) == 0
    assert allot(phases[2:], 50) == 50


def test_all_phases_together_keep_to_the_budget(check):
    clock = Clock()
    phases = [fake(clock, str(i), 100, 10, 1e9) for i in range(8)]
    results = results_of(check, clock, phases, 330)
    assert clock.now == 1330
    assert [seconds for _, seconds in results.values()] == [100, 100, 80, 10, 10, 10, 10, 10]


def test_phases_that_no_longer_fit_are_skipped_and_reported(check, capsys):
    clock = Clock()
    phases = [fake(clock, "long", 95, 95, 90), fake(clock, "late", 60, 30, 1)]
    assert results_of(check, clock, phases, 100) == {"long": ("passed", 90), "late": ("skipped", 0)}
    said = capsys.readouterr().out
    assert "late skipped: no time: it takes 30 s, and 10 s are left" in said
    assert said == check.log.getvalue()


def test_a_phase_waits_for_its_requirements(check, capsys):
    clock = Clock()
    phases = [
        fake(clock, "build", 10, 1, 1, result="failed"),
        fake(clock, "bench", 10, 1, 1, needs=("build",)),
        fake(clock, "tests", 10, 1, 1),
    ]
    results = results_of(check, clock, phases, 100)
    assert [result for result, _ in results.values()] == ["failed", "skipped", "passed"]
    assert "bench skipped: it needs build" in capsys.readouterr().out


def test_a_phase_that_breaks_leaves_the_others_their_turn(check):
    clock = Clock()
    broken = Phase("broken", 10, 1, lambda check, seconds: Outcome({}["no such key"]))
    results = results_of(check, clock, [broken, fake(clock, "next", 10, 1, 1)], 100)
    assert [result for result, _ in results.values()] == ["failed", "passed"]
    assert "Traceback" in check.log.getvalue()


def test_the_phases_fit_into_the_budget():
    names = [phase.name for phase in run_gpu_check.PHASES]
    assert len(set(names)) == len(names)
    assert sum(phase.least for phase in run_gpu_check.PHASES) < run_gpu_check.BUDGET
    for position, phase in enumerate(run_gpu_check.PHASES):
        assert 0 < phase.least <= phase.limit
        assert set(phase.needs) <= set(names[:position])


# ---- Programs -----------------------------------------------------------------------------------


def test_a_program_that_hangs_is_ended_with_its_children(check, tmp_path):
    mark = tmp_path / "child"
    begin = time.monotonic()
    script = f"(sleep 3; touch {shlex.quote(str(mark))}) & echo begun; sleep 60"
    ended = check.run(["sh", "-c", script], 1, folder=tmp_path)
    assert time.monotonic() - begin < 3
    assert ended.status is None and ended.lines == ["begun"]
    time.sleep(2.5)
    assert not mark.exists()


def test_a_program_leaves_its_words_in_the_log(check, tmp_path, capsys):
    ended = check.run(
        ["sh", "-c", "echo one; echo two >&2; exit 3"],
        20,
        lines_like("t"),
        folder=tmp_path,
    )
    assert ended.status == 3 and ended.lines == ["one", "two"]
    assert check.log.getvalue().endswith("one\ntwo\n")
    assert capsys.readouterr().out == "  two\n"


def test_a_build_shows_counts_and_errors():
    show = Counts(every=0)
    assert show("[3/12] Building CXX object a.o") == "3 of 12"
    assert show("a.cpp:3:1: error: expected ';'") == "a.cpp:3:1: error: expected ';'"
    assert show("a.cpp:3:1: note: to match this '{'") is None


def test_a_program_that_is_not_there(check):
    ended = check.run(["/nowhere/program"], 20)
    assert ended.status == 127
    assert "No such file" in check.log.getvalue()


# ---- What it says -------------------------------------------------------------------------------


def run_tool(*words):
    command = [str(ROOT / "tools" / "gpu-check"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_help():
    done = run_tool("--help")
    assert done.returncode == 0
    for word in ("--out DIR", "--budget SECONDS", "--pack", "gpu-check.json", "77"):
        assert word in done.stdout


def test_without_a_gpu_it_reports_that_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_machine, "find_gpus", list)
    assert run_gpu_check.main(["--out", str(tmp_path / "out")]) == 77
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "there is no NVIDIA GPU" in said
    assert not (tmp_path / "out").exists()


def test_without_a_gpu_the_command_does_the_same(tmp_path):
    if gpu_machine.find_gpus():
        pytest.skip("there is a GPU")
    done = run_tool("--out", str(tmp_path / "out"))
    assert done.returncode == 77
    assert done.stdout.count("\n") == 1 and not done.stderr


def test_devices_are_read():
    assert gpu_machine.parse_smi(H200 * 2) == [Gpu("NVIDIA H200", 143771, "90", "580.159.04")] * 2
    assert gpu_machine.parse_smi("No devices were found\n") == []
    assert Machine(gpu_machine.parse_smi(H200 * 2)).architectures == "90"
    assert gpu_machine.parse_smi("GB10, [N/A], 12.1, 580.95\n")[0].architecture == "121"


def test_missing_parts_are_named_with_the_remedy():
    said = "\n".join(Machine([], packages={"pytest": False, "numpy": True}).lines())
    for name in ("nvcc", "compiler", "cmake", "ninja"):
        assert re.search(rf"^{name} +missing: ", said, re.MULTILINE)
    assert "without pytest: pip installs them" in said


def run_main(out, monkeypatch, tests, *results):
    """A run of phases that find this."""

    def outcome(result):
        def run(check, seconds):
            check.tests = tests
            return Outcome(result, "a note")

        return run

    phases = [Phase(f"{i}", 9, 1, outcome(one)) for i, one in enumerate(results)]
    monkeypatch.setattr(run_gpu_check, "PHASES", phases)
    monkeypatch.setattr(gpu_machine, "find_gpus", lambda: gpu_machine.parse_smi(H200))
    return run_gpu_check.main(["--out", str(out)])


@pytest.mark.parametrize(
    ("tests", "results", "status"),
    [
        (Tally(1, 0, 5), ("passed", "skipped"), 0),
        (Tally(1, 0, 0), ("passed", "failed"), 1),
        (Tally(0, 0, 6), ("passed", "skipped"), 1),  # no test ran on the GPU
    ],
)
def test_a_report_is_left(tmp_path, monkeypatch, capsys, tests, results, status):
    out = tmp_path / "out"
    assert run_main(out, monkeypatch, tests, *results) == status
    names = sorted(path.name for path in out.iterdir())
    assert len(names) <= 8
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in names)
    report = json.loads((out / "gpu-check.json").read_text())
    assert report["passed"] == (status == 0)
    assert report["tests"]["passed"] == tests.passed
    assert [phase["result"] for phase in report["phases"]] == list(results)
    assert report["machine"]["gpus"][0]["name"] == "NVIDIA H200"
    assert report["versions"]["driver"] == "580.159.04"
    said = capsys.readouterr().out
    assert said == (out / "log.txt").read_text()
    assert f"tests: {tests}" in said


def test_goals_are_counted():
    goals = [{"name": "a", "passed": True}, {"name": "b", "passed": False}]
    assert gpu_report.count_goals(goals) == "1 goals met, 1 missed"
    assert gpu_report.count_goals([]) == "no goals"


def test_every_goal_is_shown_with_its_bound(check):
    check.goals = [
        {"name": "a copy", "value": 0.95, "goal": 0.93, "passed": True},
        {"name": "a step", "value": 1.234, "goal": 1.1, "at_least": False, "passed": False},
    ]
    results = [run_phases([fake(Clock(), "bench", 9, 1, 1)], check, 1e9, Clock())[0]]
    said = gpu_report.table(check, results)
    assert "bench: 1 goals met, 1 missed" in said
    assert re.search(r"met +0\.950 >= 0\.93 +a copy", said)
    assert re.search(r"MISSED +1\.234 <= 1\.1 +a step", said)


# ---- What is built ------------------------------------------------------------------------------


def succeed(*words):
    done = subprocess.run(
        list(map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """A pack that was moved after it was made. (What pip fetches is left out.)"""
    folder = tmp_path_factory.mktemp("pack")
    try:
        gpu_pack.make(folder / "made", python=False)
    except gpu_pack.PackError as error:
        pytest.skip(str(error))
    return (folder / "made").rename(folder / "moved to here")


def test_the_pack_is_small_and_names_no_place(pack):
    assert 0 < gpu_pack.size_of(pack) < 60_000_000
    assert gpu_pack.fault_of(pack) is None
    texts = 0
    for path in pack.rglob("*"):
        assert not path.is_symlink()
        text = path.read_bytes() if path.is_file() else b"\0"
        if b"\0" not in text:
            texts += 1
            assert b"/usr/" not in text and str(pack.parent).encode() not in text, path
    assert texts > 100


def test_a_pack_for_another_machine_is_refused(tmp_path):
    assert gpu_pack.fault_of(tmp_path) is not None
    facts = {"format": gpu_pack.FORMAT, "machine": "sparc"}
    (tmp_path / "pack.json").write_text(json.dumps(facts))
    assert "sparc" in (gpu_pack.fault_of(tmp_path) or "")


def test_python_packages_of_the_pack_fill_gaps_only(tmp_path, monkeypatch):
    pack, build = tmp_path / "a pack", tmp_path / "build"
    folder = gpu_pack.python_folder(pack, ".".join(map(str, sys.version_info[:2])))
    build.mkdir()
    monkeypatch.setattr(run_gpu_check, "BUILD", build)
    monkeypatch.setattr(gpu_machine, "has_package", lambda name: False)
    assert run_gpu_check.packed_python(pack) == sys.executable  # the pack has none for this one
    folder.mkdir(parents=True)
    (folder / "cffi.py").write_text("")
    (tmp_path / "own.py").write_text("")
    script = run_gpu_check.packed_python(pack)
    show = "import cffi, own, sys; print(cffi.__file__, sys.argv[1:], sep='\\n')"
    words = [script, "-c", show, "two words"]
    environment = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == [str(folder / "cffi.py"), "['two words']"], done.stderr
    monkeypatch.setattr(gpu_machine, "has_package", lambda name: True)
    assert run_gpu_check.packed_python(pack) == sys.executable


# Of each library a source that includes it.
USERS = {
    "hwy": "kernels/cpu/copy.cpp",
    "liburing.h": "impl/os/io_ring.cpp",
    "fmt": "impl/os/file.cpp",
    "nlohmann": "impl/plan/json_text.cpp",
    "CLI": "tools/meron/main.cpp",
    "gtest": "tests/unit/plan/plan_test.cpp",
}
OF_THE_SYSTEM = re.compile(r"/usr/(local/)?include/(hwy|liburing|fmt|nlohmann|CLI|gtest|gmock)\b")


def test_meron_is_built_from_the_pack_alone(pack, tmp_path):
    options = ("-DMERON_CUDA=OFF", "-DMERON_MPI=OFF")
    pack_alone = f"-DCMAKE_PREFIX_PATH={pack}"
    succeed("cmake", "-S", ROOT, "--preset", "release", "-B", tmp_path, *options, pack_alone)
    cache = (tmp_path / "CMakeCache.txt").read_text()
    found = dict(re.findall(r"^(\w+):\w+=(.*)$", cache, re.MULTILINE))
    for name in ("fmt_DIR", "nlohmann_json_DIR", "CLI11_DIR", "GTest_DIR"):
        assert found[name].startswith(f"{pack}/lib/cmake/")
    assert found["MERON_URING"] == f"{pack}/lib/liburing.a"
    for name in ("MERON_URING_INCLUDE", "MERON_HIGHWAY_INCLUDE"):
        assert found[name] == f"{pack}/include"
    # The compiler reads the headers of every library from the pack, and from no other folder.
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    command_of = {entry["file"]: entry for entry in commands}
    for library, source in USERS.items():
        entry = command_of[str(ROOT / source)]
        words = shlex.split(entry["command"])
        words[words.index("-o") : words.index("-o") + 2] = ["-M"]
        done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        read = done.stdout.replace("\\ ", " ")
        assert f"{pack}/" in read and f"/{library}" in read, source
        assert not OF_THE_SYSTEM.search(read), source


def test_what_declares_a_gpu_test_makes_one_that_skips_itself(pack, tmp_path):
    source = ROOT / "tests" / "tools" / "gpu_project"
    succeed("cmake", "-G", "Ninja", "-S", source, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={pack}")
    succeed("cmake", "--build", tmp_path, "--target", "gpu_checks", "--parallel", "1")
    built = {path.name for path in tmp_path.iterdir()}
    assert {"test_probe", "bench_gpu_probe"} <= built
    assert "other" not in built  # nothing else is built
    listing = succeed("ctest", "--test-dir", tmp_path, "-L", "^gpu$", "--show-only=json-v1")
    (program,) = gpu_sanitizer.programs_of(listing)
    assert (program.name, program.path) == ("probe", tmp_path / "test_probe")
    done = subprocess.run([program.path], capture_output=True, text=True, timeout=PATIENCE)
    if gpu_machine.find_gpus():
        assert done.returncode == 0
    else:
        assert (done.returncode, done.stdout) == (77, "skipped: there is no CUDA device\n")

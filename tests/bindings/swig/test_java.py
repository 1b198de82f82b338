# SPDX-License-Identifier: Apache-2.0
"""Java as whole programs: ranks that are processes, Ctrl-C, and finding the library."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

# A suite that runs in the background (nohup, a shell's &) inherits an ignored SIGINT, as would the
# processes that tests interrupt. With a handler here, they start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
JAVA = os.environ["MERON_JAVA"]
JAR = Path(os.environ["MERON_JAR"])
TESTS = os.environ["MERON_JAVA_TESTS"]
RUN = [os.environ["MERON_COMMAND"], "run", "--timeout", "50", "-n"]


def java(*arguments: str, jar: Path = JAR, options: tuple[str, ...] = ()) -> list[str]:
    return [JAVA, "-Xmx256m", *options, "-cp", f"{jar}:{TESTS}", "RanksProgram", *arguments]


def start(*command: str, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a command; None takes a variable away."""
    chosen = {**os.environ, **environment}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=50,
        env={name: value for name, value in chosen.items() if value is not None},
    )


def ranks(count: int, *arguments: str) -> str:
    done = start(*RUN, str(count), "--", *java(*arguments))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_two_processes_give_the_same_bits_under_every_plan() -> None:
    assert len({ranks(2, "train", plan) for plan in ("zero0", "zero2", "zero3")}) == 1


def test_a_dead_rank_is_named() -> None:
    done = start(*RUN, "2", "--", *java("die"))
    assert "PEER_DEAD 1" in done.stdout


@pytest.mark.parametrize("dtype", ("f32", "bf16", "f16"))
def test_the_language_model_has_the_losses_of_c(tmp_path: Path, dtype: str) -> None:
    found = []
    model = [JAVA, "-Xmx256m", "-cp", f"{JAR}:{os.environ['MERON_EXAMPLE_JAVA']}"]
    for name, program in (
        ("java", [*model, "languagemodel.Main"]),
        ("c", [os.environ["MERON_EXAMPLE_LANGUAGE_MODEL"], "--product", "plain"]),
    ):
        file = tmp_path / f"{name}.json"
        small = ("--width", "128", "--layers", "2", "--batch", "32", "--steps", "30", "--quiet")
        done = start(*RUN, "2", "--", *program, *small, "--dtype", dtype, "--json", str(file))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        run = json.loads(file.read_text())
        assert run.pop("language") == name
        for row in run["per_rank"]:
            del row["arena_pages_bytes"]  # the kernel's business
        found.append(
            {key: value for key, value in run.items() if not key.startswith(("sec", "steps_per"))}
        )
    assert found[0] == found[1]
    assert len(found[0]["losses"]) == 30


def test_the_language_model_refuses_as_in_c() -> None:
    for wrong in (["--width", "100"], ["--plan", "zero9"], ["--steps", "0"], ["--oops"]):
        answers = set()
        for program in (
            [JAVA, "-cp", f"{JAR}:{os.environ['MERON_EXAMPLE_JAVA']}", "languagemodel.Main"],
            [os.environ["MERON_EXAMPLE_LANGUAGE_MODEL"]],
        ):
            done = start(*program, *wrong)
            answers.add((done.returncode, done.stdout, done.stderr))
        assert len(answers) == 1
        assert next(iter(answers))[0] == 2


@pytest.mark.parametrize(
    "driver", ("05_checkpoint/kill_and_resume.py", "06_pretrained/publish_and_tune.py")
)
def test_checkpoints_and_published_weights(driver: str) -> None:
    command = [sys.executable, "-B", str(EXAMPLES / driver), "--lang", "java"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr


def test_control_c_ends_a_wait() -> None:
    job = subprocess.Popen(
        [*RUN, "2", "--", *java("wait")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "waiting\n"
    begin = time.monotonic()
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=30)
    assert job.returncode != 0
    assert time.monotonic() - begin < 10


def test_the_jar_is_a_module_with_a_version() -> None:
    with zipfile.ZipFile(JAR) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    version = re.search(r"Implementation-Version: (\S+)", manifest)
    assert version
    assert "Enable-Native-Access: ALL-UNNAMED" in manifest
    modular = [JAVA, "-p", str(JAR), "--add-modules", "org.meron", "-cp", TESTS]
    assert start(*modular, "RanksProgram", "version").stdout == f"{version[1]}\n"


# ---- Finding the library


def test_the_property_comes_before_the_variable() -> None:
    library = os.environ["MERON_LIBRARY"]
    chosen = java("version", options=(f"-Dmeron.library={library}",))
    done = start(*chosen, MERON_LIBRARY="/nowhere")
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout), done.stderr


def test_a_folder_will_do() -> None:
    folder = str(Path(os.environ["MERON_LIBRARY"]).parent)
    assert start(*java("version"), MERON_LIBRARY=folder).returncode == 0


def test_the_build_tree_is_found() -> None:
    assert start(*java("version"), MERON_LIBRARY=None).returncode == 0


def test_beside_the_jni_library(tmp_path: Path) -> None:
    for file in (JAR, JAR.parent / "libmeron_java.so"):
        shutil.copy(file, tmp_path)
    shutil.copy(os.environ["MERON_LIBRARY"], tmp_path / "libmeron.so")
    jar = tmp_path / JAR.name
    assert start(*java("version", jar=jar), MERON_LIBRARY=None).returncode == 0


def test_a_library_that_is_not_there() -> None:
    done = start(*java("version"), MERON_LIBRARY="/nowhere/libmeron.so")
    assert done.returncode == 1
    assert "cannot load libmeron.so. Tried:" in done.stderr
    assert "/nowhere/libmeron.so (MERON_LIBRARY): no such file" in done.stderr
    assert "Set the environment variable MERON_LIBRARY" in done.stderr


def test_all_places_are_listed(tmp_path: Path) -> None:
    for file in (JAR, JAR.parent / "libmeron_java.so"):
        shutil.copy(file, tmp_path)
    done = start(*java("version", jar=tmp_path / JAR.name), MERON_LIBRARY=None)
    if done.returncode == 0:
        pytest.skip("a libmeron is installed on this machine")
    for place in ("beside libmeron_java.so", "the build tree", "the system's loader"):
        assert f"({place})" in done.stderr


def test_the_jni_library_is_not_there(tmp_path: Path) -> None:
    shutil.copy(JAR, tmp_path)
    done = start(*java("version", jar=tmp_path / JAR.name))
    assert "cannot load libmeron_java.so. Tried:" in done.stderr
    assert "beside the jar" in done.stderr
    assert "java.library.path" in done.stderr
    assert "Set the system property meron.jni" in done.stderr


def test_another_version_says_found_and_needed() -> None:
    done = start(*java("version"), MERON_LIBRARY=os.environ["MERON_OTHER_VERSION"])
    assert "version 0.9.9, but this binding needs 0." in done.stderr


def test_a_file_that_is_no_libmeron() -> None:
    done = start(*java("version"), MERON_LIBRARY=str(JAR.parent / "libmeron_java.so"))
    assert "it is no libmeron, or a damaged one: it lacks meron_" in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""The README's first screen and the pages of docs/start work as written. Each is followed to the
letter, from the clone on, in an empty home directory on a machine without MPI and without CUDA.
Programs print what the page shows.

This checkout's .venv replaces the downloads of tools/setup. The pages build one after the other in
the same place: the second finds what the first has built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
import time
from pathlib import Path

import pytest
from conftest import BUILD, ROOT, clean_environment
from page import Commands, printed_by, script_of, steps_of

START = ROOT / "docs" / "start"
PAGES = {**{path.stem: path for path in START.glob("*.md")}, "readme": ROOT / "README.md"}
NEEDED = {
    "c": "cc",
    "cpp": "c++",
    "python": "python3",
    "readme": "python3",
    "rust": "cargo",
    "julia": "julia",
    "java": "javac",
}
SETUP = {page: f"--{page}" if page in ("rust", "julia", "java") else "" for page in NEEDED}
PATIENCE = 900
# A fixed place, so that a compiler cache knows the files again.
PLACE = BUILD / "tests" / "package" / "start"

# A machine without MPI and CUDA.
LACKING = """\
set(CMAKE_DISABLE_FIND_PACKAGE_MPI ON)
set(MERON_CUDA OFF)
"""
# With the options of tools/test the compiler cache has what that has compiled. Of a user's options
# test_a_warning_stops_no_build_of_a_user tells.
TOOLCHAIN = LACKING + "set(MERON_WERROR ON)\n"

# Runs in each new clone. The times of all files are those of the first clone, so that what was
# built from them counts as built.
AFTER_CLONE = """\
#!/bin/sh
ln -s "$LENT_VENV" .venv
git ls-files -z | xargs -0 touch -h -d "@$LENT_TIME"
[ ! -d "$LENT_BUILD" ] || mv "$LENT_BUILD" build
"""

# Nothing is installed by a test.
REFUSING = "#!/bin/sh\necho 'this test installs nothing' >&2\nexit 1\n"


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def copy_of_the_checkout(place: Path) -> None:
    """A repository with the files as they are, committed or not."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("the sources are no git checkout: there is nothing to clone")
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, place / name)
    who = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    for words in (["init", "-q"], ["add", "-A", "-f"], [*who, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *words], cwd=place, check=True, capture_output=True)


def lent_packages(place: Path) -> None:
    """NumPy and cffi, which pip finds to be there already."""
    site = Path(sysconfig.get_path("platlib"))
    for pattern in ("numpy*", "cffi*", "_cffi_backend*", "pycparser*"):
        for path in site.glob(pattern):
            (place / path.name).symlink_to(path)


class Machine:
    """An empty home directory in PLACE, and the environment of who works there."""

    def __init__(self) -> None:
        shutil.rmtree(PLACE, ignore_errors=True)
        self.home = PLACE / "home"
        self.saved_build = PLACE / "build"
        for folder in ("source", "lent", "tools", "files"):
            (PLACE / folder).mkdir(parents=True)
        copy_of_the_checkout(PLACE / "source")
        lent_packages(PLACE / "lent")
        executable(PLACE / "template" / "hooks" / "post-checkout", AFTER_CLONE)
        for name in ("apt-get", "sudo"):
            executable(PLACE / "tools" / name, REFUSING)
        (PLACE / "toolchain.cmake").write_text(TOOLCHAIN)
        self.environment = clean_environment(
            HOME=str(self.home),
            PATH=os.pathsep.join([str(PLACE / "tools"), os.environ["PATH"]]),
            MERON_REPOSITORY=str(PLACE / "source"),
            CMAKE_TOOLCHAIN_FILE=str(PLACE / "toolchain.cmake"),
            GIT_TEMPLATE_DIR=str(PLACE / "template"),
            GIT_CONFIG_GLOBAL="/dev/null",
            LENT_VENV=str(ROOT / ".venv"),
            LENT_TIME=str(int(time.time()) - 60),
            LENT_BUILD=str(self.saved_build),
            PIP_NO_INDEX="1",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
            CARGO_NET_OFFLINE="true",
            **self.of_the_user("CARGO_HOME", ".cargo"),
            **self.of_the_user("RUSTUP_HOME", ".rustup"),
        )
        if shutil.which("ccache"):
            words = ["ccache", "--get-config", "cache_dir"]
            folder = subprocess.run(words, capture_output=True, text=True).stdout.strip()
            self.environment["CCACHE_DIR"] = folder

    @staticmethod
    def of_the_user(variable: str, folder: str) -> dict[str, str]:
        place = os.environ.get(variable) or Path.home() / folder
        return {variable: str(place)} if Path(place).exists() else {}

    def why_not(self, page: str) -> str | None:
        """Packages that this machine lacks and tools/setup would have to install."""
        if shutil.which(NEEDED[page]) is None:
            return f"there is no {NEEDED[page]}"
        requirements = ROOT / "tools" / "requirements.txt"
        stamp = ROOT / ".venv" / "meron-setup-stamp"
        script = f'echo "$(cksum {requirements.relative_to(ROOT)}) '
        script += '$(readlink -f "$(command -v python3)")"'
        wanted = subprocess.run(["sh", "-c", script], cwd=ROOT, capture_output=True, text=True)
        if not stamp.exists() or stamp.read_text() != wanted.stdout:
            return "the .venv of this checkout is not what tools/setup makes: run it"
        words = [ROOT / "tools" / "setup", "--quiet", *filter(None, [SETUP[page]])]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        return None if done.returncode == 0 else f"tools/setup would install: {done.stdout}"

    def empty_home(self) -> None:
        built = self.home / "meron" / "build"
        if built.exists():
            built.rename(self.saved_build)
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir()

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self.home,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )


@pytest.fixture(scope="module")
def machine() -> Machine:
    return Machine()


@pytest.mark.parametrize("page", NEEDED)
def test_the_page_works_as_it_is_written(machine: Machine, page: str) -> None:
    missing = machine.why_not(page)
    if missing is not None:
        pytest.skip(missing)
    machine.empty_home()
    if page == "readme":
        pytest.importorskip("torch", reason="torch is not installed (tools/setup --torch)")
    steps = steps_of(PAGES[page].read_text())
    lent = {"python": PLACE / "lent", "readme": sysconfig.get_path("platlib")}
    variables = {"PYTHONPATH": str(lent[page])} if page in lent else {}
    done = machine.run(script_of(steps, PLACE / "files"), **variables)
    assert done.returncode == 0, done.stdout[-5000:]
    compared = 0
    for number, step in enumerate(steps):
        if isinstance(step, Commands) and step.printed is not None:
            # By letters: two ranks write into one pipe, where pieces of their lines may mix.
            printed = printed_by(done.stdout, number)
            assert sorted("".join(printed)) == sorted("".join(step.printed)), printed
            compared += 1
    if page == "readme":
        first, last = (
            [float(loss) for loss in re.findall(rf"step +{step}  loss ([\d.]+)", done.stdout)]
            for step in (0, 300)
        )
        assert len(first) == len(last) == 2, done.stdout[-2000:]  # of each rank
        assert max(last) < min(0.001, *first), done.stdout[-2000:]
    else:
        assert compared > 0, "the page shows nothing that its programs print"

    # It was that machine: nothing of MPI or CUDA was built.
    built = machine.home / "meron" / "build" / "release"
    assert not list(built.glob("capi/libmeron_mpi.so")) + list(built.glob("capi/libmeron_cuda.so"))


def test_a_warning_stops_no_build_of_a_user(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "lacking.cmake").write_text(LACKING)
    words = ["cmake", "--preset", "release", "-B", tmp_path / "build"]
    environment = {**machine.environment, "CMAKE_TOOLCHAIN_FILE": str(tmp_path / "lacking.cmake")}
    subprocess.run(words, cwd=ROOT, env=environment, check=True, capture_output=True)
    commands = (tmp_path / "build" / "compile_commands.json").read_text()
    assert "gather.cpp" in commands
    assert "-Wall" in commands and "-Werror" not in commands


def test_every_page_is_followed() -> None:
    assert set(PAGES) == {"README", *NEEDED}


def test_without_an_address_the_clone_line_says_what_to_set(tmp_path: Path) -> None:
    for page in NEEDED:
        text = PAGES[page].read_text()
        first = next(step for step in steps_of(text) if isinstance(step, Commands)).text
        done = subprocess.run(
            ["bash", "-euc", first],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode != 0 and "address of this repository" in done.stderr
        assert not list(tmp_path.iterdir())

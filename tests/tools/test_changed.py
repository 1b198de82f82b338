#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tools/test --changed` runs every test that a change can reach, and says what it leaves out.

    python3 tests/tools/test_changed.py BUILD

BUILD is a folder that CMake has configured; nothing in it needs to be built.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests
from impact import cmake, git, tiers
from impact.graph import EVERYTHING, Graph, Rule, Selection, Test, impact
from impact.tree import make_graph
from testing import changed

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
# The check that reads every file of the tree.
TREE = "tidy"

# A change, some tests that must run, and some that must not. Tests that this machine's build does
# not have (no Java, no MPI) are not looked for.
CHANGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "impl/values/gather.cpp": (
        (
            *("engine", "capi_misuse", "mesh", "twin", "fault_kill", "conformance_c", TREE),
            *("python_context", "torch_twin", "command_run", "rust_library", "bench"),
        ),
        (
            *("base", "os", "memory", "plan", "io", "checkpoint", "transport", "device", "shard"),
            *("fuzz_plan_json", "schedule", "capi_headers", "generated", "hosts_self"),
        ),
    ),
    "impl/plan/text.cpp": (
        ("plan", "fuzz_plan_json", "checkpoint", "command_plan", "capi_hpp", "python_plan"),
        ("base", "os", "io", "memory", "transport", "schedule", "kernels", "fuzz_link"),
    ),
    "impl/io/io_engine.h": (
        ("io", "checkpoint", "offload", "fault_storage", "command_io_bench", "tiers"),
        ("base", "os", "plan", "memory", "transport", "schedule", "kernels"),
    ),
    "impl/schedule/a_new_file.cpp": (
        ("schedule", "engine", "ahead", "torch_world"),
        ("base", "io", "plan", "optim", "saving", "transport"),
    ),
    "capi/plan.cpp": (
        ("capi_hpp", "abi_structs", "python_plan", "conformance_python", "ahead"),
        ("base", "plan", "engine", "optim", "schedule", "fuzz_plan_json", "capi_headers"),
    ),
    "kernels/cpu/adamw.h": (
        ("kernels", "optim", "twin", "python_context"),
        ("base", "os", "plan", "schedule", "capi_headers", "hosts_self"),
    ),
    "kernels/cuda/codes.cuh": (
        ("kernels_cuda", "kernels_without_traps"),
        ("kernels", "plan", "io", "capi_misuse", "python_context"),
    ),
    "bindings/python/meron/torch/api.py": (
        ("torch_zero", "torch_twin", "torch_hard", "examples_torch", TREE),
        ("capi_misuse", "mesh", "engine", "python_context", "rust_library", "conformance_c"),
    ),
    "bindings/rust/meron/src/lib.rs": (
        ("rust_library", "rust_lints", "conformance_rust", "generated"),
        ("python_context", "torch_zero", "julia_threads", "capi_misuse", "engine", "twin"),
    ),
    "docs/checkpoints.md": (
        ("torch_pages", TREE),
        ("base", "capi_misuse", "twin", "python_context", "torch_zero", "capi_headers"),
    ),
    "CHANGELOG.md": (
        (TREE,),
        ("torch_pages", "base", "capi_misuse", "generated", "capi_headers", "bench"),
    ),
    "tests/distributed/mesh_test.cpp": (
        ("mesh", TREE),
        ("twin", "tiers", "capi_misuse", "base", "python_context", "generated"),
    ),
    "tools/tally.py": (
        ("run_tests_self", "gpu_check", TREE),
        ("base", "capi_misuse", "twin", "command_run", "generated", "bench", "abi_gate"),
    ),
    "tests/unit/io/CMakeLists.txt": (("io",), ("plan", "checkpoint", "twin", "python_io")),
    "modules/emulated/stream.cpp": (
        ("device", "device_edge", "joined_devices", "torch_device"),
        ("base", "plan", "twin", "hosts_self", "mesh"),
    ),
    "tests/bindings/torch/zero/test_zero_steps.py": (
        ("torch_zero",),
        ("twin", "python_context", "examples", "torch_pages"),
    ),
}
REACH_EVERYTHING = ("include/meron/context.h", "cmake/MeronTest.cmake", "unheard/of.xyz")


class OfThisTree(unittest.TestCase):
    graph: ClassVar[Graph]

    @classmethod
    def setUpClass(cls) -> None:
        try:
            cls.graph = make_graph(ROOT, BUILD)
        except cmake.NotConfigured as error:
            raise unittest.SkipTest(f"{error}: cmake --preset release") from None

    def select(self, *files: str) -> Selection:
        return impact(files, self.graph)

    def test_changes_reach_these_tests_and_not_those(self) -> None:
        for file, (inside, outside) in CHANGES.items():
            selection = self.select(file)
            for name in set(inside) & self.graph.tests.keys():
                with self.subTest(f"{name} runs", file=file):
                    self.assertIn(name, selection.tests)
            for name in set(outside) & self.graph.tests.keys():
                with self.subTest(f"{name} does not run", file=file):
                    self.assertIn(name, selection.left_out)
            with self.subTest("not in doubt", file=file):
                self.assertEqual(selection.in_doubt, [])

    def test_names_of_the_table_are_tests(self) -> None:
        unknown = {
            name
            for inside, outside in CHANGES.values()
            for name in inside + outside
            if name not in self.graph.tests and not name.startswith(("rust", "julia", "java"))
        }
        self.assertLessEqual(unknown, {"torch_pages", "bench", "hosts_self"})

    def test_some_changes_reach_everything(self) -> None:
        for file in REACH_EVERYTHING:
            with self.subTest(file):
                self.assertEqual(self.select(file).left_out, [])
        self.assertEqual(self.select("unheard/of.xyz").in_doubt, ["unheard/of.xyz"])

    def test_every_tracked_file_is_known(self) -> None:
        files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(self.select(*filter(None, files.stdout.split("\0"))).in_doubt, [])

    def test_two_changes_reach_what_either_reaches(self) -> None:
        both = self.select("CHANGELOG.md", "impl/plan/text.cpp")
        self.assertEqual(both.tests.keys(), self.select("impl/plan/text.cpp").tests.keys())

    def test_a_page_needs_no_build_before_its_checks(self) -> None:
        first = tiers.arrange(self.select("docs/checkpoints.md"), self.graph.tests, {})[0]
        self.assertEqual(first.name, tiers.SOURCE)
        self.assertTrue(changed.is_page("docs/checkpoints.md"))

    def test_a_layers_own_tests_run_before_others(self) -> None:
        order = tiers.arrange(self.select("impl/io/io_engine.cpp"), self.graph.tests, {})
        self.assertEqual([order[1].name, order[1].tests], [tiers.NEAREST, ["io"]])
        self.assertIn("checkpoint", order[2].tests)
        self.assertEqual(order[2].name, tiers.UNIT)


class OfASmallGraph(unittest.TestCase):
    def setUp(self) -> None:
        self.graph = Graph(rules=(Rule("*.md", ()), Rule("all/*", (EVERYTHING,))))
        for name, label in (("a", "unit"), ("b", "distributed"), ("far", "python")):
            self.graph.add_test(Test(name, frozenset({label}), f"tests/{label}/{name}"))
        self.graph.add_use("a.cpp", "a.h")
        self.graph.add_use("target:a", "a.cpp")
        self.graph.add_use("target:lib", "target:a")
        self.graph.add_use("test:a", "target:a")
        self.graph.add_use("test:b", "target:lib")
        self.graph.add_use("a.h", "a.cpp")  # a circle

    def test_distance_counts_the_way(self) -> None:
        reached = impact(["a.h"], self.graph).tests
        self.assertEqual({n: r.distance for n, r in reached.items()}, {"a": 3, "b": 4})

    def test_in_doubt_everything_runs(self) -> None:
        selection = impact(["strange.bin", "page.md"], self.graph)
        self.assertEqual(selection.in_doubt, ["strange.bin"])
        self.assertEqual(sorted(selection.tests), ["a", "b", "far"])

    def test_a_rule_without_tests_makes_a_file_known(self) -> None:
        self.assertEqual(impact(["page.md"], self.graph).tests, {})

    def test_no_change_reaches_nothing(self) -> None:
        self.assertEqual(impact([], self.graph).left_out, ["a", "b", "far"])

    def test_a_time_limit_takes_cheap_tests_first_and_counts_those_beside_them(self) -> None:
        cost = {"a": 10.0, "b": 20.0, "far": 30.0}
        chosen, needed = tiers.fit(["a", "b", "far"], self.graph.tests, cost, 30, 2)
        self.assertEqual((chosen, needed), (["a", "b", "far"], 30.0))
        chosen, _ = tiers.fit(["a", "b", "far"], self.graph.tests, cost, 29, 2)
        self.assertEqual(chosen, ["a", "b"])
        self.assertEqual(tiers.fit(["a"], self.graph.tests, cost, -1, 2), ([], 0))


class Branch(unittest.TestCase):
    """A made-up clone: main with a commit, and a branch with another."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="meron-changed-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name, "clone")
        self.root.mkdir()
        # No setting of this machine matters.
        quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for who in ("AUTHOR", "COMMITTER"):
            quiet |= {f"GIT_{who}_NAME": "n", f"GIT_{who}_EMAIL": "n@example.org"}
        patch = mock.patch.dict(os.environ, quiet)
        patch.start()
        self.addCleanup(patch.stop)
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit("one.txt")
        self.git("checkout", "--quiet", "-b", "work")
        self.commit("two.txt")

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True)

    def commit(self, name: str) -> None:
        (self.root / name).write_text(f"{name}\n")
        self.git("add", name)
        self.git("commit", "--quiet", "-m", name)

    def refuse(self, base: str = "", root: Path | None = None) -> str:
        with self.assertRaises(git.GitError) as raised:
            git.find_change(root or self.root, base)
        return str(raised.exception)

    def test_a_branch_is_compared_with_main(self) -> None:
        self.git("checkout", "--quiet", "main")
        self.commit("later_on_main.txt")
        self.git("checkout", "--quiet", "work")
        found = git.find_change(self.root)
        self.assertEqual((found.files, found.uncommitted), (["two.txt"], 0))
        self.assertTrue(found.base.startswith("main ("), found.base)

    def test_uncommitted_staged_untracked_and_deleted_files_count(self) -> None:
        (self.root / "one.txt").unlink()
        (self.root / "two.txt").write_text("changed\n")
        (self.root / "with space.txt").write_text("new\n")
        (self.root / "staged.txt").write_text("new\n")
        self.git("add", "staged.txt")
        found = git.find_change(self.root)
        self.assertEqual(found.files, ["one.txt", "staged.txt", "two.txt", "with space.txt"], found)
        self.assertEqual(found.uncommitted, 4)
        self.assertIn(
            "uncommitted changes count too: 4",
            changed.explain(found, Selection({}, [], [], []))[0],
        )
        self.assertEqual(git.find_change(self.root, "HEAD").files, found.files)

    def test_a_clean_main_has_no_change(self) -> None:
        self.git("checkout", "--quiet", "main")
        self.assertEqual(git.find_change(self.root).files, [])

    def test_an_unknown_base_is_named(self) -> None:
        said = self.refuse("no-such-branch")
        self.assertIn("--changed no-such-branch: this clone has no commit of that name", said)
        self.assertNotIn("unshallow", said)
        self.assertIn("no commit of that name", self.refuse("--all"))

    def test_a_clone_without_main_asks_for_a_base(self) -> None:
        self.git("branch", "--quiet", "-m", "main", "trunk")
        self.assertIn("tools/test --changed BASE", self.refuse())
        self.assertEqual(git.find_change(self.root, "trunk").files, ["two.txt"])

    def test_a_shallow_clone_gets_the_advice_to_fetch(self) -> None:
        shallow = self.root.parent / "shallow"
        words = ["clone", "--quiet", "--depth=1", f"file://{self.root}", str(shallow)]
        self.git(*words)
        self.assertIn("git fetch --unshallow", self.refuse("main", shallow))
        self.assertIn("git fetch --unshallow", self.refuse("HEAD~1", shallow))
        self.assertEqual(git.find_change(shallow, "HEAD").files, [])
        subprocess.run(
            ["git", "fetch", "--quiet", "--depth=1", "origin", "main:main"],
            cwd=shallow,
            check=True,
            capture_output=True,
        )
        self.assertIn("git fetch --unshallow", self.refuse("main", shallow))

    def test_branches_without_a_common_commit_are_named(self) -> None:
        self.git("checkout", "--quiet", "--orphan", "alone")
        self.git("commit", "--quiet", "-m", "alone")
        self.assertIn("main and HEAD have no common commit", self.refuse("main"))

    def test_a_folder_without_git_is_sent_to_quick(self) -> None:
        bare = self.root.parent / "unpacked"
        bare.mkdir()
        self.assertIn("tools/test --quick", self.refuse(root=bare))

    def test_a_machine_without_git_is_sent_to_quick(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertIn("git is not installed", self.refuse())


class CalledByAPerson(unittest.TestCase):
    def call(self, *words: str) -> tuple[int, str]:
        shown = io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["run_tests.py", *words]),
            contextlib.redirect_stdout(shown),
            contextlib.redirect_stderr(shown),
        ):
            try:
                return run_tests.main(), shown.getvalue()
            except SystemExit as ended:
                return int(ended.code or 0), shown.getvalue()

    def test_bad_requests_end_with_2_and_one_message(self) -> None:
        for words, message in (
            (("--changed", "no-such-branch"), "no commit of that name"),
            (("--list",), "belong to --changed"),
            (("--within", "60"), "belong to --changed"),
            (("--changed", "--within", "0"), "invalid seconds value"),
            (("--changed", "--within", "soon"), "invalid seconds value"),
            (("--changed", "HEAD", "-R", "("), "-R"),
        ):
            with self.subTest(words):
                code, shown = self.call(*words)
                self.assertEqual(code, 2, shown)
                self.assertIn(message, shown)

    def plan(self, *words: str) -> changed.Plan:
        graph = Graph()
        for name, labels in (("a", "unit"), ("s", "slow"), ("g", "gpu"), ("far", "unit")):
            graph.add_test(Test(name, frozenset({labels}), "tests/unit"))
        graph.add_use("test:a", "a.cpp")
        graph.add_use("test:s", "a.cpp")
        graph.add_use("test:g", "a.cpp")
        arguments: argparse.Namespace = run_tests.parse_arguments(["--changed", *words])
        selection = impact(["a.cpp"], graph)
        with (
            mock.patch.object(changed, "has_device", return_value=False),
            mock.patch.object(changed, "wall_seconds", return_value={"a": 5.0, "s": 50.0}),
        ):
            return changed.make_plan(arguments, ["a.cpp"], selection, "release", graph)

    def test_one_line_names_the_omissions_and_reasons(self) -> None:
        plan = self.plan()
        self.assertEqual([name for tier in plan.tiers for name in tier.tests], ["a", "s"])
        changed.limit(plan, 10, 2)
        self.assertEqual([name for tier in plan.tiers for name in tier.tests], ["a"])
        self.assertEqual(
            plan.left_out.line(),
            "left out: 1 that the change cannot reach: 1 unit (far); 1 without a GPU (g); "
            "1 for time (s)",
        )

    def test_quick_and_a_name_narrow_the_choice(self) -> None:
        self.assertEqual([tier.tests for tier in self.plan("--quick").tiers], [["a"]])
        self.assertEqual([tier.tests for tier in self.plan("-R", "^s$").tiers], [["s"]])


if __name__ == "__main__":
    if len(sys.argv) > 1 and Path(sys.argv[1]).is_dir():
        BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Dependencies that no include, import or link shows.

Every rule whose pattern matches applies. A file that has neither a rule nor a known user runs
everything. The checks that read the whole tree run for any change and are not repeated here.
"""

from __future__ import annotations

from impact.graph import EVERYTHING, Rule

LABELS_OF_PYTEST = ("python", "bindings", "examples", "tools", "package", "mpi", "source")
PAGES = ("torch_pages",)
RUST = ("rust_*", "conformance_rust")
JULIA = ("julia_*", "conformance_julia")
JAVA = ("java_*", "swig", "conformance_java")
CONFORMANCE = ("folder:tests/conformance", "rust_*", "julia_*", *JAVA)
GENERATED = ("generated", "conformance_table")

# Targets of tests that are given the build folder as a whole. The first pattern that matches
# applies; a test without one needs everything that is built.
LIBRARY = ("meron", "meron_cli", "meron_emulated")
TARGETS_IN_BUILD_FOLDER = (
    ("conformance_c", (*LIBRARY, "conformance_runner")),
    ("conformance_java", (*LIBRARY, "conformance_java", "meron_java")),
    ("conformance_rust", (*LIBRARY, "rust_conformance_runner")),
    ("conformance_*", LIBRARY),
    ("java_*", ("meron", "java_tests", "meron_java", "foreign_tensor")),
    (
        "swig",
        (
            *(*LIBRARY, "java_tests", "meron_java", "meron_swig_python", "other_version"),
            *("example_language_model", "example_language_model_java"),
        ),
    ),
    ("rust_*", (*LIBRARY, "rust_conformance_runner", "example_language_model")),
    ("julia_*", (*LIBRARY, "example_language_model")),
)

RULES = (
    # Pages. Programs in them are run by torch_pages.
    Rule("*.md", ()),
    Rule("docs/*", ("torch_pages", "generated")),
    Rule("README.md", PAGES),
    Rule("bindings/python/*.md", PAGES),
    Rule("examples/*.md", PAGES),
    Rule("docs/start/*", ("package_start",)),
    Rule("docs/clusters/*", ("command_plan", "command_cluster")),
    Rule("LICENSE*", ("folder:tests/package",)),
    *(Rule(name, ()) for name in (".clang-format", ".clang-tidy", ".editorconfig", ".gitignore")),
    *(Rule(name, ()) for name in ("mypy.ini", "ruff.toml", "*/.gitignore", "*/.clang-format")),
    # The build, and the headers that every language is made from.
    Rule("CMakeLists.txt", (EVERYTHING,)),
    Rule("CMakePresets.json", (EVERYTHING,)),
    Rule("pytest.ini", (EVERYTHING,)),
    Rule("tools/CMakeLists.txt", (EVERYTHING,)),
    Rule("tools/setup", (EVERYTHING,)),  # what it installs, everything uses
    Rule("tools/requirements*.txt", (EVERYTHING,)),
    Rule("cmake/meron.pc.in", ("folder:tests/package",)),
    Rule("cmake/debian/*", ("folder:tests/package",)),
    Rule("cmake/*.cmake*", (EVERYTHING,)),
    Rule("cmake/*.sh", (EVERYTHING,)),
    Rule("include/meron/*", (EVERYTHING,)),
    Rule("tests/CMakeLists.txt", (EVERYTHING,)),
    # Every run of pytest loads the plugin.
    Rule("tests/ranks/*.py", tuple(f"label:{label}" for label in LABELS_OF_PYTEST)),
    # The edge of the library.
    Rule("capi/*.json", (*GENERATED, *CONFORMANCE)),
    Rule("capi/symbols.txt", ("capi_symbols", "capi_misuse", "abi_gate")),
    Rule("capi/meron.map", (EVERYTHING,)),
    Rule("capi/abi/*", ("folder:tests/abi",)),
    Rule("modules/mpi/*", ("label:mpi",)),
    Rule("modules/*.map", ("folder:tests/unit", "label:distributed", "label:gpu")),
    # Languages. Their sources are read by compilers that CMake does not know.
    Rule("bindings/rust/*", (*RUST, *GENERATED)),
    Rule("bindings/julia/*", (*JULIA, *GENERATED)),
    Rule("bindings/swig/*", (*JAVA, *GENERATED)),
    Rule("bindings/python/meron/_*", GENERATED),
    Rule("*/rustfmt.toml", ("rust_lints",)),
    Rule("bindings/python/setup.py", ("package_wheel",)),
    Rule("bindings/python/*.toml", ("package_wheel",)),
    Rule("bindings/python/*/py.typed", ("package_wheel",)),
    Rule("bindings/python/meron/zero/dropin/*", ("torch_dropin*",)),
    Rule("tests/bindings/swig/java/*", ("java_*", "swig")),
    Rule("tests/conformance/rust/*", ("conformance_rust", "conformance_table", "rust_lints")),
    Rule("tests/conformance/julia/*", ("conformance_julia", "conformance_table")),
    Rule("tests/conformance/java/*", ("conformance_java", "conformance_table", "java_*")),
    Rule("tests/conformance/python/*", ("conformance_python", "conformance_table")),
    Rule("tests/conformance/c/*", ("conformance_c", "conformance_table")),
    Rule("tests/conformance/*.txt", CONFORMANCE),
    Rule("tests/conformance/*.py", ("folder:tests/conformance",)),
    Rule("bindings/julia/test/*", JULIA),
    # Programs.
    Rule("examples/*.py", ("label:examples", "torch_pages")),
    Rule("examples/*.rs", ("rust_programs", "rust_crates", "rust_lints")),
    Rule("examples/*/Cargo.*", ("rust_programs", "rust_crates", "rust_lints")),
    Rule("examples/*.jl", ("julia_example", "julia_drivers")),
    Rule("examples/*.java", ("swig",)),
    Rule("examples/*.c", ("label:examples",)),
    Rule("examples/*CMakeLists.txt", ("label:examples",)),
    Rule("bench/results/*", ()),
    Rule("bench/*", ("bench", "bench_beside")),
    Rule("bench/overhead/rust/*", ("rust_*",)),
    # Tools.
    Rule("tools/meron/*", ("target:meron_cli",)),
    Rule("tools/generate/*", GENERATED),
    Rule("tools/abi", ("abi_gate",)),
    Rule("tools/run_abi.py", ("abi_gate",)),
    Rule("tools/package", ("folder:tests/package",)),
    Rule("tools/run_package.py", ("folder:tests/package",)),
    Rule("tools/gpu*", ("gpu_check",)),
    Rule("tools/run_gpu_check.py", ("gpu_check",)),
    Rule("tools/bench", ("bench", "bench_beside")),
    Rule("tools/run_bench.py", ("bench", "bench_beside")),
    Rule("tools/train", ("examples*",)),
    Rule("tools/test", ("run_tests_self", "changed_self")),
    Rule(".ci/*", ("run_tests_self",)),
    Rule("tools/testing/*", ("run_tests_self", "changed_self")),
    Rule("tools/impact/*", ("changed_self",)),
)

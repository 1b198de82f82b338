# SPDX-License-Identifier: Apache-2.0
# Libraries of others. libmeron.so must need only the C and C++ runtimes, so everything it uses is
# header-only or linked statically:
#   ${MERON_FMT}, nlohmann_json::nlohmann_json           for the engine (and Highway: kernels/highway)
#   ${MERON_URING}, ${MERON_URING_INCLUDE}               for the engine's storage I/O
#   CLI11::CLI11                                         for the command
#   GTest::gtest, GTest::gmock                           for the tests

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
# impl/base/fmt.cpp compiles the part of fmt 9 that is no header. Other versions are used as headers
# alone, which takes longer to compile.
if(fmt_VERSION MATCHES "^9\\.")
  set(MERON_FMT meron_fmt)
else()
  set(MERON_FMT fmt::fmt-header-only)
endif()
find_package(nlohmann_json REQUIRED)
# The archive by its file's name, before the shared library beside it: Debian's is
# position-independent, and 20 KiB. Where there is only the latter, libmeron.so needs it at run time.
find_library(MERON_URING NAMES liburing.a uring REQUIRED)
find_path(MERON_URING_INCLUDE liburing.h REQUIRED)
if(MERON_BUILD_TOOLS OR MERON_BUILD_BENCH)
  find_package(CLI11 REQUIRED)
endif()
if(MERON_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# The Python that tests and generators run in: the project's own environment when tools/setup has
# made it, else the system's.
find_program(MERON_PYTHON NAMES python3 HINTS "${PROJECT_SOURCE_DIR}/.venv/bin"
             NO_CMAKE_SYSTEM_PATH NO_SYSTEM_ENVIRONMENT_PATH)
if(NOT MERON_PYTHON)
  find_program(MERON_PYTHON NAMES python3)
endif()


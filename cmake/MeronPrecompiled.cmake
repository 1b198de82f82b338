# SPDX-License-Identifier: Apache-2.0
# Precompiled headers: those of the standard library, fmt and GoogleTest. A header of Meron is never
# one of them, so that each source includes the headers of Meron that it uses.
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON compiles without.
#
# The lists have names in angle brackets: a path would be another one in another clone, and ccache
# would find nothing there.

set(MERON_PRECOMPILED_IN_LAYERS
    <fmt/format.h> <algorithm> <array> <atomic> <chrono> <condition_variable> <cstring> <deque>
    <functional> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <thread>
    <unordered_map> <utility> <vector>)
set(MERON_PRECOMPILED_IN_TESTS
    <gmock/gmock.h> <gtest/gtest.h> <algorithm> <array> <atomic> <chrono> <cstring> <filesystem>
    <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <span> <string>
    <thread> <vector>)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Another clone's file has another time.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
elseif(MERON_CCACHE)
  # Without it ccache's preprocessor reads all headers again.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()

# GCC 12 warns of copies within the standard library, falsely, if its headers are precompiled. A build
# with CMAKE_DISABLE_PRECOMPILE_HEADERS keeps these warnings.
set(meron_forgotten "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(meron_forgotten -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
endif()

# meron_precompile(<target> [<header>...]): compiles the target's sources with the headers that
# meron_base has precompiled; with further headers, the target precompiles all of them itself. For
# targets of C++20 with the engine's flags.
function(meron_precompile target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  target_compile_options(${target} PRIVATE ${meron_forgotten})
  if(target STREQUAL "meron_base" OR ARGN)
    target_precompile_headers(${target} PRIVATE ${MERON_PRECOMPILED_IN_LAYERS} ${ARGN})
  else()
    target_precompile_headers(${target} REUSE_FROM meron_base)
  endif()
endfunction()

# meron_precompile_test(<target> <library>...): the same with GoogleTest, for a test that links the
# libraries. The headers are compiled with the flags of such a test.
function(meron_precompile_test target)
  set(owner meron_test_headers)
  if("meron" IN_LIST ARGN)
    set(owner meron_library_test_headers)
  endif()
  target_compile_options(${target} PRIVATE ${meron_forgotten})
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

function(meron_add_test_headers owner)
  add_library(${owner} OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/precompiled.cpp)
  target_link_libraries(${owner} PRIVATE GTest::gmock GTest::gtest)
  # As an executable's sources are.
  set_target_properties(${owner} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${owner} PRIVATE -fPIE ${meron_forgotten})
  meron_set_test_options_(${owner} "${ARGN}")
  target_precompile_headers(${owner} PRIVATE ${MERON_PRECOMPILED_IN_TESTS})
endfunction()

# SPDX-License-Identifier: Apache-2.0
# How tests are declared. CTest runs them; tools/test counts them.
#
# Labels decide where a test runs: `unit`, `capi` and `distributed` under every preset, all others
# under release only, and `release` keeps a test out of the sanitizer presets whatever else it is
# labelled; `alone` is set by SERIAL. A test that cannot run here exits with 77 and counts as skipped.
#
# Each test may leave a JUnit file at ${CMAKE_BINARY_DIR}/test-results/<name>.xml; tools/test then
# counts its cases instead of counting the test as one.
#
# The target gpu_checks is all that tools/gpu-check runs: every test of the label gpu, the library, the
# command, the modules, and every program whose target begins with bench_gpu_.

include_guard(GLOBAL)

set(MERON_TEST_RESULTS "${CMAKE_BINARY_DIR}/test-results")
file(MAKE_DIRECTORY "${MERON_TEST_RESULTS}")
# CMake then describes targets and sources to tools/test --changed.
file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/.cmake/api/v1/query")
file(TOUCH "${CMAKE_BINARY_DIR}/.cmake/api/v1/query/codemodel-v2")

add_custom_target(gpu_checks)
cmake_language(DEFER DIRECTORY "${PROJECT_SOURCE_DIR}"
               CALL meron_complete_gpu_checks_ "${PROJECT_SOURCE_DIR}")

# meron_add_unit_test(<name> SOURCES <file>... [LIBS <target>...] [LABELS <label>...]
#                     [TIMEOUT <seconds>] [SERIAL] [ONE_THREAD])
# Makes the GoogleTest executable test_<name> (its main is GoogleTest's unless a source has one)
# and registers it as the test <name>. LABELS defaults to unit, TIMEOUT to 120. SERIAL: runs alone,
# for tests that measure time. ONE_THREAD: neither the test nor what it tests starts a thread, so
# that ThreadSanitizer has nothing to see: there it is not even built.
function(meron_add_unit_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL;ONE_THREAD" "TIMEOUT" "SOURCES;LIBS;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_SOURCES)
    message(FATAL_ERROR "meron_add_unit_test(${name}): SOURCES missing, or unknown arguments: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(arg_ONE_THREAD AND MERON_SANITIZE MATCHES "thread")
    return()
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  meron_set_test_options_(test_${name} "${arg_LIBS}")
  target_link_libraries(test_${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest_main)
  meron_precompile_test(test_${name} ${arg_LIBS})
  add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1
                                "--gtest_output=xml:${MERON_TEST_RESULTS}/${name}.xml")
  meron_set_test_properties_(${name} "${arg_LABELS}" unit "${arg_TIMEOUT}" 120 ${arg_SERIAL})
endfunction()

# meron_add_gpu_test(<name> SOURCES <file>... [LIBS <target>...] [LABELS <label>...]
#                    [TIMEOUT <seconds>] [SERIAL])
# Makes the GoogleTest executable test_<name>, also of .cu files, and registers it as the test <name>
# of the label gpu; LABELS are further ones. Its main is tests/gpu_main.cpp unless a source has one:
# without a device it ends with 77. Without nvcc it is not even built. TIMEOUT defaults to 120.
# tools/gpu-check runs it under compute-sanitizer too, where a test is many times slower: cases with
# Long or Large in their names are left out there. A test whose name has `kernel` in it is checked for
# races as well. (A Python test is one of these by LABELS gpu, and skips itself.)
function(meron_add_gpu_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "SOURCES;LIBS;LABELS")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_SOURCES)
    message(FATAL_ERROR "meron_add_gpu_test(${name}): SOURCES missing, or unknown arguments: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT MERON_WITH_CUDA)
    return()
  endif()
  if(NOT TARGET meron_gpu_main)
    add_library(meron_gpu_main STATIC EXCLUDE_FROM_ALL
                ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tests/gpu_main.cpp)
    target_link_libraries(meron_gpu_main PUBLIC GTest::gmock GTest::gtest ${CMAKE_DL_LIBS})
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${arg_LIBS} meron_gpu_main)
  meron_set_test_options_(test_${name} "${arg_LIBS}")
  add_test(NAME ${name} COMMAND test_${name} --gtest_brief=1
                                "--gtest_output=xml:${MERON_TEST_RESULTS}/${name}.xml")
  meron_set_test_properties_(${name} "gpu;release;${arg_LABELS}" gpu "${arg_TIMEOUT}" 120
                             ${arg_SERIAL})
endfunction()

# meron_add_script_test(<name> COMMAND <program> <argument>... [LABELS <label>...]
#                       [TIMEOUT <seconds>] [ENVIRONMENT <NAME=value>...] [SERIAL])
# Registers a command, which may use generator expressions such as $<TARGET_FILE:meron>, as the
# test <name>. It runs in the build directory's tests/ folder with MERON_TEST_XML set to where it
# may write a JUnit file. LABELS defaults to script, TIMEOUT to 120.
function(meron_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "COMMAND;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_COMMAND)
    message(FATAL_ERROR "meron_add_script_test(${name}): COMMAND missing, or unknown arguments: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND} WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT}
                                            "MERON_TEST_XML=${MERON_TEST_RESULTS}/${name}.xml")
  meron_set_test_properties_(${name} "${arg_LABELS}" script "${arg_TIMEOUT}" 120 ${arg_SERIAL})
endfunction()

# meron_add_python_test(<name> SOURCES <test_*.py>... [LABELS <label>...] [TIMEOUT <seconds>]
#                       [ENVIRONMENT <NAME=value>...] [SERIAL])
# Registers a pytest run of the files, counted case by case. LABELS defaults to python.
function(meron_add_python_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "SOURCES;LABELS;ENVIRONMENT")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_SOURCES)
    message(FATAL_ERROR "meron_add_python_test(${name}): SOURCES missing, or unknown arguments: "
                        "${arg_UNPARSED_ARGUMENTS}")
  endif()
  list(TRANSFORM arg_SOURCES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  add_test(NAME ${name} COMMAND ${MERON_PYTHON} -m pytest -q -p no:cacheprovider
                                "--junitxml=${MERON_TEST_RESULTS}/${name}.xml" ${arg_SOURCES}
           WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${arg_ENVIRONMENT}
                                            PYTHONDONTWRITEBYTECODE=1)
  meron_set_test_properties_(${name} "${arg_LABELS}" python "${arg_TIMEOUT}" 300 ${arg_SERIAL})
endfunction()

# meron_test_takes_two_processors(<name>)
# For a test of several ranks that compute most of the time: threads that others delay delay each other.
# It counts as two of the tests that run at a time, and starts first. Else such tests would be
# left for the end, one after the other, with nothing left to run beside them.
function(meron_test_takes_two_processors name)
  set_tests_properties(${name} PROPERTIES PROCESSORS 2 COST 200)
endfunction()

# The library is compiled as it is shipped. The tests themselves need no more than -O1, which takes two
# thirds of the time.
function(meron_set_test_options_ target libraries)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>)
  if(NOT MERON_SANITIZE MATCHES "undefined")
    return()
  endif()
  # UBSan takes as long as all the rest of a compilation. Where all that is tested is in libmeron.so, a
  # test's own code is no concern of it. (The layer of C++ is in headers: tests/capi/hpp turns it on
  # again.) Elsewhere it leaves out what AddressSanitizer sees too, and alignment.
  set(without null,alignment,object-size,vptr)
  if("meron" IN_LIST libraries)
    set(without undefined)
  endif()
  target_compile_options(${target} PRIVATE
                         $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=${without}>)
endfunction()

function(meron_set_test_properties_ name labels default_labels timeout default_timeout serial)
  if(NOT labels)
    set(labels ${default_labels})
  endif()
  if(NOT timeout)
    set(timeout ${default_timeout})
  endif()
  if(serial)
    list(APPEND labels alone)
  endif()
  # First what takes longest, so that nothing else is waited for in the end.
  set(cost 0)
  if(name IN_LIST MERON_NOT_QUICK AND NOT "slow" IN_LIST labels)
    list(APPEND labels slow)
  endif()
  if("slow" IN_LIST labels OR name IN_LIST MERON_LONG)
    set(cost 100)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} COST ${cost}
                                          RUN_SERIAL ${serial} SKIP_RETURN_CODE 77)
  if("gpu" IN_LIST labels AND TARGET test_${name})
    add_dependencies(gpu_checks test_${name})
  endif()
endfunction()

# Adds the targets that gpu_checks has besides its tests. Runs after every folder has been read.
function(meron_complete_gpu_checks_ folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(target MATCHES "^(meron|meron_cli|bench_gpu_.*)$"
       OR (type MATCHES "^(MODULE|SHARED)_LIBRARY$" AND folder MATCHES "/modules/"))
      add_dependencies(gpu_checks ${target})
    endif()
  endforeach()
  get_property(subfolders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(subfolder IN LISTS subfolders)
    meron_complete_gpu_checks_(${subfolder})
  endforeach()
endfunction()

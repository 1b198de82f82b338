# SPDX-License-Identifier: Apache-2.0
# What every translation unit is compiled and linked with.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_C_STANDARD 11)
foreach(language C CXX)
  set(CMAKE_${language}_STANDARD_REQUIRED ON)
  set(CMAKE_${language}_EXTENSIONS OFF)
  set(CMAKE_${language}_VISIBILITY_PRESET hidden)
endforeach()
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

# A fused multiply-add rounds once where two instructions round twice: which one a compiler picks
# differs by target. Contraction is off so that results are the same bits on every CPU.
# (nvcc knows none of these: MeronCuda.cmake has what device code is compiled with.)
set(meron_host "$<COMPILE_LANGUAGE:C,CXX>")
add_compile_options("$<${meron_host}:-ffp-contract=off;-Wall;-Wextra;-Wpedantic>"
                    "$<${meron_host}:-fstack-protector-strong>")
if(MERON_WERROR)
  add_compile_options("$<${meron_host}:-Werror>")
endif()

# The standard library checks its own preconditions where speed is not the point.
add_compile_definitions($<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)

# For every file, because headers ask for them: an inline function must be the same everywhere.
if(MERON_LOCK_CHECKS)
  add_compile_definitions(MERON_LOCK_CHECKS)
endif()
if(MERON_FAULT_POINTS)
  add_compile_definitions(MERON_FAULT_POINTS)
endif()

if(MERON_SANITIZE)
  # -g1 keeps file and line in reports and leaves out what makes these builds slow to link.
  add_compile_options(-fsanitize=${MERON_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -O1 -g1)
  # GCC warns of std::optional's unused storage in code that the sanitizers have rewritten.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${MERON_SANITIZE})
  # Before version 14, GCC gives a frame that AddressSanitizer has moved to the heap 32-byte
  # alignment, also where it holds 64-byte vectors (GCC bug 110027): code for AVX-512 then faults.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14
     AND MERON_SANITIZE MATCHES "address")
    set(MERON_VECTOR_OPTIONS --param=asan-use-after-return=0)
  endif()
else()
  set(meron_optimized "$<AND:${meron_host},$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>")
  add_compile_options($<${meron_optimized}:-U_FORTIFY_SOURCE>
                      $<${meron_optimized}:-D_FORTIFY_SOURCE=2>)
endif()

add_link_options(LINKER:-z,relro LINKER:-z,now)
# The shared library exports the names of its version script, and no name of a static library. An
# undefined symbol is an error of the link, not of the load. (Clang leaves the sanitizer runtime to the
# executable, so there the check would fail.)
set(meron_shared "$<STREQUAL:$<TARGET_PROPERTY:TYPE>,SHARED_LIBRARY>")
add_link_options("$<${meron_shared}:LINKER:--exclude-libs,ALL>")
if(NOT (MERON_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang"))
  add_link_options("$<${meron_shared}:LINKER:-z,defs>")
endif()

option(MERON_FAST_LINKER "Link with mold or lld if the compiler finds one" OFF)
if(MERON_FAST_LINKER)
  include(CheckLinkerFlag)
  foreach(linker mold lld)
    check_linker_flag(CXX -fuse-ld=${linker} MERON_HAS_${linker})
    if(MERON_HAS_${linker})
      add_link_options(-fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()

# A compiler cache if there is one.
find_program(MERON_CCACHE ccache)
set(MERON_COMPILER_CACHE "")
if(MERON_CCACHE)
  set(MERON_COMPILER_CACHE sh ${CMAKE_CURRENT_LIST_DIR}/cached.sh ${PROJECT_SOURCE_DIR}
                           ${MERON_CCACHE})
endif()
if(MERON_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${MERON_COMPILER_CACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MERON_COMPILER_CACHE})
endif()

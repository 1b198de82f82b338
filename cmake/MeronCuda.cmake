# SPDX-License-Identifier: Apache-2.0
# Whether device code is built, and for which devices. Nothing of the engine needs it: what is
# built here is opened at run time, where there is a driver.
#
# The host code of CUDA sources is compiled without warnings as errors: nvcc's own headers are not
# free of them.
set(MERON_CUDA AUTO CACHE STRING "Build the modules for CUDA devices: ON, OFF, or AUTO: with nvcc")
set(MERON_CUDA_ARCHITECTURES "" CACHE STRING
    "Devices as CMAKE_CUDA_ARCHITECTURES has them; empty: from sm_80 on, newer ones by PTX too")

set(MERON_WITH_CUDA OFF)
# The sanitizers do not know device code. Tests without a device need no nvcc.
if(NOT MERON_CUDA OR (MERON_SANITIZE AND MERON_CUDA STREQUAL "AUTO"))
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(MERON_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin)
  if(MERON_NVCC)
    # A link to nvcc elsewhere does not find its toolkit.
    file(REAL_PATH "${MERON_NVCC}" CMAKE_CUDA_COMPILER)
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(NOT MERON_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "MERON_CUDA is ${MERON_CUDA}, and there is no nvcc: put it on the PATH, or "
                        "name it by -DCMAKE_CUDA_COMPILER=")
  endif()
  message(STATUS "libmeron_cuda.so is left out: there is no nvcc")
  return()
endif()

if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${MERON_CUDA_ARCHITECTURES})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # The last one is machine code and PTX, from which a driver compiles for what is newer.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} does not know C++20: 12.0 does. "
                      "-DMERON_CUDA=OFF leaves device code out")
endif()
# CMake 3.25 does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(MERON_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${MERON_COMPILER_CACHE})
endif()
set(MERON_WITH_CUDA ON)

# Flags of a target with device code. No contraction: see MeronCompiler.cmake; divisions and roots
# are rounded to nearest, and no denormal is flushed, as on the CPU.
function(meron_device_code target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:
    --fmad=false --prec-div=true --prec-sqrt=true --ftz=false --expt-relaxed-constexpr>)
endfunction()

// SPDX-License-Identifier: Apache-2.0
// CMake precompiles headers for a target that has a source. (cmake/MeronPrecompiled.cmake)

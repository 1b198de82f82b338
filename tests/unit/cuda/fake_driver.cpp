// SPDX-License-Identifier: Apache-2.0
// As much of NVIDIA's driver (libcuda.so.1) as CUDA's runtime calls until it fails: the version and
// the answer to cuInit are those of the environment.
#include <cstdlib>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {

int number_of(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

// 1000 * major + 10 * minor.
FAKE_API int cuDriverGetVersion(int* version) {
  *version = number_of("FAKE_DRIVER_VERSION");
  return 0;
}

// A CUresult.
FAKE_API int cuInit(unsigned /*flags*/) {
  return number_of("FAKE_DRIVER_INIT");
}

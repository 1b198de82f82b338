// SPDX-License-Identifier: Apache-2.0
// The main of tests that need a device: without one they end with 77, which CTest counts as
// skipped. It asks the driver itself, so that it needs nothing of CUDA where it is built.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

namespace {

constexpr int kSkipped = 77;

int number_of_devices() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) {
    return 0;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int count = 0;
  if (init == nullptr || get_count == nullptr || init(0) != 0 || get_count(&count) != 0) {
    return 0;
  }
  return count;
}

// Asked in a process of its own: tests fork their ranks, and a driver that was initialized before a
// fork is of no use after it.
bool there_is_a_device() {
  const pid_t child = fork();
  if (child == 0) _exit(number_of_devices() > 0 ? 0 : 1);
  int status = 1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  if (!GTEST_FLAG_GET(list_tests) && !there_is_a_device()) {
    std::puts("skipped: there is no CUDA device");
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}

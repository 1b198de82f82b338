// SPDX-License-Identifier: Apache-2.0
// What the module says where the driver is too old, or the machine is not set up. CUDA's runtime
// keeps what it found: each case is a process of its own.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "meron/backend.h"

namespace {

using testing::AllOf;
using testing::ExitedWithCode;
using testing::HasSubstr;

// CUDA's version that an answer to cuInit is tried with: new enough for every module.
constexpr int kNewDriver = 99000;

[[noreturn]] void fail_to_load() {
  (void)std::fputs(dlerror(), stderr);
  ::_exit(1);
}

// Ends the process with 0 where the module is unavailable, and its reason on stderr.
[[noreturn]] void query_with(int version, int init) {
  ::setenv("FAKE_DRIVER_VERSION", std::to_string(version).c_str(), 1);
  ::setenv("FAKE_DRIVER_INIT", std::to_string(init).c_str(), 1);
  if (::dlopen(FAKE_DRIVER, RTLD_NOW | RTLD_GLOBAL) == nullptr) fail_to_load();
  void* const module = ::dlopen(CUDA_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) fail_to_load();
  const auto query =
      reinterpret_cast<meron_backend_query_fn>(::dlsym(module, "meron_backend_query"));
  if (query == nullptr) fail_to_load();
  meron_backend backend{};
  backend.struct_size = sizeof(backend);
  meron_backend_failure failure{};
  failure.struct_size = sizeof(failure);
  const meron_status status = query(MERON_BACKEND_ABI, &backend, &failure);
  (void)std::fprintf(stderr, "'%s'\n", failure.text);
  ::_exit(status == MERON_E_UNSUPPORTED ? 0 : 1);
}

TEST(CudaDriverTest, OneThatIsTooOldIsNamed) {
  EXPECT_EXIT(query_with(11080, 0), ExitedWithCode(0),
              AllOf(HasSubstr("the driver is of CUDA 11.8"), HasSubstr("install a newer driver")));
}

TEST(CudaDriverTest, OneWithoutAGpuSaysWhatMayHideIt) {
  EXPECT_EXIT(query_with(kNewDriver, 100), ExitedWithCode(0), HasSubstr("CUDA_VISIBLE_DEVICES"));
}

// CUDA's text for a machine that is not set up names no cause: the error contains the full advice.
TEST(CudaDriverTest, AMachineThatIsNotSetUpGetsAdvice) {
  constexpr int kStub = 34, kNotReady = 802, kMismatch = 803, kIncompatible = 804;
  EXPECT_EXIT(query_with(kNewDriver, kStub), ExitedWithCode(0), HasSubstr("(LD_LIBRARY_PATH)'"));
  EXPECT_EXIT(query_with(kNewDriver, kNotReady), ExitedWithCode(0),
              HasSubstr("nvidia-fabricmanager)'"));
  EXPECT_EXIT(query_with(kNewDriver, kMismatch), ExitedWithCode(0),
              AllOf(HasSubstr("update of the driver"), HasSubstr("host's libcuda.so.1'")));
  EXPECT_EXIT(query_with(kNewDriver, kIncompatible), ExitedWithCode(0),
              HasSubstr("let the driver's own be found'"));
}

// A driver that lacks what the runtime calls says so too, and does not end the process.
TEST(CudaDriverTest, OneThatLacksFunctionsIsTold) {
  EXPECT_EXIT(query_with(kNewDriver, 0), ExitedWithCode(0), HasSubstr("install a newer driver"));
}

}  // namespace

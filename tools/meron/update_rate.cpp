// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/update_rate.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/clock.h"
#include "meron/meron.h"
#include "tools/meron/failure.h"

namespace meron::tools {
namespace {

// With gradient and states beyond what caches hold.
constexpr int64_t kElements = int64_t{8} << 20;
constexpr size_t kSteps = 5;

template <class Call, class... Args>
void must(Call call, Args... args) {
  LibraryError error;
  error.check(call(args..., error.out()));
}

struct OneUnit {
  OneUnit() {
    meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
    options.transport = "self";
    options.log = [](void*, meron_log_level, const char*, size_t) {};
    must(meron_context_open, &context, &options);
  }
  ~OneUnit() { meron_context_close(context, nullptr); }
  OneUnit(const OneUnit&) = delete;
  OneUnit& operator=(const OneUnit&) = delete;
  meron_context context{};
};

}  // namespace

uint64_t update_rate() {
  const OneUnit job;
  meron_param_desc desc = MERON_PARAM_DESC_INIT;
  desc.name = "values";
  desc.shape = &kElements;
  desc.dims = 1;
  desc.dtype = MERON_F32;
  meron_param param{};
  must(meron_param_register, &param, job.context, &desc);
  meron_unit unit{};
  must(meron_unit_create, &unit, job.context, "values", &param, size_t{1});
  meron_optimizer optimizer{};
  must(meron_optimizer_create, &optimizer, &unit, size_t{1},
       static_cast<const meron_optimizer_options*>(nullptr));
  std::array<int64_t, kSteps> times{};
  for (int64_t& time : times) {
    meron_view gradient{};
    must(meron_gradient_view, &gradient, param, 0u);
    std::memset(gradient.data, 0, gradient.count * sizeof(float));
    meron_future future{};
    must(meron_reduce_begin, &future, unit, static_cast<const meron_source*>(nullptr), size_t{0},
         static_cast<const meron_reduce_options*>(nullptr));
    must(meron_future_wait, future, int64_t{MERON_TIMEOUT_DEFAULT});
    must(meron_future_release, future);
    const int64_t begun = now_ns();
    must(meron_optimizer_step_begin, &future, optimizer);
    must(meron_future_wait, future, int64_t{MERON_TIMEOUT_DEFAULT});
    time = now_ns() - begun;
    must(meron_future_release, future);
  }
  std::sort(times.begin(), times.end());
  const double seconds = static_cast<double>(std::max<int64_t>(1, times[kSteps / 2])) * 1e-9;
  return static_cast<uint64_t>(static_cast<double>(kElements) / seconds);
}

}  // namespace meron::tools

// SPDX-License-Identifier: Apache-2.0
// A rank whose bytes Meron moves, seen through the public headers only.
#pragma once

#include <string>

#include "bench/ranks.h"
#include "meron/meron.h"

namespace meron::bench {

// Receives the error of a call and exits if there is one: expect(meron_...(..., error()));
class Expect {
 public:
  meron_error** error() { return &error_; }
  void operator()(meron_status status) {
    if (status == MERON_OK) return;
    give_up(error_ != nullptr ? meron_error_message(error_) : meron_status_name(status));
  }

 private:
  meron_error* error_ = nullptr;
};

inline Expect expect;

inline void wait_and_release(meron_future future) {
  expect(meron_future_wait(future, MERON_TIMEOUT_DEFAULT, expect.error()));
  expect(meron_future_release(future, expect.error()));
}

class MeronRank {
 public:
  MeronRank() {
    expect(meron_context_open(&context_, nullptr, expect.error()));
    expect(meron_context_world(&world_, context_, expect.error()));
    expect(meron_context_rank(&ranks.rank, context_, expect.error()));
    expect(meron_context_world_size(&ranks.size, context_, expect.error()));
    pin(ranks.rank, ranks.size);
    ranks.barrier = [this] { barrier(); };
    ranks.largest = [this](double value) { return largest(value); };
  }
  MeronRank(const MeronRank&) = delete;
  MeronRank& operator=(const MeronRank&) = delete;
  ~MeronRank() {
    barrier();  // keep this rank until the others have measured
    expect(meron_context_close(context_, expect.error()));
  }

  meron_context context() const { return context_; }
  Ranks ranks;

 private:
  void barrier() const {
    meron_future done;
    expect(meron_barrier_begin(&done, world_, expect.error()));
    wait_and_release(done);
  }

  // Each rank fills its own place, so that the sum is all values side by side.
  double largest(double value) const {
    std::vector<float> values(static_cast<size_t>(ranks.size), 0.0f);
    values[static_cast<size_t>(ranks.rank)] = static_cast<float>(value);
    meron_future done;
    expect(meron_all_reduce_begin(&done, world_, values.data(), values.size(), MERON_F32,
                                  MERON_REDUCE_OP_SUM, expect.error()));
    wait_and_release(done);
    return *std::max_element(values.begin(), values.end());
  }

  meron_context context_ = {0};
  meron_group world_ = {0};
};

// A unit of one f32 param.
struct Tensor {
  meron_param param = {0};
  meron_unit unit = {0};

  Tensor(const MeronRank& rank, const std::string& name, size_t count) {
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    const int64_t shape[] = {static_cast<int64_t>(count)};
    desc.name = name.c_str();
    desc.shape = shape;
    desc.dims = 1;
    expect(meron_param_register(&param, rank.context(), &desc, expect.error()));
    expect(meron_unit_create(&unit, rank.context(), name.c_str(), &param, 1, expect.error()));
  }
};

}  // namespace meron::bench

// SPDX-License-Identifier: Apache-2.0
// What the tests of the C++ layer share: contexts on one rank, worlds of threads, expected errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "meron/meron.hpp"

namespace meron::test {

inline Context open_self(const std::function<void(ContextOptions&)>& change = nullptr) {
  ContextOptions options;
  options.transport = "self";
  options.rank = 0;
  options.world_size = 1;
  options.arena_reserve = uint64_t{1} << 28;
  if (change) change(options);
  return Context(std::move(options));
}

// Runs `body` as the ranks of a world of threads, each with its context.
inline void run_ranks(int32_t ranks, const std::function<void(Context&)>& body,
                      const std::function<void(ContextOptions&)>& change = nullptr) {
  static std::atomic<int> worlds{0};
  const std::string job = "hpp " + std::to_string(worlds++);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        ContextOptions options;
        options.transport = "local";
        options.job = job;
        options.rank = rank;
        options.world_size = ranks;
        options.arena_reserve = uint64_t{1} << 28;
        options.timeout = std::chrono::seconds(30);
        if (change) change(options);
        Context context(std::move(options));
        body(context);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The error that `body` must throw.
template <class Body>
Error expect_error(meron_status status, const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(status, error.status()) << error.what();
    return error;
  }
  ADD_FAILURE() << "nothing was thrown, expected " << meron_status_name(status);
  return Error(MERON_OK, nullptr);
}

}  // namespace meron::test

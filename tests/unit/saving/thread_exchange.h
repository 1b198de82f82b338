// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that share memory: what saving needs of an engine, without units.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>

#include "saving/exchange.h"

namespace meron {

class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks) : barrier_(ranks), given_(static_cast<size_t>(ranks)) {}
  int ranks() const { return static_cast<int>(given_.size()); }
  size_t longest_gather() const { return longest_; }

  // `body(exchange)` on every rank.
  template <class Body>
  void run(Body body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank) {
      threads.emplace_back([this, rank, &body] {
        Rank exchange(*this, rank);
        body(exchange);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  class Rank final : public Exchange {
   public:
    Rank(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return world_.ranks(); }
    Status broadcast(std::byte* data, uint64_t bytes, int root) override {
      world_.given_[static_cast<size_t>(rank_)] = data;
      world_.barrier_.arrive_and_wait();
      if (rank_ != root) std::copy_n(world_.given_[static_cast<size_t>(root)], bytes, data);
      world_.barrier_.arrive_and_wait();
      return Ok{};
    }
    Status gather(const std::byte* own, uint64_t bytes, std::byte* all) override {
      world_.given_[static_cast<size_t>(rank_)] = own;
      world_.barrier_.arrive_and_wait();
      for (const std::byte* const from : world_.given_) all = std::copy_n(from, bytes, all);
      if (rank_ == 0) world_.longest_ = std::max<size_t>(world_.longest_, bytes);
      world_.barrier_.arrive_and_wait();
      return Ok{};
    }
    Status read(const UnitState& /*unit*/, const State& /*state*/, const Range& /*range*/,
                std::byte* /*out*/) override {
      return Error(MERON_E_INTERNAL, "there are no units");
    }
    Status write(const UnitState& /*unit*/, const State& /*state*/, const Range& /*range*/,
                 const std::byte* /*data*/) override {
      return Error(MERON_E_INTERNAL, "there are no units");
    }

   private:
    ThreadWorld& world_;
    int rank_;
  };

  std::barrier<> barrier_;
  std::vector<const std::byte*> given_;  // by rank
  size_t longest_ = 0;
};

}  // namespace meron

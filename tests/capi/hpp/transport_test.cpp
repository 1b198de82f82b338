// SPDX-License-Identifier: Apache-2.0
// Custom transports as C++ objects: ranks that train over one, and what becomes of exceptions.
#include <stdexcept>

#include "tests/capi/hpp/mailbox.h"
#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

constexpr int32_t kRanks = 3;

// Three steps; the values that each rank sees in the end.
void train(Context& context, std::vector<float>& values) {
  const Param weight = context.param("weight", {1000});
  const Param bias = context.param("bias", {7});
  const Unit unit = context.unit("unit", {weight, bias});
  const Optimizer optimizer = adamw(unit);
  for (int step = 0; step < 3; ++step) {
    {
      const Gather full = gather(unit);
      const auto w = full.view(weight).as<const float>();
      const auto g = gradient(weight, GradientStart::overwrite).as<float>();
      for (size_t i = 0; i < w.size(); ++i) {
        g[i] = w[i] * 3 - static_cast<float>(i % 7) / 3 + static_cast<float>(context.rank());
      }
    }
    reduce_begin(unit).wait();
    optimizer.step();
  }
  const Gather full = gather(unit);
  const auto w = full.view(weight).as<const float>();
  values.assign(w.begin(), w.end());
}

TEST(Transports, TrainToTheSameBitsAsSharedMemory) {
  const auto office = std::make_shared<PostOffice>();
  std::shared_ptr<Mailbox> boxes[kRanks];
  for (int32_t rank = 0; rank < kRanks; ++rank)
    boxes[rank] = std::make_shared<Mailbox>(office, rank);
  std::vector<float> mailed[kRanks];
  std::vector<float> shared[kRanks];
  run_ranks(
      kRanks,
      [&](Context& context) {
        EXPECT_EQ("mailbox", context.transport());
        train(context, mailed[context.rank()]);
        context.world().barrier();
      },
      [&](ContextOptions& options) {
        options.transport = "custom";
        options.custom = boxes[options.rank];
      });
  run_ranks(kRanks, [&](Context& context) { train(context, shared[context.rank()]); });
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(shared[0], mailed[rank]);
    EXPECT_EQ(1, boxes[rank]->closings);
    EXPECT_EQ(1, boxes[rank].use_count()) << "the context has released it";
  }
}

// Throws once `broken` is set.
class Breaking : public Mailbox {
 public:
  using Mailbox::Mailbox;
  bool receive(uint64_t& request, int32_t peer, uint64_t tag, void* data, uint64_t bytes) override {
    if (broken) {
      thrown = true;
      throw std::runtime_error("the cable was pulled");
    }
    return Mailbox::receive(request, peer, tag, data, bytes);
  }
  // Reports the peer as dead only after it has thrown: a dead peer gets no more messages, so it
  // would never throw.
  bool alive(int32_t) noexcept override { return peer == nullptr || !peer->thrown; }

  std::atomic<bool> broken{false}, thrown{false};
  const Breaking* peer = nullptr;
};

TEST(Transports, WhatOneThrowsEndsThePeerAndIsTheCause) {
  const auto office = std::make_shared<PostOffice>();
  std::shared_ptr<Breaking> boxes[2];
  for (int32_t rank = 0; rank < 2; ++rank) boxes[rank] = std::make_shared<Breaking>(office, rank);
  boxes[1]->peer = boxes[0].get();
  run_ranks(
      2,
      [&](Context& context) {
        const auto meet_until_it_breaks = [&] {
          for (;;) context.world().barrier();
        };
        context.world().barrier();
        if (context.rank() == 1) {
          EXPECT_THROW(meet_until_it_breaks(), Error);
          return;
        }
        boxes[0]->broken = true;
        const Error error = expect_error(MERON_E_PEER_DEAD, meet_until_it_breaks);
        ASSERT_NE(nullptr, error.cause()) << error.what();
        try {
          std::rethrow_exception(error.cause());
        } catch (const std::runtime_error& cause) {
          EXPECT_STREQ("the cable was pulled", cause.what());
        }
      },
      [&](ContextOptions& options) {
        options.transport = "custom";
        options.custom = boxes[options.rank];
      });
}

// Rejects, throws or succeeds as configured.
class Told : public Transport {
 public:
  const char* name() const noexcept override { return "told"; }
  bool send(uint64_t& request, int32_t peer, uint64_t, const void*, uint64_t) override {
    request = static_cast<uint64_t>(peer) + 5;
    return answer();
  }
  bool receive(uint64_t&, int32_t, uint64_t, void*, uint64_t) override { return answer(); }
  bool test(uint64_t, uint64_t& bytes) override {
    bytes = 12;
    return answer();
  }
  void cancel(uint64_t request) noexcept override { cancelled = request; }
  void idle(std::chrono::nanoseconds) override { throw std::runtime_error("idle"); }
  void closed() noexcept override { ++closings; }

  std::function<bool()> answer;
  uint64_t cancelled = 0;
  int closings = 0;
};

TEST(Transports, TheTableCallsTheObjectAndTurnsExceptionsIntoStatus) {
  Told told;
  const meron_transport table = detail::table_of(told);
  EXPECT_EQ(sizeof(meron_transport), table.struct_size);
  EXPECT_STREQ("told", table.name);
  uint64_t request = 0;
  uint64_t bytes = 0;
  told.answer = [] { return true; };
  EXPECT_EQ(MERON_OK, table.send(table.user, &request, 2, 9, nullptr, 0));
  EXPECT_EQ(7U, request);
  EXPECT_EQ(MERON_OK, table.test(table.user, request, &bytes));
  EXPECT_EQ(12U, bytes);
  told.answer = [] { return false; };
  EXPECT_EQ(MERON_IN_PROGRESS, table.receive(table.user, &request, 2, 9, nullptr, 0));
  told.answer = []() -> bool { throw std::runtime_error("broken"); };
  EXPECT_EQ(MERON_E_IO, table.test(table.user, request, &bytes));
  told.answer = []() -> bool { throw Error(MERON_E_AUTH, nullptr); };
  EXPECT_EQ(MERON_E_AUTH, table.test(table.user, request, &bytes));
  table.cancel(table.user, 3);
  EXPECT_EQ(3U, told.cancelled);
  table.idle(table.user, 1);
  EXPECT_EQ(1, table.alive(table.user, 0));
  table.closed(table.user);
  EXPECT_EQ(1, told.closings);
  detail::thrown_by_callback() = nullptr;
}

}  // namespace
}  // namespace meron::test

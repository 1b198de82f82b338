// SPDX-License-Identifier: Apache-2.0
// What callbacks may call: each function of the ABI, from each kind of callback.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include "tests/capi/contract/functions.h"
#include "tests/fault/rank.h"

namespace meron::test {
namespace {

constexpr const char* kRule = "which may only look and release";

// Calls every function when a callback first runs, and keeps the answers that break the rule.
class Probe {
 public:
  explicit Probe(std::string callback) : callback_(std::move(callback)) {}

  void run() {
    if (begun_.exchange(true)) return;
    for (const auto& [functions, allowed] :
         {std::pair(allowed_functions(), true), std::pair(refused_functions(), false)}) {
      for (const Function& function : functions) call(function, allowed);
    }
    call(close_function(),
         callback_ == "the log callback" || callback_ == "the should_stop callback");
    done_ = true;
  }
  bool done() const { return done_; }

  void expect_the_rule() const {
    ASSERT_TRUE(done_) << callback_ << " was never called";
    for (const std::string& wrong : wrong_) ADD_FAILURE() << "from " << callback_ << ": " << wrong;
  }

 private:
  void call(const Function& function, bool allowed) {
    meron_error* error = nullptr;
    const meron_status status = function.call(&error);
    const std::string message = meron_error_message(error);
    const std::string advice = meron_error_advice(error);
    meron_error_free(error);
    const std::string words = "this is called from " + callback_ + ", " + kRule;
    const bool refused = status == MERON_E_STATE && message.find(words) != std::string::npos &&
                         advice.find("call it after") == 0;
    if (refused == allowed) wrong_.push_back(std::string(function.name) + ": " + message);
  }

  const std::string callback_;
  std::atomic<bool> begun_{false}, done_{false};
  std::vector<std::string> wrong_;
};

// The tables name each function of the library once.
TEST(Callbacks, TheTablesNameEveryFunction) {
  std::multiset<std::string> names;
  for (const Function& function : allowed_functions()) names.insert(function.name);
  for (const Function& function : refused_functions()) names.insert(function.name);
  for (const std::string& name : functions_that_cannot_fail()) names.insert(name);
  names.insert(close_function().name);
  std::ifstream symbols(MERON_SYMBOLS_FILE);
  ASSERT_TRUE(symbols) << MERON_SYMBOLS_FILE;
  for (std::string name; std::getline(symbols, name);) {
    if (name.rfind("meron_", 0) == 0) {
      EXPECT_EQ(1u, names.count(name)) << name;
    }
  }
}

// Runs the ranks of a world as threads. Rank 0 waits for rank 1, which comes late.
void run_late(Open open) {
  open.ranks = 2;
  open.token = fresh_token();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        Session session(open, rank);
        if (rank == 1) sleep_ns(400 * kMilli);
        session.barrier();
        session.barrier();
        session.close();
      } catch (const CallFailed& failed) {
        ADD_FAILURE() << "rank " << rank << ": " << failed.message;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(Callbacks, ShouldStopMayOnlyLookAndRelease) {
  Probe probe("the should_stop callback");
  Open open;
  open.transport = "local";
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.should_stop_user = &probe;
    options.should_stop = [](void* user) -> int32_t {
      static_cast<Probe*>(user)->run();
      return 0;
    };
  };
  run_late(open);
  probe.expect_the_rule();
}

TEST(Callbacks, LogMayOnlyLookAndRelease) {
  Probe probe("the log callback");
  Open open;
  open.transport = "local";
  open.plan = "mics(2)";  // rank 0 logs that the plan saves nothing here
  open.adjust = [&](int rank, meron_context_options& options) {
    if (rank != 0) return;
    options.log_user = &probe;
    options.log = [](void* user, meron_log_level, const char*, size_t) {
      static_cast<Probe*>(user)->run();
    };
  };
  run_late(open);
  probe.expect_the_rule();
}

TEST(Callbacks, AnAllocatorMayOnlyLookAndRelease) {
  Probe probe("the device allocator");
  meron_allocator allocator = MERON_ALLOCATOR_INIT;
  allocator.user = &probe;
  allocator.allocate = [](void* user, uint64_t bytes, void*) -> void* {
    static_cast<Probe*>(user)->run();
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  };
  allocator.release = [](void*, void* data, uint64_t, void*) { std::free(data); };
  Open open;
  open.transport = "self";
  open.ranks = 1;
  open.adjust = [&](int, meron_context_options& options) {
    options.device = "emulated";
    options.allocator = &allocator;
  };
  Session session(open, 0);
  session.build();
  session.gather(0);
  session.close();
  probe.expect_the_rule();
}

// A transport over sockets whose every function may probe.
struct Probing {
  meron_transport inner;
  Probe* probe;
};

TEST(Callbacks, ATransportMayOnlyLookAndRelease) {
  Probe probe("a function of the custom transport");
  SocketMesh mesh(2);
  std::vector<std::unique_ptr<SocketTransport>> sockets;
  for (int rank = 0; rank < 2; ++rank) {
    sockets.push_back(std::make_unique<SocketTransport>(mesh.take(rank)));
  }
  Probing probing{sockets[0]->table(), &probe};
  meron_transport tables[2] = {probing.inner, sockets[1]->table()};
  tables[0].user = &probing;
  tables[0].send = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, const void* data,
                      uint64_t bytes) {
    const meron_transport& inner = static_cast<Probing*>(user)->inner;
    return inner.send(inner.user, request, peer, tag, data, bytes);
  };
  tables[0].receive = [](void* user, uint64_t* request, int32_t peer, uint64_t tag, void* data,
                         uint64_t bytes) {
    const meron_transport& inner = static_cast<Probing*>(user)->inner;
    return inner.receive(inner.user, request, peer, tag, data, bytes);
  };
  tables[0].test = [](void* user, uint64_t request, uint64_t* bytes) {
    const auto* self = static_cast<Probing*>(user);
    self->probe->run();
    return self->inner.test(self->inner.user, request, bytes);
  };
  tables[0].cancel = [](void* user, uint64_t request) {
    const meron_transport& inner = static_cast<Probing*>(user)->inner;
    inner.cancel(inner.user, request);
  };
  tables[0].idle = [](void* user, int64_t timeout_ns) {
    const meron_transport& inner = static_cast<Probing*>(user)->inner;
    inner.idle(inner.user, timeout_ns);
  };
  tables[0].closed = [](void* user) {
    const meron_transport& inner = static_cast<Probing*>(user)->inner;
    inner.closed(inner.user);
  };
  Open open;
  open.transport = "custom";
  open.adjust = [&](int rank, meron_context_options& options) { options.custom = &tables[rank]; };
  run_late(open);
  probe.expect_the_rule();
}

// ---- With live objects, from should_stop while rank 0 waits
// --------------------------------------

void expect_refused(const CallFailed& failed) {
  EXPECT_EQ(MERON_E_STATE, failed.status) << failed.function << ": " << failed.message;
  EXPECT_NE(std::string::npos, failed.message.find(kRule)) << failed.function;
}

// Rank 0 waits for a barrier that rank 1 joins once rank 0's should_stop has run `ask`.
class AskedWhileWaiting : public testing::Test {
 protected:
  // `slice_ns`: rank 0 waits in slices, at most 10 s.
  void run(std::function<void()> ask, int64_t slice_ns = MERON_TIMEOUT_DEFAULT) {
    ask_ = std::move(ask);
    slice_ns_ = slice_ns;
    Open open;
    open.transport = "local";
    open.token = fresh_token();
    open.adjust = [this](int rank, meron_context_options& options) {
      if (rank != 0) return;
      options.should_stop_user = this;
      options.should_stop = [](void* user) -> int32_t {
        static_cast<AskedWhileWaiting*>(user)->stop();
        return 0;
      };
    };
    std::thread peer([&] { run_rank(open, 1); });
    run_rank(open, 0);
    peer.join();
    EXPECT_TRUE(asked_);
  }

  Session* session = nullptr;  // of rank 0
  meron_future gathered{}, pending{};

 private:
  void stop() {
    if (!waits_ || asked_) return;
    ask_();
    asked_ = true;
  }
  void run_rank(const Open& open, int rank) {
    try {
      Session own(open, rank);
      own.build(1);
      meron_future gather{}, barrier{};
      MUST(meron_gather_begin, &gather, own.units.data(), 1, nullptr);
      MUST(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
      own.barrier();
      const int64_t limit = now_ns() + 10'000 * kMilli;
      while (rank == 1 && !asked_ && now_ns() < limit) sleep_ns(kMilli);
      MUST(meron_barrier_begin, &barrier, own.world);
      if (rank == 0) {
        session = &own;
        gathered = gather;
        pending = barrier;
        waits_ = true;
      }
      while (MUST(meron_future_wait, barrier, slice_ns_) == MERON_IN_PROGRESS) {
      }
      own.barrier();
      EXPECT_EQ(MERON_OK, meron_group_status(own.world, nullptr));
      own.close();
    } catch (const CallFailed& failed) {
      asked_ = true;
      ADD_FAILURE() << "rank " << rank << ": " << failed.message;
    }
  }

  std::function<void()> ask_;
  int64_t slice_ns_ = MERON_TIMEOUT_DEFAULT;
  std::atomic<bool> waits_{false}, asked_{false};
};

// Julia waits so, because its other tasks run in between.
TEST_F(AskedWhileWaiting, ShortWaitsThatFollowEachOtherAsk) {
  run([] {}, kMilli);
}

// Beginning something there would break the order of calls: rank 1 begins nothing of the kind.
TEST_F(AskedWhileWaiting, ABeginIsRefusedAndTheGroupStaysWhole) {
  run([this] {
    meron_future future{};
    meron_param param{};
    meron_view view{};
    float data[4] = {};
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = "new";
    expect_refused(FAILURE_OF(meron_barrier_begin, &future, session->world));
    expect_refused(FAILURE_OF(meron_all_reduce_begin, &future, session->world, data, 4, MERON_F32,
                              MERON_REDUCE_OP_SUM));
    expect_refused(FAILURE_OF(meron_param_register, &param, session->context, &desc));
    expect_refused(FAILURE_OF(meron_unit_destroy, session->units[0]));
    expect_refused(FAILURE_OF(meron_gather_begin, &future, session->units.data(), 1, nullptr));
    expect_refused(FAILURE_OF(meron_gradient_view, &view, session->params[0], 0));
    expect_refused(FAILURE_OF(meron_optimizer_step_begin, &future, session->optimizer));
    expect_refused(FAILURE_OF(meron_context_progress, session->context));
  });
}

// Waits could nest without limit. A poll looks, and advances nothing.
TEST_F(AskedWhileWaiting, AWaitIsRefusedAndAPollLooks) {
  run([this] {
    expect_refused(FAILURE_OF(meron_future_wait, pending, MERON_TIMEOUT_DEFAULT));
    expect_refused(FAILURE_OF(meron_future_wait, pending, kMilli));
    expect_refused(FAILURE_OF(meron_reduce_wait, session->units.data(), 1, MERON_TIMEOUT_DEFAULT));
    EXPECT_EQ(MERON_IN_PROGRESS, meron_future_poll(pending, nullptr));
    EXPECT_EQ(MERON_IN_PROGRESS, meron_future_wait(pending, 0, nullptr));
    EXPECT_EQ(MERON_OK, meron_future_poll(gathered, nullptr));
  });
}

TEST_F(AskedWhileWaiting, ViewsCountersAndReleasesWork) {
  run([this] {
    meron_view view{};
    meron_stats stats{};
    stats.struct_size = sizeof(stats);
    char* record = nullptr;
    EXPECT_EQ(MERON_OK, meron_gather_view(&view, gathered, session->params[0], nullptr));
    EXPECT_EQ(MERON_OK, meron_context_stats(&stats, session->context, nullptr));
    EXPECT_EQ(MERON_OK, meron_context_flight_record(&record, session->context, nullptr));
    meron_string_free(record);
    EXPECT_EQ(MERON_OK, meron_future_release(gathered, nullptr));
    // The wait that runs this callback continues without the handle.
    EXPECT_EQ(MERON_OK, meron_future_release(pending, nullptr));
    EXPECT_EQ(MERON_OK, meron_param_release(session->params[0], nullptr));
    EXPECT_EQ(MERON_OK, meron_unit_release(session->units[0], nullptr));
  });
}

}  // namespace
}  // namespace meron::test

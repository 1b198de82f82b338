// SPDX-License-Identifier: Apache-2.0
// Joined devices: what goes wrong between them must be reported, name who is to blame, and leave no
// stream waiting. resident_test.cpp has the bits.
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>
#include <utility>

#include "tests/distributed/joined_devices.h"

namespace meron::test {
namespace {

// Plans that need joined devices: if there are none, every rank gets an error at the open.
TEST(JoinedDevicesTest, PlansThatNeedThemAreRefusedWithout) {
  const std::string whole =
      R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
          "gradient": {"sharding": "shard"}, "optimizer": {"sharding": "replica x shard"}})";
  const std::string copied = R"j({"preset": "hpz(1)", "param": {"tier": "device"}})j";
  for (const auto& [plan, word] : {std::pair(whole, "shards the optimizer further"),
                                   std::pair(copied, "keeps a secondary partition")}) {
    World world = joined_world(2);
    world.plan = plan;
    EXPECT_TRUE(run_joined(world, "", [](int, meron_context) {}));
    world.devices = false;
    // In a process of its own, as threads.
    EXPECT_TRUE(run_world({"self", 1}, [&, word = std::string(word)](int, meron_context) {
      ::setenv("MERON_EMULATED_DEVICE", "shared=1", 1);
      const std::string token = fresh_token();
      const auto refused = [&](int rank) {
        const Failure failure = failure_of([&](meron_error** error) {
          meron_context context{};
          return try_open(&context, world, rank, token, nullptr, error);
        });
        require(failure.status == MERON_E_UNSUPPORTED, failure.message.c_str());
        require(failure.message.find(word) != std::string::npos, failure.message.c_str());
        require(failure.message.find("share device") != std::string::npos, failure.message.c_str());
      };
      std::thread other(refused, 1);
      refused(0);
      other.join();
    }));
  }
}

// A call that a peer never makes holds the stream until the deadline, and no longer.
TEST(JoinedDevicesTest, AStreamThatWaitsForAPeerIsLetGo) {
  World world = joined_world(2);
  world.timeout_ns = 1'500'000'000;
  EXPECT_TRUE(run_joined(world, "", [](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 1.0f));
    expect_ones(model, rank);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3500));
      return;
    }
    const TrainersDevice device(rank);
    const meron_future gather = begin_gather(model);
    CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
    const auto begun = std::chrono::steady_clock::now();
    device.synchronize();
    const auto took = std::chrono::steady_clock::now() - begun;
    require(took < std::chrono::milliseconds(3000), "the stream is released");
    const Failure failure = failure_of([&](meron_error** error) {
      meron_future again{};
      return meron_gather_begin(&again, &model.unit, 1, nullptr, error);
    });
    require(failure.status == MERON_E_TIMEOUT, "the deadline");
    require(failure.message.find("rank 1") != std::string::npos, "the culprit");
    require(failure.message.find("gather of unit 'u'") != std::string::npos, "the call");
  }));
}

// A peer that dies is named at once, whatever this rank waits in.
TEST(JoinedDevicesTest, ADeadPeerIsNamedAndTheStreamLetGo) {
  const auto done = std::make_unique<Shared<int>>(3);
  int* const well = done->data();
  EXPECT_FALSE(run_joined(joined_world(3, "shm"), "", [well](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 1.0f));
    expect_ones(model, rank);
    if (rank == 1) ::raise(SIGKILL);
    const TrainersDevice device(rank);
    const auto begun = std::chrono::steady_clock::now();
    Failure failure;
    while (failure.status >= 0) {
      failure = failure_of([&](meron_error** error) {
        meron_future gather{};
        const meron_status asked = meron_gather_begin(&gather, &model.unit, 1, nullptr, error);
        if (asked < 0) return asked;
        return meron_gather_wait_stream(gather, device.stream(), MERON_TIMEOUT_DEFAULT, error);
      });
      device.synchronize();
    }
    require(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5), "at once");
    require(failure.message.find("rank 1") != std::string::npos, "who has died");
    well[rank] = 1;
  }));
  EXPECT_EQ(well[0], 1);
  EXPECT_EQ(well[2], 1);
}

// An error of the library breaks the group on every rank.
TEST(JoinedDevicesTest, AFailureOfTheLibraryIsReported) {
  // The first four of two ranks are the trials when the group is opened.
  for (const char* settings : {",fail=5", ",fail=7", ",fail=9"}) {
    EXPECT_TRUE(run_joined(joined_world(2), settings, [](int rank, meron_context context) {
      meron_error* error = nullptr;
      const OneParam model(context, 10'000);
      // A failure breaks the group at once; all ranks have their unit by then.
      meron_group world{};
      CALL(meron_context_world, &world, context);
      meron_future barrier{};
      CALL(meron_barrier_begin, &barrier, world);
      finish(barrier);
      const TrainersDevice device(rank);
      const std::vector<float> gradient(10'000, 1.0f);
      meron_status status = MERON_OK;
      for (int round = 0; status >= 0 && round < 10; ++round) {
        meron_future gather{};
        status = meron_gather_begin(&gather, &model.unit, 1, nullptr, &error);
        if (status >= 0) status = meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, &error);
        if (status >= 0) status = meron_future_release(gather, &error);
        const meron_source source{model.param, gradient.data(), gradient.size(), MERON_F32, 0};
        if (status >= 0) {
          status = meron_reduce_begin(nullptr, model.unit, &source, 1, nullptr, &error);
        }
        if (status >= 0) {
          status = meron_reduce_wait(&model.unit, 1, MERON_TIMEOUT_DEFAULT, &error);
        }
        if (status >= 0) status = meron_reduce_discard(model.unit, &error);
      }
      require(status < 0, "a failure");
      require(std::strstr(meron_error_message(error), "emulated") != nullptr, "the library");
      meron_error_free(error);
    })) << settings;
  }
}

// Ranks that request the values in different memory get an error, and do not wait for each other.
TEST(JoinedDevicesTest, RanksThatRequestValuesInDifferentMemoryFail) {
  EXPECT_TRUE(run_joined(joined_world(2), "", [](int rank, meron_context context) {
    const OneParam model(context, 1000);
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.tier = rank == 0 ? MERON_TIER_HOST : MERON_TIER_DEVICE;
    const Failure failure = failure_of([&](meron_error** error) {
      meron_future gather{};
      const meron_status begun = meron_gather_begin(&gather, &model.unit, 1, &options, error);
      return begun < 0 ? begun : meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, error);
    });
    require(failure.status == MERON_E_MISMATCH, "a mismatch");
  }));
}

// Groups of some ranks have devices of their own to join.
TEST(JoinedDevicesTest, GroupsAreJoinedToo) {
  EXPECT_TRUE(run_joined(joined_world(4), "", [](int rank, meron_context context) {
    meron_group group{};
    const std::vector<int> ranks = {rank % 2, rank % 2 + 2};
    for (int each = 0; each < 2; ++each) {
      const std::vector<int32_t> members = {each, each + 2};
      meron_group made{};
      CALL(meron_group_create, &made, context, members.data(), members.size());
      if (each == rank % 2) group = made;
    }
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    const int64_t shape = 5000;
    desc.name = "w";
    desc.shape = &shape;
    desc.dims = 1;
    desc.group = group;
    OneParam model(context, 100);
    CALL(meron_param_register, &model.param, context, &desc);
    CALL(meron_unit_create, &model.unit, context, "of the group", &model.param, 1);
    model.write(std::vector<float>(5000, 1.0f));
    meron_stats before = stats_of(context);
    expect_ones(model, rank);
    require(stats_of(context).device_down_bytes == before.device_down_bytes, "not by the host");
  }));
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
// Units on joined devices: without room they can be tried again, gathers overlap, and what is
// destroyed returns its memory.
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/distributed/joined_devices.h"

namespace meron::test {
namespace {

// Values that no rank has written are zero, not the former content of the device's memory. A slow
// device reveals reads that are too early.
TEST(JoinedDevicesTest, UnwrittenValuesAreZero) {
  for (const int ranks : {1, 2}) {
    EXPECT_TRUE(run_joined(joined_world(ranks), ",delay=20000", [](int, meron_context context) {
      const OneParam model(context, 1000);
      const meron_future gather = begin_gather(model);
      CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
      meron_view view{};
      CALL(meron_gather_view, &view, gather, model.param);
      for (uint64_t i = 0; i < view.count; ++i) {
        require(static_cast<const float*>(view.data)[i] == 0.0f, "zero");
      }
      CALL(meron_future_release, gather);
    })) << ranks;
  }
}

// A rank without memory fails before the others rely on it: the same call then succeeds again.
TEST(JoinedDevicesTest, ARankWithoutRoomTriesAgain) {
  EXPECT_TRUE(run_joined(joined_world(2), ",memory=200000", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);  // 40 kB of each rank; 80 kB unsharded
    model.write(std::vector<float>(20'000, 1.0f));
    const TrainersDevice device(rank);
    void* const taken = rank == 0 ? device.allocate(60'000) : nullptr;
    if (rank == 0) {
      const Failure failure = failure_of([&](meron_error** error) {
        meron_future gather{};
        return meron_gather_begin(&gather, &model.unit, 1, nullptr, error);
      });
      require(failure.status == MERON_E_NO_MEMORY, "no memory");
      require(failure.message.find("unit 'u'") != std::string::npos, "the unit");
      device.release(taken);
      device.synchronize();
    }
    expect_ones(model, rank);
  }));
}

// The sum of a micro-batch of ones of each rank, when rank 0 has no memory at first: for the
// micro-batch, or for the end of the accumulation.
void expect_retried_sum(const std::string& plan, uint64_t taken, bool finishes) {
  World world = joined_world(2);
  world.plan = plan;
  EXPECT_TRUE(run_joined(world, ",memory=350000", [=](int rank, meron_context context) {
    const OneParam model(context, 20'000);
    const TrainersDevice device(rank);
    const std::vector<float> gradient(20'000, 1.0f);
    const meron_source source{model.param, gradient.data(), gradient.size(), MERON_F32, 0};
    meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
    const auto begin = [&](meron_error** error) {
      return meron_reduce_begin(nullptr, model.unit, &source, 1, &options, error);
    };
    const auto finish = [&](meron_error** error) {
      return meron_reduce_finish_begin(nullptr, model.unit, nullptr, error);
    };
    const auto call = [&](bool last, meron_error** error) {
      return last && finishes ? finish(error) : begin(error);
    };
    if (finishes) {
      options.boundary = 0;
      require(failure_of([&](auto error) { return call(false, error); }).status >= 0, "a sum");
      CALL(meron_reduce_wait, &model.unit, 1, MERON_TIMEOUT_DEFAULT);
    }
    if (rank == 0) {
      void* const room = device.allocate(taken);
      const Failure failure = failure_of([&](auto error) { return call(true, error); });
      require(failure.status == MERON_E_NO_MEMORY, "no memory");
      device.release(room);
      device.synchronize();
    }
    const Failure again = failure_of([&](auto error) { return call(true, error); });
    require(again.status >= 0, again.message.c_str());
    CALL(meron_reduce_wait, &model.unit, 1, MERON_TIMEOUT_DEFAULT);
    meron_view view{};
    CALL(meron_reduced_view, &view, model.param);
    for (uint64_t i = 0; i < view.count; ++i) {
      require(static_cast<const float*>(view.data)[i] == 1.0f, "the mean of ones");
    }
  }));
}

TEST(JoinedDevicesTest, ARankWithoutRoomReducesAgain) {
  expect_retried_sum(joined_plan(), 100'000,
                     false);  // its own gradient fits, its peer's does not
  expect_retried_sum(joined_plan(), 180'000, false);
}

TEST(JoinedDevicesTest, ARankWithoutRoomEndsTheAccumulationAgain) {
  const std::string rows =
      R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
          "gradient": {"sharding": "shard", "tier": "device"},
          "optimizer": {"sharding": "shard", "tier": "device"}})";
  expect_retried_sum(rows, 170'000, true);
}

// Overlapping gathers of one unit, whatever the order in which ranks release them.
TEST(JoinedDevicesTest, GathersOfAUnitOverlap) {
  EXPECT_TRUE(run_joined(joined_world(3), "", [](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 1.0f));
    for (int round = 0; round < 5; ++round) {
      const meron_future first = begin_gather(model);
      if (rank == 1) CALL(meron_future_release, first);
      const meron_future second = begin_gather(model);
      if (rank == 0) CALL(meron_future_release, first);
      expect_ones(model, rank);
      CALL(meron_future_release, second);
      if (rank == 2) CALL(meron_future_release, first);
      require(model.gather().size() == 10'000, "the host's too");
    }
  }));
}

// Rows that replicas hold alike, and update in parts: whoever looks first, and where, sees all of a
// version.
TEST(JoinedDevicesTest, ShardsThatReplicasUpdateInPartsAreComplete) {
  World world = joined_world(3);
  world.plan = R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
                   "gradient": {"sharding": "shard", "tier": "device"},
                   "optimizer": {"sharding": "replica x shard", "tier": "device"}})";
  EXPECT_TRUE(run_joined(world, "", [](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 4.0f));
    meron_gather_options on_host = MERON_GATHER_OPTIONS_INIT;
    on_host.tier = MERON_TIER_HOST;
    meron_future written{};
    CALL(meron_gather_begin, &written, &model.unit, 1, &on_host);
    CALL(meron_future_wait, written, MERON_TIMEOUT_DEFAULT);
    meron_view all{};
    CALL(meron_gather_view, &all, written, model.param);
    for (uint64_t i = 0; i < all.count; ++i) {
      require(static_cast<const float*>(all.data)[i] == 4.0f, "what each rank wrote a part of");
    }
    CALL(meron_future_release, written);
    meron_optimizer_options options = MERON_OPTIMIZER_SGD_INIT;
    options.learning_rate = 1.0;
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    for (int step = 0; step < 3; ++step) {
      model.reduce_and_step(optimizer, std::vector<float>(10'000, 1.0f));
      for (int look = 0; look < 3; ++look) {
        const bool here = (look + step) % 2 == 0;
        meron_gather_options place = MERON_GATHER_OPTIONS_INIT;
        place.tier = here ? MERON_TIER_HOST : MERON_TIER_DEVICE;
        meron_future gather{};
        CALL(meron_gather_begin, &gather, &model.unit, 1, &place);
        CALL(meron_future_wait, gather, MERON_TIMEOUT_DEFAULT);
        meron_view view{};
        CALL(meron_gather_view, &view, gather, model.param);
        std::vector<float> values(view.count);
        if (here) {
          std::memcpy(values.data(), view.data, view.count * sizeof(float));
        } else {
          TrainersDevice(rank).copy(values.data(), view.data, view.count * sizeof(float));
        }
        for (const float value : values) {
          require(value == 3.0f - static_cast<float>(step), "of this version");
        }
        CALL(meron_future_release, gather);
      }
    }
  }));
}

// One step of AdamW, then a gather that is cancelled while the device still works on it.
void train_once(const OneParam& model, uint64_t count) {
  meron_optimizer optimizer{};
  CALL(meron_optimizer_create, &optimizer, &model.unit, 1, nullptr);
  model.reduce_and_step(optimizer, std::vector<float>(count, 1.0f));
  CALL(meron_optimizer_release, optimizer);
  CALL(meron_future_release, begin_gather(model));
}

void expect_free(const TrainersDevice& device, uint64_t bytes) {
  for (int tries = 0; tries < 2000 && device.free_bytes() != bytes; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  require(device.free_bytes() == bytes, "the device's memory");
}

// The device's memory and the names go back, and a unit beside it keeps its values.
TEST(JoinedDevicesTest, DestroyedUnitsGiveBackMemoryAndNames) {
  const std::string copied = R"j({"preset": "hpz(1)", "param": {"tier": "device"}})j";
  for (const auto& [transport, plan] : {std::pair<const char*, std::string>("shm", joined_plan()),
                                        std::pair<const char*, std::string>("local", copied)}) {
    World world = joined_world(2, transport);
    world.plan = plan;
    const char* const settings = ",delay=300,registers=2";
    EXPECT_TRUE(run_joined(world, settings, [](int rank, meron_context context) {
      constexpr uint64_t kCount = 50'001;
      const TrainersDevice device(rank);
      const OneParam stays(context, 777, false, "stays.p", "stays");
      stays.write(std::vector<float>(777, 1.0f));
      uint64_t free = 0;
      for (int turn = 0; turn < 4; ++turn) {
        const meron_stats before = stats_of(context);
        const OneParam model(context, kCount);
        require(stats_of(context).device_bytes > before.device_bytes, "memory of the device");
        model.write(std::vector<float>(kCount, 1.0f));
        expect_ones(model, rank);
        train_once(model, kCount);
        CALL(meron_unit_destroy, model.unit);
        const meron_stats after = stats_of(context);
        require(after.device_bytes == before.device_bytes, "counted bytes of the device");
        require(after.param_bytes == before.param_bytes, "params' memory");
        require(after.control_bytes == before.control_bytes, "control memory");
        require(meron_unit_destroy(model.unit, nullptr) == MERON_E_STALE, "stale, twice");
        // The first turn leaves what later ones use again.
        if (turn == 0) {
          device.synchronize();
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          free = device.free_bytes();
        }
        expect_free(device, free);
      }
      expect_ones(stays, rank);
    }));
  }
}

}  // namespace
}  // namespace meron::test

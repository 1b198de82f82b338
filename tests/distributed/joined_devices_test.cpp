// SPDX-License-Identifier: Apache-2.0
// Ranks whose devices exchange without the host: what goes wrong there must be told, name who is to
// blame, and leave no stream waiting. Each rank has an emulated device of its own, and waits for it
// outside of Meron, as trainers do. resident_test.cpp has the bits.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/distributed/device_trainer.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

const char* const kPlan = R"({"preset": "zero3", "param": {"tier": "device"},
                              "gradient": {"tier": "device"}, "optimizer": {"tier": "device"}})";

World joined_world(int ranks, const char* transport = "local") {
  World world{transport, ranks, kPlan};
  world.device = "emulated";
  world.devices = true;
  return world;
}

// Runs ranks on devices that MERON_EMULATED_DEVICE describes.
bool run_joined(const World& world, const std::string& settings, const RankMain& body) {
  ::setenv("MERON_EMULATED_DEVICE", std::string("count=8").append(settings).c_str(), 1);
  const bool well = run_world(world, body);
  ::unsetenv("MERON_EMULATED_DEVICE");
  return well;
}

struct Failure {
  meron_status status = MERON_OK;
  std::string message;
  int rank = MERON_RANK_NONE;  // to blame
};

// Calls `call` with an error's place, and keeps what came of it.
template <class Call>
Failure failure_of(Call call) {
  meron_error* error = nullptr;
  Failure failure;
  failure.status = call(&error);
  if (error != nullptr) {
    failure.message = meron_error_message(error);
    meron_error_free(error);
  }
  return failure;
}

meron_gather begin_gather(const OneParam& model) {
  meron_gather gather{};
  CALL(meron_gather_begin, &gather, &model.unit, 1, nullptr);
  return gather;
}

void expect_ones(const OneParam& model, int rank) {
  const TrainersDevice device(rank);
  const meron_gather gather = begin_gather(model);
  CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
  meron_view view{};
  CALL(meron_gather_view, &view, gather, model.param);
  std::vector<float> values(view.count);
  device.copy(values.data(), view.data, view.count * sizeof(float));
  for (const float value : values) require(value == 1.0f, "what was written");
  CALL(meron_gather_release_on_stream, gather, device.stream());
}

// Plans that need joined devices: if there are none, every rank gets an error at the open.
TEST(JoinedDevicesTest, PlansThatNeedThemAreRefusedWithout) {
  const std::string whole =
      R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
          "gradient": {"sharding": "shard"}, "optimizer": {"sharding": "replica x shard"}})";
  const std::string copied = R"j({"preset": "hpz(1)", "param": {"tier": "device"}})j";
  for (const auto& [plan, word] : {std::pair(whole, "shards the optimizer further"),
                                   std::pair(copied, "keeps a second copy")}) {
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
    const meron_gather gather = begin_gather(model);
    CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
    const auto begun = std::chrono::steady_clock::now();
    device.synchronize();
    const auto took = std::chrono::steady_clock::now() - begun;
    require(took < std::chrono::milliseconds(3000), "the stream is let go");
    const Failure failure = failure_of([&](meron_error** error) {
      meron_gather again{};
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
        meron_gather gather{};
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

// What the library says of itself breaks the group on every rank.
TEST(JoinedDevicesTest, AFailureOfTheLibraryIsTold) {
  // The first four of two ranks are the trials when the group is opened.
  for (const char* settings : {",fail=5", ",fail=7", ",fail=9"}) {
    EXPECT_TRUE(run_joined(joined_world(2), settings, [](int rank, meron_context context) {
      meron_error* error = nullptr;
      const OneParam model(context, 10'000);
      // What fails breaks the group at once: all have their unit by then.
      meron_group world{};
      CALL(meron_context_world, &world, context);
      meron_future barrier{};
      CALL(meron_barrier_begin, &barrier, world);
      finish(barrier);
      const TrainersDevice device(rank);
      const std::vector<float> gradient(10'000, 1.0f);
      meron_status status = MERON_OK;
      for (int round = 0; status >= 0 && round < 10; ++round) {
        meron_gather gather{};
        status = meron_gather_begin(&gather, &model.unit, 1, nullptr, &error);
        if (status >= 0) status = meron_gather_wait(gather, MERON_TIMEOUT_DEFAULT, &error);
        if (status >= 0) status = meron_gather_release(gather, &error);
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

// Ranks that want the values in different places are told, and do not wait for each other.
TEST(JoinedDevicesTest, RanksThatWantValuesInDifferentPlacesAreTold) {
  EXPECT_TRUE(run_joined(joined_world(2), "", [](int rank, meron_context context) {
    const OneParam model(context, 1000);
    meron_gather_options options = MERON_GATHER_OPTIONS_INIT;
    options.place = rank == 0 ? MERON_PLACE_HOST : MERON_PLACE_DEVICE;
    const Failure failure = failure_of([&](meron_error** error) {
      meron_gather gather{};
      const meron_status begun = meron_gather_begin(&gather, &model.unit, 1, &options, error);
      return begun < 0 ? begun : meron_gather_wait(gather, MERON_TIMEOUT_DEFAULT, error);
    });
    require(failure.status == MERON_E_MISMATCH, "a mismatch");
  }));
}

// What nobody has written is zero, and never what the device's memory held: a slow one shows who
// reads too early.
TEST(JoinedDevicesTest, WhatNobodyHasWrittenIsZero) {
  for (const int ranks : {1, 2}) {
    EXPECT_TRUE(run_joined(joined_world(ranks), ",delay=20000", [](int, meron_context context) {
      const OneParam model(context, 1000);
      const meron_gather gather = begin_gather(model);
      CALL(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
      meron_view view{};
      CALL(meron_gather_view, &view, gather, model.param);
      for (uint64_t i = 0; i < view.count; ++i) {
        require(static_cast<const float*>(view.data)[i] == 0.0f, "zero");
      }
      CALL(meron_gather_release, gather);
    })) << ranks;
  }
}

// A rank without room says so before the others rely on it: the same call again goes well.
TEST(JoinedDevicesTest, ARankWithoutRoomTriesAgain) {
  EXPECT_TRUE(run_joined(joined_world(2), ",memory=200000", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);  // 40 kB of each rank; 80 kB whole
    model.write(std::vector<float>(20'000, 1.0f));
    const TrainersDevice device(rank);
    void* const taken = rank == 0 ? device.allocate(60'000) : nullptr;
    if (rank == 0) {
      const Failure failure = failure_of([&](meron_error** error) {
        meron_gather gather{};
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

// The sum of a micro-batch of ones of each rank, where rank 0 has no room at first: for the
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
  expect_retried_sum(kPlan, 100'000, false);  // its own gradient has room, its peer's has not
  expect_retried_sum(kPlan, 180'000, false);
}

TEST(JoinedDevicesTest, ARankWithoutRoomEndsTheAccumulationAgain) {
  const std::string rows =
      R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
          "gradient": {"sharding": "shard", "tier": "device"},
          "optimizer": {"sharding": "shard", "tier": "device"}})";
  expect_retried_sum(rows, 170'000, true);
}

// Overlapping gathers of one unit, whatever the order in which ranks let go of them.
TEST(JoinedDevicesTest, GathersOfAUnitOverlap) {
  EXPECT_TRUE(run_joined(joined_world(3), "", [](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 1.0f));
    for (int round = 0; round < 5; ++round) {
      const meron_gather first = begin_gather(model);
      if (rank == 1) CALL(meron_gather_release, first);
      const meron_gather second = begin_gather(model);
      if (rank == 0) CALL(meron_gather_release, first);
      expect_ones(model, rank);
      CALL(meron_gather_release, second);
      if (rank == 2) CALL(meron_gather_release, first);
      require(model.gather().size() == 10'000, "the host's too");
    }
  }));
}

// Runs ranks that gather within a window.
bool run_within(const char* window, const World& world, const std::string& settings,
                const RankMain& body) {
  ::setenv("MERON_GATHER_WINDOW", window, 1);
  const bool well = run_joined(world, settings, body);
  ::unsetenv("MERON_GATHER_WINDOW");
  return well;
}

// Room of the window is used again behind who still reads there, on whichever stream, and what
// finds none lies elsewhere.
TEST(JoinedDevicesTest, RoomOfAWindowIsUsedAgain) {
  constexpr uint64_t kBytes = 20'000 * sizeof(float);
  for (const char* const transport : {"local", "shm"}) {
    const World world = joined_world(3, transport);
    EXPECT_TRUE(run_within("100 kB", world, ",delay=500", [](int rank, meron_context context) {
      const OneParam ones(context, 20'000), twos(context, 20'000, false, "q", "v");
      ones.write(std::vector<float>(20'000, 1.0f));
      twos.write(std::vector<float>(20'000, 2.0f));
      const TrainersDevice device(rank);
      const std::vector<std::vector<const OneParam*>> at_a_time = {
          {&ones}, {&twos}, {&ones, &twos}};
      std::vector<float> read;  // what is wanted of each copy
      std::vector<void*> copies;
      for (int round = 0; round < 12; ++round) {
        std::vector<std::pair<meron_gather, const OneParam*>> gathers;
        for (const OneParam* const model : at_a_time[static_cast<size_t>(round % 3)]) {
          gathers.emplace_back(begin_gather(*model), model);
        }
        for (const auto& [gather, model] : gathers) {
          CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
          meron_view view{};
          CALL(meron_gather_view, &view, gather, model->param);
          copies.push_back(device.allocate(kBytes));
          read.push_back(model == &ones ? 1.0f : 2.0f);
          device.copy(copies.back(), view.data, kBytes);  // goes on for a while
          CALL(meron_gather_release_on_stream, gather, device.stream());
        }
      }
      for (size_t i = 0; i < copies.size(); ++i) {
        std::vector<float> values(20'000);
        device.copy(values.data(), copies[i], kBytes);
        for (const float value : values) require(value == read[i], "what was gathered");
        device.release(copies[i]);
      }
    })) << transport;
  }
}

// What keeps ranks from gathering at one place is named: who kept what others released.
TEST(JoinedDevicesTest, RanksWhoseRoomOfAWindowDiffersAreTold) {
  EXPECT_TRUE(run_within("1 MiB", joined_world(2), "", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);
    model.write(std::vector<float>(20'000, 1.0f));
    const meron_gather first = begin_gather(model);
    CALL(meron_gather_wait, first, MERON_TIMEOUT_DEFAULT);
    if (rank == 1) CALL(meron_gather_release, first);
    const Failure failure = failure_of([&](meron_error** error) {
      meron_gather again{};
      const meron_status begun = meron_gather_begin(&again, &model.unit, 1, nullptr, error);
      return begun < 0 ? begun : meron_gather_wait(again, MERON_TIMEOUT_DEFAULT, error);
    });
    require(failure.status == MERON_E_MISMATCH, failure.message.c_str());
    require(failure.message.find("'u (window byte 0)'") != std::string::npos &&
                failure.message.find("'u (window byte 81920)'") != std::string::npos,
            failure.message.c_str());
  }));
}

// A library without windows: the values lie elsewhere.
TEST(JoinedDevicesTest, WithoutWindowsValuesAreGatheredElsewhere) {
  EXPECT_TRUE(
      run_within("1 MiB", joined_world(2), ",windows=0", [](int rank, meron_context context) {
        const OneParam model(context, 20'000);
        model.write(std::vector<float>(20'000, 1.0f));
        const meron_gather kept = begin_gather(model);
        if (rank == 1) CALL(meron_gather_release, kept);
        expect_ones(model, rank);  // in whatever order others are released
        require(stats_of(context).device_down_bytes == 0, "by the devices");
      }));
}

// A library that registers no memory: the values are gathered all the same.
TEST(JoinedDevicesTest, WithoutRegistrationValuesAreGatheredAllTheSame) {
  ::setenv("MERON_REGISTER_VALUES", "1", 1);
  EXPECT_TRUE(run_joined(joined_world(2), ",registers=0", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);
    model.write(std::vector<float>(20'000, 1.0f));
    expect_ones(model, rank);
    require(stats_of(context).device_down_bytes == 0, "by the devices");
  }));
  ::unsetenv("MERON_REGISTER_VALUES");
}

// A window that cannot be is told at the open, on all ranks alike.
TEST(JoinedDevicesTest, AWindowThatCannotBeIsRefused) {
  for (const auto& [window, status, word] :
       {std::tuple("2 GiBs", MERON_E_ARGUMENT, "MERON_GATHER_WINDOW of rank 0"),
        std::tuple("2 GiB", MERON_E_NO_MEMORY, "rank 0 has 1073741824 bytes")}) {
    EXPECT_TRUE(run_world(
        {"self", 1}, [&, window = window, status = status, word = word](int, meron_context) {
          ::setenv("MERON_EMULATED_DEVICE", "count=8", 1);
          ::setenv("MERON_GATHER_WINDOW", window, 1);
          const World world = joined_world(2);
          const std::string token = fresh_token();
          const auto refused = [&](int rank) {
            const Failure failure = failure_of([&](meron_error** error) {
              meron_context context{};
              return try_open(&context, world, rank, token, nullptr, error);
            });
            require(failure.status == status, failure.message.c_str());
            require(failure.message.find(word) != std::string::npos, failure.message.c_str());
          };
          std::thread other(refused, 1);
          refused(0);
          other.join();
        }));
  }
}

// Rows that replicas hold alike, and update in parts: whoever looks first, and where, sees all of a
// version.
TEST(JoinedDevicesTest, RowsThatReplicasUpdateInPartsAreWhole) {
  World world = joined_world(3);
  world.plan = R"({"mesh": {"shard": 1}, "param": {"sharding": "shard", "tier": "device"},
                   "gradient": {"sharding": "shard", "tier": "device"},
                   "optimizer": {"sharding": "replica x shard", "tier": "device"}})";
  EXPECT_TRUE(run_joined(world, "", [](int rank, meron_context context) {
    const OneParam model(context, 10'000);
    model.write(std::vector<float>(10'000, 4.0f));
    meron_gather_options on_host = MERON_GATHER_OPTIONS_INIT;
    on_host.place = MERON_PLACE_HOST;
    meron_gather written{};
    CALL(meron_gather_begin, &written, &model.unit, 1, &on_host);
    CALL(meron_gather_wait, written, MERON_TIMEOUT_DEFAULT);
    meron_view all{};
    CALL(meron_gather_view, &all, written, model.param);
    for (uint64_t i = 0; i < all.count; ++i) {
      require(static_cast<const float*>(all.data)[i] == 4.0f, "what each rank wrote a part of");
    }
    CALL(meron_gather_release, written);
    meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    options.kind = MERON_SGD;
    options.beta1 = 0.0;
    options.learning_rate = 1.0;
    options.weight_decay = 0.0;
    meron_optimizer optimizer{};
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    for (int step = 0; step < 3; ++step) {
      model.reduce_and_step(optimizer, std::vector<float>(10'000, 1.0f));
      for (int look = 0; look < 3; ++look) {
        const bool here = (look + step) % 2 == 0;
        meron_gather_options place = MERON_GATHER_OPTIONS_INIT;
        place.place = here ? MERON_PLACE_HOST : MERON_PLACE_DEVICE;
        meron_gather gather{};
        CALL(meron_gather_begin, &gather, &model.unit, 1, &place);
        CALL(meron_gather_wait, gather, MERON_TIMEOUT_DEFAULT);
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
        CALL(meron_gather_release, gather);
      }
    }
  }));
}

// One step of AdamW, then a gather that is given up while the device still works on it.
void train_once(const OneParam& model, uint64_t count) {
  meron_optimizer optimizer{};
  CALL(meron_optimizer_create, &optimizer, &model.unit, 1, nullptr);
  model.reduce_and_step(optimizer, std::vector<float>(count, 1.0f));
  CALL(meron_optimizer_release, optimizer);
  CALL(meron_gather_release, begin_gather(model));
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
  for (const auto& [transport, plan] : {std::pair<const char*, std::string>("shm", kPlan),
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

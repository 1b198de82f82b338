// SPDX-License-Identifier: Apache-2.0
// Windows and registered memory in which joined devices gather values, and ranks that cannot have
// them.
#include <utility>

#include "tests/distributed/joined_devices.h"

namespace meron::test {
namespace {

// Ranks that gather within a window.
World windowed_world(int ranks, const std::string& window, const char* transport = "local") {
  return joined_world(ranks, transport, R"(, "gather_window": ")" + window + "\"");
}

// Memory of the window is reused after its last reader, on any stream. A gather that finds none
// uses other memory.
TEST(JoinedDevicesTest, RoomOfAWindowIsUsedAgain) {
  constexpr uint64_t kBytes = 20'000 * sizeof(float);
  for (const char* const transport : {"local", "shm"}) {
    const World world = windowed_world(3, "100 kB", transport);
    EXPECT_TRUE(run_joined(world, ",delay=500", [](int rank, meron_context context) {
      const OneParam ones(context, 20'000), twos(context, 20'000, false, "q", "v");
      ones.write(std::vector<float>(20'000, 1.0f));
      twos.write(std::vector<float>(20'000, 2.0f));
      const TrainersDevice device(rank);
      const std::vector<std::vector<const OneParam*>> at_a_time = {
          {&ones}, {&twos}, {&ones, &twos}};
      std::vector<float> read;  // what is wanted of each copy
      std::vector<void*> copies;
      for (int round = 0; round < 12; ++round) {
        std::vector<std::pair<meron_future, const OneParam*>> gathers;
        for (const OneParam* const model : at_a_time[static_cast<size_t>(round % 3)]) {
          gathers.emplace_back(begin_gather(*model), model);
        }
        for (const auto& [gather, model] : gathers) {
          CALL(meron_gather_wait_stream, gather, device.stream(), MERON_TIMEOUT_DEFAULT);
          meron_view view{};
          CALL(meron_gather_view, &view, gather, model->param);
          require(view.device == rank, "the number of this rank's device");
          copies.push_back(device.allocate(kBytes));
          read.push_back(model == &ones ? 1.0f : 2.0f);
          device.copy(copies.back(), view.data, kBytes);  // runs for a while
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

// If ranks cannot gather at the same offset, the error names the rank that kept a gather that the
// others released.
TEST(JoinedDevicesTest, RanksWithDifferentMemoryOfAWindowFail) {
  EXPECT_TRUE(run_joined(windowed_world(2, "1 MiB"), "", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);
    model.write(std::vector<float>(20'000, 1.0f));
    const meron_future first = begin_gather(model);
    CALL(meron_future_wait, first, MERON_TIMEOUT_DEFAULT);
    if (rank == 1) CALL(meron_future_release, first);
    const Failure failure = failure_of([&](meron_error** error) {
      meron_future again{};
      const meron_status begun = meron_gather_begin(&again, &model.unit, 1, nullptr, error);
      return begun < 0 ? begun : meron_future_wait(again, MERON_TIMEOUT_DEFAULT, error);
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
      run_joined(windowed_world(2, "1 MiB"), ",windows=0", [](int rank, meron_context context) {
        const OneParam model(context, 20'000);
        model.write(std::vector<float>(20'000, 1.0f));
        const meron_future kept = begin_gather(model);
        if (rank == 1) CALL(meron_future_release, kept);
        expect_ones(model, rank);  // in whatever order others are released
        require(stats_of(context).device_down_bytes == 0, "by the devices");
      }));
}

// A library that registers no memory: the values are gathered all the same.
TEST(JoinedDevicesTest, WithoutRegistrationValuesAreGatheredAllTheSame) {
  const World world = joined_world(2, "local", R"(, "register_values": true)");
  EXPECT_TRUE(run_joined(world, ",registers=0", [](int rank, meron_context context) {
    const OneParam model(context, 20'000);
    model.write(std::vector<float>(20'000, 1.0f));
    expect_ones(model, rank);
    require(stats_of(context).device_down_bytes == 0, "by the devices");
  }));
}

// If the devices have no memory for the window, opening the context fails on all ranks.
TEST(JoinedDevicesTest, AWindowWithoutRoomIsRefused) {
  EXPECT_TRUE(run_world({"self", 1}, [](int, meron_context) {
    ::setenv("MERON_EMULATED_DEVICE", "count=8", 1);
    const World world = windowed_world(2, "2 GiB");
    const std::string token = fresh_token();
    const auto refused = [&](int rank) {
      const Failure failure = failure_of([&](meron_error** error) {
        meron_context context{};
        return try_open(&context, world, rank, token, nullptr, error);
      });
      require(failure.status == MERON_E_NO_MEMORY, failure.message.c_str());
      require(failure.message.find("rank 0 has 1073741824 bytes") != std::string::npos,
              failure.message.c_str());
    };
    std::thread other(refused, 1);
    refused(0);
    other.join();
  }));
}

}  // namespace
}  // namespace meron::test

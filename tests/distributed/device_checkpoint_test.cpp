// SPDX-License-Identifier: Apache-2.0
// Checkpoints of units whose values, gradients and optimizer states reside on devices: saved and
// loaded at other world sizes, from devices to the host and back, at once and while steps go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/distributed/device_steps.h"
#include "tests/distributed/one_param.h"

namespace meron::test {
namespace {

const std::string kValues = R"("param": {"tier": "device"})";
const std::string kAll = kValues + R"(, "gradient": {"tier": "device"},
                                       "optimizer": {"tier": "device"})";

std::string zero3(const std::string& tiers) {
  return R"({"preset": "zero3", )" + tiers + "}";
}

// Replicas of two shards each. The codec's loss is added to the next gradients, so it is a state,
// too.
std::string mesh(bool device, const std::string& param = "") {
  const std::string tier = device ? R"(, "tier": "device")" : "";
  return R"({"mesh": {"shard": 2}, "param": {"sharding": "replica x shard")" + param + tier +
         R"(}, "gradient": {"sharding": "replica x shard", "codec": {"kind": "int4",
             "feedback": {"beta": 0.8, "reset": 0}})" +
         tier + R"(}, "optimizer": {"sharding": "replica x shard")" + tier + "}}";
}

std::vector<DeviceWay> ways() {
  const std::string nvme = zero3(kValues + R"(, "optimizer": {"tier": "nvme"},
                                               "nvme": {"path": "."})");
  const std::string narrow = zero3(kValues + R"(, "gradient": {"tier": "device"},
                                   "optimizer": {"tier": "device", "dtype": "bf16"})");
  const std::string copied = R"(, "secondary_partition": "shard", "codec": "int8")";
  std::vector<DeviceWay> found = {
      {{zero3(kValues), MERON_BF16}, Computes::on_own},
      {{zero3(kValues)}, Computes::on_shared},
      {{zero3(kAll)}, Computes::on_own},
      {{zero3(kAll), MERON_BF16}, Computes::on_own},
      {{zero3(kAll), MERON_BF16}, Computes::on_shared},
      {{narrow, MERON_BF16}, Computes::on_own},
      {{nvme, MERON_BF16}, Computes::on_shared},
      {{mesh(true), MERON_F32, "cluster", 2}, Computes::on_own},
      {{mesh(true, copied), MERON_BF16, "cluster", 2}, Computes::on_own}};
  if (!emulated()) found.pop_back();  // secondary partitions need a device for each rank
  return found;
}

void save(const Trainer& trainer, const std::string& folder, uint64_t step, bool wait,
          meron_future* under_way = nullptr) {
  const meron_checkpoint_save_options options = save_options(trainer, step);
  meron_future future{};
  CALL(meron_checkpoint_save_begin, &future, trainer.context, folder.c_str(), "saved", &options);
  if (wait) finish(future);
  if (under_way != nullptr) *under_way = future;
}

void load(const Trainer& trainer, const std::string& folder, bool rank0_only = false) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &trainer.optimizer;
  options.optimizer_count = 1;
  options.rank0_only = rank0_only ? 1 : 0;
  meron_checkpoint loaded{};
  CALL(meron_checkpoint_load, &loaded, trainer.context, folder.c_str(), nullptr, &options);
  meron_checkpoint_info info{};
  info.struct_size = sizeof(info);
  CALL(meron_checkpoint_get_info, &info, loaded);
  require(info.step == 2 && info.missing + info.unexpected == 0, "what was saved");
  CALL(meron_checkpoint_release, loaded);
}

// All states of a world at two times.
struct States {
  Shared<float> first{kStates * weight_count()}, last{kStates * weight_count()};
};

// All states that codecs change on the way to each rank, except the full values.
bool same(Shared<float>& a, Shared<float>& b, bool values = true) {
  const size_t from = values ? 0 : weight_count();
  return std::memcmp(a.data() + from, b.data() + from, (a.size() - from) * sizeof(float)) == 0;
}

bool run_and_save(const DeviceWay& way, int ranks, const std::string& folder, States& states) {
  return run_device_world(way, ranks, [&](int rank, meron_context context) {
    Trainer trainer(context, way.way.dtype);
    train_on(way, trainer, rank, ranks, 0, 2);
    save(trainer, folder, 2, true);
    dump(trainer, states.first.data());
    train_on(way, trainer, rank, ranks, 2, 2);
    dump(trainer, states.last.data());
  });
}

bool load_and_run(const DeviceWay& way, int ranks, const std::string& folder, States& states,
                  bool rank0_only = false) {
  return run_device_world(way, ranks, [&](int rank, meron_context context) {
    Trainer trainer(context, way.way.dtype);
    train_on(way, trainer, rank, ranks, 7, 1);
    load(trainer, folder, rank0_only);
    dump(trainer, states.first.data());
    train_on(way, trainer, rank, ranks, 2, 2);
    dump(trainer, states.last.data());
  });
}

std::string text_of(const DeviceWay& way, int from, int to) {
  return way.way.plan + (way.computes == Computes::on_shared ? " shared" : "") + ": " +
         std::to_string(from) + " to " + std::to_string(to);
}

TEST(DeviceCheckpoint, EveryWorldLoadsTheSavesOfOthers) {
  for (const DeviceWay& way : ways()) {
    using Pairs = std::vector<std::pair<int, int>>;
    const bool meshed = way.way.node != 0;
    const Pairs pairs =
        meshed ? Pairs{{4, 4}, {4, 6}, {6, 2}} : Pairs{{1, 3}, {2, 2}, {3, 2}, {2, 1}};
    for (const auto& [from, to] : pairs) {
      SCOPED_TRACE(text_of(way, from, to));
      const Folder folder;
      States saved, loaded;
      ASSERT_TRUE(run_and_save(way, from, folder.path, saved));
      ASSERT_TRUE(load_and_run(way, to, folder.path, loaded));
      EXPECT_TRUE(same(saved.first, loaded.first, !meshed || from == to));
      EXPECT_TRUE(from != to || same(saved.last, loaded.last));
    }
  }
}

TEST(DeviceCheckpoint, RankZeroAloneReadsForAll) {
  for (const DeviceWay& way : ways()) {
    const int ranks = way.way.node != 0 ? 4 : 2;
    SCOPED_TRACE(text_of(way, ranks, ranks));
    const Folder folder;
    States saved, loaded;
    ASSERT_TRUE(run_and_save(way, ranks, folder.path, saved));
    ASSERT_TRUE(load_and_run(way, ranks, folder.path, loaded, true));
    EXPECT_TRUE(same(saved.first, loaded.first));
    EXPECT_TRUE(same(saved.last, loaded.last));
  }
}

// Training on a device and on the host gives the same bits, so a run may continue on the other one.
TEST(DeviceCheckpoint, MovesBetweenDevicesAndTheHost) {
  const DeviceWay host{{"zero3", MERON_BF16}, Computes::on_host};
  const DeviceWay device{{zero3(kAll), MERON_BF16}, Computes::on_own};
  const DeviceWay mesh_host{{mesh(false), MERON_F32, "cluster", 2}, Computes::on_host};
  const DeviceWay mesh_device{{mesh(true), MERON_F32, "cluster", 2}, Computes::on_own};
  const std::vector<std::tuple<DeviceWay, DeviceWay, int, int>> moves = {
      {device, host, 2, 2}, {host, device, 2, 2},           {device, host, 3, 1},
      {host, device, 1, 3}, {mesh_device, mesh_host, 4, 4}, {mesh_host, mesh_device, 4, 4}};
  for (const auto& [from, to, before, after] : moves) {
    SCOPED_TRACE(text_of(from, before, after) + " " + to.way.plan);
    const Folder folder;
    States saved, loaded;
    ASSERT_TRUE(run_and_save(from, before, folder.path, saved));
    ASSERT_TRUE(load_and_run(to, after, folder.path, loaded));
    EXPECT_TRUE(same(saved.first, loaded.first));
    EXPECT_TRUE(before != after || same(saved.last, loaded.last));
  }
}

TEST(DeviceCheckpoint, HasTheStatesOfItsCallWhileStepsGoOn) {
  for (const DeviceWay& way : ways()) {
    const int ranks = way.way.node != 0 ? 4 : 2;
    SCOPED_TRACE(text_of(way, ranks, ranks));
    const Folder folder;
    States called, loaded, straight;
    ASSERT_TRUE(run_device_world(way, ranks, [&](int rank, meron_context context) {
      Trainer trainer(context, way.way.dtype);
      train_on(way, trainer, rank, ranks, 0, 2);
      dump(trainer, called.first.data());
      meron_future under_way{};
      save(trainer, folder.path, 2, false, &under_way);
      train_on(way, trainer, rank, ranks, 7, 3);
      finish(under_way);
    }));
    ASSERT_TRUE(load_and_run(way, ranks, folder.path, loaded));
    ASSERT_TRUE(run_device_world(way, ranks, [&](int rank, meron_context context) {
      Trainer trainer(context, way.way.dtype);
      train_on(way, trainer, rank, ranks, 0, 4);
      dump(trainer, straight.last.data());
    }));
    EXPECT_TRUE(same(called.first, loaded.first));
    EXPECT_TRUE(same(straight.last, loaded.last));
  }
}

TEST(DeviceCheckpoint, EveryStateIsCopiedOnce) {
  const Folder folder;
  EXPECT_TRUE(
      run_device_world({{zero3(kAll)}, Computes::on_shared}, 1, [&](int, meron_context context) {
        constexpr uint64_t kCount = 100'000;
        constexpr uint64_t kBytes = 3 * kCount * sizeof(float);  // values, and two states of AdamW
        const OneParam model(context, kCount);
        model.write(std::vector<float>(kCount, 1.0f));
        meron_optimizer optimizer{};
        const meron_optimizer_options rule = MERON_OPTIMIZER_OPTIONS_INIT;
        CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &rule);
        meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
        options.optimizers = &optimizer;
        options.optimizer_count = 1;
        const meron_stats before = stats_of(context);
        meron_future save{};
        CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "saved", &options);
        finish(save);
        const meron_stats saved = stats_of(context);
        require(saved.device_down_bytes - before.device_down_bytes == kBytes, "each is saved once");
        require(saved.device_up_bytes == before.device_up_bytes, "and nothing is written");
        meron_checkpoint_load_options from = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
        from.optimizers = &optimizer;
        from.optimizer_count = 1;
        meron_checkpoint loaded{};
        CALL(meron_checkpoint_load, &loaded, context, folder.path.c_str(), nullptr, &from);
        CALL(meron_checkpoint_release, loaded);
        const meron_stats after = stats_of(context);
        require(after.device_up_bytes - saved.device_up_bytes == kBytes, "each is loaded once");
        // An update begins with the values that are there.
        require(after.device_down_bytes - saved.device_down_bytes <= kBytes / 3,
                "no state is read");
      }));
}

// A copy to memory that is not pinned keeps the thread that asks for it: the save's, and no other.
TEST(DeviceCheckpoint, ASlowCopyKeepsNoCallOfTheTrainerWaiting) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  constexpr auto kCopy = std::chrono::milliseconds(500);
  const Folder folder;
  World world{"self", 1, zero3(kAll)};
  world.device = kDevice;
  ::setenv("MERON_EMULATED_DEVICE", "delay=500000", 1);
  const bool well = run_world(world, [&](int, meron_context context) {
    const OneParam model(context, 100'000);
    model.write(std::vector<float>(100'000, 1.0f));
    meron_future under_way{};
    CALL(meron_checkpoint_save_begin, &under_way, context, folder.path.c_str(), "saved", nullptr);
    auto longest = std::chrono::nanoseconds(0);
    for (uint32_t saving = 1; saving != 0;) {
      const auto begun = std::chrono::steady_clock::now();
      meron_checkpoint_progress progress{};
      progress.struct_size = sizeof(progress);
      CALL(meron_checkpoint_get_progress, &progress, context);
      longest =
          std::max(longest, std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun));
      saving = progress.saving;
    }
    finish(under_way);
    require(longest < kCopy * 4 / 5, "calls go on while the save copies");
  });
  ::unsetenv("MERON_EMULATED_DEVICE");
  EXPECT_TRUE(well);
}

// A device that breaks while its states are copied: no checkpoint, and an error that names it.
TEST(DeviceCheckpoint, ADeviceThatBreaksIsNamed) {
  if (!emulated()) GTEST_SKIP() << "of the emulated device";
  World world{"self", 1, zero3(kAll)};
  world.device = kDevice;
  Shared<int> begun(1), failed(1);
  // The last calls of a device are those of the save.
  for (int broken = 1; broken <= 20; ++broken) {
    SCOPED_TRACE(broken);
    const Folder folder;
    begun[0] = 0;
    ::setenv("MERON_EMULATED_DEVICE", ("break=" + std::to_string(broken)).c_str(), 1);
    const bool well = run_world(world, [&](int, meron_context context) {
      const OneParam model(context, 1000);
      meron_optimizer optimizer{};
      const meron_optimizer_options rule = MERON_OPTIMIZER_OPTIONS_INIT;
      CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &rule);
      model.write(std::vector<float>(1000, 1.0f));
      meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
      options.optimizers = &optimizer;
      options.optimizer_count = 1;
      meron_future save{};
      CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "saved", &options);
      begun[0] = 1;
      meron_error* error = nullptr;
      const meron_status status = meron_future_wait(save, MERON_TIMEOUT_DEFAULT, &error);
      const std::string words = words_of(error);
      if (status < 0) {
        require(status == MERON_E_DEVICE, words.c_str());
        require(words.find("emulated:0") != std::string::npos, words.c_str());
        require(!std::filesystem::exists(folder.path + "/saved"), "no checkpoint");
        ++failed[0];
      }
      _exit(0);
    });
    EXPECT_TRUE(well || begun[0] == 0);
  }
  ::unsetenv("MERON_EMULATED_DEVICE");
  EXPECT_GT(failed[0], 1);
}

}  // namespace
}  // namespace meron::test

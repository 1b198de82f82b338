// SPDX-License-Identifier: Apache-2.0
// Saves while training goes on: what is in the files are the states at the call, whatever follows
// it, and whatever fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/distributed/async_saves.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

const std::string kInt8 = R"j({"preset": "zero3", "optimizer": {"dtype": "int8"}})j";

bool same_bits(const float* a, const float* b, size_t count) {
  return std::memcmp(a, b, count * sizeof(float)) == 0;
}

TEST(AsyncSave, HasTheStatesOfItsCallWhileTrainingContinues) {
  const size_t all = kStates * weight_count();
  for (const Way& way : std::vector<Way>{{"zero0"},
                                         {"zero1", MERON_BF16},
                                         {"zero2"},
                                         {"zero3"},
                                         {"zero3", MERON_BF16},
                                         {kInt8, MERON_BF16},
                                         {nvme_plan(), MERON_BF16},
                                         {"mics", MERON_BF16, "cluster", 2},
                                         {"hpz", MERON_BF16, "cluster", 2},
                                         {"zeropp", MERON_BF16, "cluster", 2}}) {
    SCOPED_TRACE(way.plan);
    const int ranks = way.node == 0 ? 2 : 4;
    const Folder folder;
    Shared<float> called(all), ended(all), loaded(all), went_on(all);
    ASSERT_TRUE(run_world(world_of(way, ranks), [&](int rank, meron_context context) {
      Trainer trainer(context, way.dtype);
      train(trainer, rank, ranks, 0, 2);
      dump(trainer, called.data());
      const meron_future save = begin_save(trainer, folder.path, "two", 2);
      CALL(meron_optimizer_set_learning_rate, trainer.optimizer, 0.5);
      train(trainer, rank, ranks, 7, 3);
      finish(save);
    }));
    ASSERT_TRUE(run_world(world_of(way, ranks), [&](int rank, meron_context context) {
      Trainer trainer(context, way.dtype);
      require(load(trainer, folder.path) == 2, "the step is the save's");
      dump(trainer, loaded.data());
      train(trainer, rank, ranks, 2, 2);
      dump(trainer, went_on.data());
    }));
    ASSERT_TRUE(run_world(world_of(way, ranks), [&](int rank, meron_context context) {
      Trainer trainer(context, way.dtype);
      train(trainer, rank, ranks, 0, 4);
      dump(trainer, ended.data());
    }));
    EXPECT_TRUE(same_bits(called.data(), loaded.data(), all));
    EXPECT_TRUE(same_bits(ended.data(), went_on.data(), all));
  }
}

TEST(AsyncSave, UpdatesAndWritesOfStatesWaitUntilTheyAreCopied) {
  const size_t all = kStates * weight_count();
  for (const Way& way :
       std::vector<Way>{{"zero1"}, {"zero3", MERON_BF16}, {nvme_plan(), MERON_BF16}}) {
    SCOPED_TRACE(way.plan);
    const Folder folder;
    Shared<float> called(all), loaded(all);
    ASSERT_TRUE(run_world(world_of(way, 2), [&](int rank, meron_context context) {
      Trainer trainer(context, way.dtype);
      train(trainer, rank, 2, 0, 1);
      dump(trainer, called.data());
      const meron_future one = begin_save(trainer, folder.path, "one", 1);
      meron_future update{};
      CALL(meron_update_begin, &update, trainer.units.data(), trainer.units.size());
      meron_future gather{};
      meron_error* error = nullptr;
      require(meron_gather_begin(&gather, &trainer.units[0], 1, nullptr, &error) == MERON_E_STATE,
              "a unit is not gathered while it is updated");
      meron_error_free(error);
      CALL(meron_future_wait, update, MERON_TIMEOUT_DEFAULT);
      const std::vector<float> zeros(weight_count(), 0.0f);
      for (size_t i = 0; i < trainer.params.size(); ++i) {
        CALL(meron_update_write, update, trainer.params[i], zeros.data(), trainer.descs[i].count(),
             MERON_F32);
      }
      CALL(meron_update_publish, update);
      finish(one);
      // The states of "two" differ by their values; those of AdamW are as they were.
      const meron_future two = begin_save(trainer, folder.path, "two", 2);
      for (size_t i = 0; i < kParams; ++i) {
        meron_param_info info{};
        info.struct_size = sizeof(info);
        CALL(meron_param_get_info, &info, trainer.params[i]);
        CALL(meron_optimizer_write_state, trainer.optimizer, trainer.params[i],
             MERON_OPTIMIZER_STATE_EXP_AVG, zeros.data(), info.shard_count);
      }
      if (way.plan != nvme_plan()) {
        CALL(meron_optimizer_offload, trainer.optimizer, folder.path.c_str());
        CALL(meron_optimizer_reload, trainer.optimizer);
      }
      finish(two);
    }));
    const size_t count = weight_count();
    ASSERT_TRUE(run_world(world_of(way, 2), [&](int, meron_context context) {
      Trainer trainer(context, way.dtype);
      require(load(trainer, folder.path, "one") == 1, "one is there");
      dump(trainer, loaded.data());
    }));
    EXPECT_TRUE(same_bits(called.data(), loaded.data(), all));
    ASSERT_TRUE(run_world(world_of(way, 2), [&](int, meron_context context) {
      Trainer trainer(context, way.dtype);
      require(load(trainer, folder.path, "two") == 2, "two is there");
      dump(trainer, loaded.data());
    }));
    EXPECT_TRUE(same_bits(called.data() + 2 * count, loaded.data() + 2 * count, 2 * count));
    EXPECT_EQ(loaded[0], 0.0f);
  }
}

TEST(AsyncSave, TheNextWaitsForTheOneBeforeAndLoadForBoth) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    std::vector<meron_future> saves;
    for (uint64_t step = 1; step <= 4; ++step) {
      train(trainer, rank, 2, static_cast<int>(step), 1);
      saves.push_back(begin_save(trainer, folder.path, ("s" + std::to_string(step)).c_str(), step));
    }
    require(load(trainer, folder.path) == 4, "load finds the save under way");
    for (const meron_future save : saves) finish(save);
  }));
  for (int step = 1; step <= 4; ++step) {
    EXPECT_TRUE(fs::exists(folder.path + "/s" + std::to_string(step) + "/meron.json"));
  }
}

TEST(AsyncSave, IsThereWhenTheContextHasClosed) {
  for (const char* transport : {"shm", "local", "sockets"}) {
    SCOPED_TRACE(transport);
    const Folder folder;
    EXPECT_TRUE(run_world({transport, 2, "zero1"}, [&](int, meron_context context) {
      const Trainer trainer(context, MERON_F32);
      (void)begin_save(trainer, folder.path, "last", 1);
    }));
    EXPECT_TRUE(fs::exists(folder.path + "/last/meron.json"));
  }
}

TEST(AsyncSave, UnitsAndOptimizersMayGoWhileItIsUnderWay) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const meron_future one = begin_save(trainer, folder.path, "one", 1);
    CALL(meron_optimizer_release, trainer.optimizer);
    for (const meron_unit unit : trainer.units) CALL(meron_unit_destroy, unit);
    const OneParam other(context, 100, false, "in.weight", "in");
    finish(one);
    meron_future two{};
    CALL(meron_checkpoint_save_begin, &two, context, folder.path.c_str(), "two", nullptr);
    finish(two);
  }));
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int, meron_context context) {
    Trainer trainer(context, MERON_F32);
    require(load(trainer, folder.path, "one") == 1, "all of it can be loaded");
    // A new optimizer of the same units, while a save has the old one.
    const meron_future save = begin_save(trainer, folder.path, "three", 3);
    CALL(meron_optimizer_release, trainer.optimizer);
    trainer.make_optimizer();
    finish(save);
  }));
}

TEST(AsyncSave, EndsWhenAPeerDiesOrStops) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    SCOPED_TRACE(signal);
    const Folder folder;
    Shared<int> status(1);
    Shared<pid_t> pid(1);
    World world{"shm", 2, "zero3"};
    world.timeout_ns = 1'000'000'000;
    EXPECT_FALSE(run_world(world, [&](int rank, meron_context context) {
      const Trainer trainer(context, MERON_F32);
      if (rank == 1) {
        pid[0] = getpid();
        const meron_checkpoint_save_options options = save_options(trainer, 1);
        meron_future save{};
        barrier(context);
        CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "one", &options);
        kill(getpid(), signal);
        _exit(9);
      }
      barrier(context);
      usleep(200'000);
      meron_status ended = MERON_OK;
      (void)failure_of(begin_save(trainer, folder.path, "one", 1), &ended);
      status[0] = ended;
      kill(pid[0], SIGKILL);
    }));
    EXPECT_EQ(status[0], signal == SIGKILL ? MERON_E_PEER_DEAD : MERON_E_TIMEOUT);
    EXPECT_FALSE(fs::exists(folder.path + "/one"));
  }
}

TEST(AsyncSave, TheCallersTensorsMayChangeOnceCopied) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    const Trainer trainer(context, MERON_F32);
    std::vector<unsigned char> own(3 << 20, rank == 0 ? 0xA5 : 0x5A);
    const uint64_t shape = 2 * own.size();
    meron_checkpoint_tensor tensor = MERON_CHECKPOINT_TENSOR_INIT;
    tensor.name = "buffer";
    tensor.dtype = "U8";
    tensor.dims = 1;
    tensor.shape = &shape;
    tensor.begin = static_cast<uint64_t>(rank) * own.size();
    tensor.count = own.size();
    tensor.data = own.data();
    meron_checkpoint_save_options options = save_options(trainer, 1);
    options.tensors = &tensor;
    options.tensor_count = 1;
    meron_future save{};
    CALL(meron_checkpoint_save_begin, &save, context, folder.path.c_str(), "one", &options);
    CALL(meron_checkpoint_wait_copied, context, MERON_TIMEOUT_DEFAULT);
    std::fill(own.begin(), own.end(), static_cast<unsigned char>(0xEE));
    meron_checkpoint_progress progress{};
    progress.struct_size = sizeof(progress);
    CALL(meron_checkpoint_get_progress, &progress, context);
    require(progress.copied == progress.total && progress.total > own.size(), "all is copied");
    finish(save);
    CALL(meron_checkpoint_get_progress, &progress, context);
    require(progress.saving == 0 && progress.written == progress.total, "all is written");
  }));
  uint64_t mine = 0;
  for (const auto& entry : fs::directory_iterator(folder.path + "/one")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    EXPECT_EQ(text.find(std::string(64, '\xEE')), std::string::npos) << entry.path();
    mine += text.find(std::string(3 << 20, '\xA5')) != std::string::npos ? 1 : 0;
    mine += text.find(std::string(3 << 20, '\x5A')) != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(mine, 2u);
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
// Saves at one world size and plan, loads at another: every state has the same bits, and training
// goes on as if it had never stopped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "capi/guard.h"
#include "checkpoint/directory.h"
#include "tests/distributed/trainer.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStates = 4;  // values, master, two of AdamW

struct Folder {
  std::string path;
  Folder() {
    std::string text = (fs::temp_directory_path() / "meron-checkpoint-XXXXXX").string();
    path = mkdtemp(text.data());
  }
  ~Folder() { fs::remove_all(path); }
};

std::shared_ptr<Context> inside(meron_context context) {
  return (*capi::get<capi::ContextHolder>(context))->context;
}
std::vector<std::shared_ptr<Optimizer>> inside(meron_optimizer optimizer) {
  if (optimizer.id == 0) return {};
  return {(*capi::get<capi::OptimizerHolder>(optimizer))->value};
}

void require_ok(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.error().info().what.c_str());
  std::fflush(stderr);
  _exit(5);
}

SaveOptions save_options(const std::string& root, const std::string& name, uint64_t step) {
  SaveOptions options;
  options.root = root;
  options.name = name;
  options.step = step;
  return options;
}

void save(Trainer& trainer, const SaveOptions& options) {
  require_ok(inside(trainer.context)->save_checkpoint(inside(trainer.optimizer), options), "save");
}

LoadReport load(Trainer& trainer, const LoadOptions& options) {
  auto report = inside(trainer.context)->load_checkpoint(inside(trainer.optimizer), options);
  require_ok(report.ok() ? Status(Ok{}) : Status(report.error()), "load");
  return *report;
}

// `steps` steps, each of one micro-batch per rank.
void train(Trainer& trainer, int rank, int ranks, int first, int steps) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  for (int step = first; step < first + steps; ++step) {
    auto gradients = trainer.zeros();
    (void)trainer.micro_batch(static_cast<uint64_t>(step * ranks + rank), gradients);
    trainer.reduce(gradients, options, true);
    trainer.step();
  }
}

// All states of all params, put together from the parts of all ranks.
void dump(Trainer& trainer, float* out) {
  const size_t count = weight_count();
  std::vector<float> weights(count);
  trainer.weights(weights.data());
  std::copy(weights.begin(), weights.end(), out);
  size_t at = 0;
  for (size_t i = 0; i < kParams; at += trainer.descs[i].count(), ++i) {
    meron_param_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_param_get_info, &info, trainer.params[i]);
    for (size_t s = 0; s < kStates - 1; ++s) {
      std::vector<float> part(info.owned_count + 1);
      CALL(meron_optimizer_read_state, part.data(), info.owned_count, trainer.optimizer,
           trainer.params[i], static_cast<meron_optimizer_state>(s));
      std::copy_n(part.begin(), info.owned_count, out + (s + 1) * count + at + info.owned_offset);
    }
  }
}

struct Way {
  std::string plan;
  meron_dtype dtype = MERON_F32;
  const char* transport = "shm";
  int node = 0;
};

World world_of(const Way& way, int ranks) {
  World world{way.transport, ranks, way.plan};
  if (way.node != 0) world.node = way.node;
  return world;
}

// Trains, saves, trains on: the states at the save, and at the end.
void run_and_save(const Way& way, int ranks, const std::string& root, std::vector<float>* saved,
                  std::vector<float>* ended) {
  Shared<float> states(2 * kStates * weight_count());
  ASSERT_TRUE(run_world(world_of(way, ranks), [&](int rank, meron_context context) {
    Trainer trainer(context, way.dtype);
    train(trainer, rank, ranks, 0, 2);
    save(trainer, save_options(root, "two", 2));
    dump(trainer, states.data());
    train(trainer, rank, ranks, 2, 2);
    dump(trainer, states.data() + kStates * weight_count());
  }));
  saved->assign(states.data(), states.data() + kStates * weight_count());
  ended->assign(states.data() + kStates * weight_count(),
                states.data() + 2 * kStates * weight_count());
}

void load_and_run(const Way& way, int ranks, const std::string& root, std::vector<float>* loaded,
                  std::vector<float>* ended, int before = 1, bool rank0_only = false) {
  Shared<float> states(2 * kStates * weight_count());
  ASSERT_TRUE(run_world(world_of(way, ranks), [&](int rank, meron_context context) {
    Trainer trainer(context, way.dtype);
    train(trainer, rank, ranks, 7, before);  // whatever was there before
    const LoadReport report = load(trainer, {.root = root, .name = "", .rank0_only = rank0_only});
    if (rank0_only && rank != 0 && report.bytes_read != 0) _exit(9);
    if (report.checkpoint.manifest.step != 2 || report.differences.any()) _exit(6);
    dump(trainer, states.data());
    train(trainer, rank, ranks, 2, 2);
    dump(trainer, states.data() + kStates * weight_count());
  }));
  loaded->assign(states.data(), states.data() + kStates * weight_count());
  ended->assign(states.data() + kStates * weight_count(),
                states.data() + 2 * kStates * weight_count());
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

const std::string kNvme =
    R"j({"preset": "zero3", "param": {"tier": "nvme"}, "optimizer": {"tier": "nvme"}, "nvme": {"path": ")j" +
    fs::current_path().string() + R"j("}})j";
const std::string kInt8 = R"j({"preset": "zero3", "optimizer": {"dtype": "int8"}})j";
const std::string kBf16States = R"j({"preset": "zero2", "optimizer": {"dtype": "bf16"}})j";

std::vector<Way> ways() {
  return {
      {"zero0"},           {"zero1"},     {"zero2", MERON_BF16}, {"zero3"}, {"zero3", MERON_BF16},
      {kInt8, MERON_BF16}, {kBf16States}, {kNvme, MERON_BF16}};
}

TEST(CheckpointTest, EveryWorldLoadsWhatAnotherSaved) {
  for (const Way& way : ways()) {
    for (const auto& [from, to] :
         {std::pair(1, 3), std::pair(2, 2), std::pair(3, 2), std::pair(2, 4)}) {
      SCOPED_TRACE(way.plan + ": " + std::to_string(from) + " to " + std::to_string(to));
      const Folder folder;
      std::vector<float> saved, ended, loaded, went_on;
      run_and_save(way, from, folder.path, &saved, &ended);
      load_and_run(way, to, folder.path, &loaded, &went_on);
      EXPECT_TRUE(same_bits(saved, loaded));
      EXPECT_TRUE(from != to || same_bits(ended, went_on));
    }
  }
}

// Gathered values have been through a codec, by which worlds differ: these are left out there.
std::vector<float> kept_states(const std::vector<float>& states) {
  return {states.begin() + static_cast<ptrdiff_t>(weight_count()), states.end()};
}

TEST(CheckpointTest, EveryMeshLoadsWhatAnotherSaved) {
  for (const char* plan : {"mics", "hpz", "zeropp"}) {
    const Way way{plan, MERON_BF16, "cluster", 2};
    for (const auto& [from, to] : {std::pair(4, 4), std::pair(4, 6), std::pair(6, 2)}) {
      SCOPED_TRACE(way.plan + ": " + std::to_string(from) + " to " + std::to_string(to));
      const Folder folder;
      std::vector<float> saved, ended, loaded, went_on;
      run_and_save(way, from, folder.path, &saved, &ended);
      load_and_run(way, to, folder.path, &loaded, &went_on, 3);
      EXPECT_TRUE(same_bits(kept_states(saved), kept_states(loaded)));
      EXPECT_TRUE(from != to || same_bits(saved, loaded));
      EXPECT_TRUE(from != to || same_bits(ended, went_on));
    }
  }
}

TEST(CheckpointTest, EveryPlanLoadsWhatAnotherSaved) {
  const std::vector<Way> all = {{"zero0"}, {"zero1"}, {"zero3"}, {kNvme}};
  for (const Way& from : all) {
    const Folder folder;
    std::vector<float> saved, ended;
    run_and_save(from, 2, folder.path, &saved, &ended);
    for (const Way& to : all) {
      SCOPED_TRACE(from.plan + " to " + to.plan);
      std::vector<float> loaded, went_on;
      load_and_run(to, 3, folder.path, &loaded, &went_on);
      EXPECT_TRUE(same_bits(saved, loaded));
    }
  }
}

TEST(CheckpointTest, RankZeroAloneReadsForAll) {
  const std::vector<Way> all = {{"zero0"},
                                {"zero1", MERON_BF16, "sockets"},
                                {"zero2", MERON_F32, "sockets"},
                                {"zero3", MERON_BF16},
                                {"zero3", MERON_F32, "sockets"},
                                {kInt8, MERON_BF16, "sockets"},
                                {kNvme, MERON_BF16}};
  for (const Way& way : all) {
    for (const auto& [from, to] : {std::pair(2, 1), std::pair(2, 2), std::pair(3, 4)}) {
      SCOPED_TRACE(way.plan + ": " + std::to_string(from) + " to " + std::to_string(to));
      const Folder folder;
      std::vector<float> saved, ended, loaded, went_on;
      run_and_save(way, from, folder.path, &saved, &ended);
      load_and_run(way, to, folder.path, &loaded, &went_on, 1, true);
      EXPECT_TRUE(same_bits(saved, loaded));
      EXPECT_TRUE(from != to || same_bits(ended, went_on));
    }
  }
}

TEST(CheckpointTest, RankZeroAloneReadsForAMesh) {
  for (const char* plan : {"mics", "hpz", "zeropp"}) {
    const Way way{plan, MERON_BF16, "cluster", 2};
    SCOPED_TRACE(plan);
    const Folder folder;
    std::vector<float> saved, ended, loaded, went_on;
    run_and_save(way, 4, folder.path, &saved, &ended);
    load_and_run(way, 4, folder.path, &loaded, &went_on, 3, true);
    EXPECT_TRUE(same_bits(saved, loaded));
    EXPECT_TRUE(same_bits(ended, went_on));  // residuals too
  }
}

TEST(CheckpointTest, ASaveThatFailsOnOneRankFailsOnAllAndTrainingGoesOn) {
  const Folder folder;
  const std::string file = folder.path + "/file";
  std::fclose(std::fopen(file.c_str(), "w"));
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    train(trainer, rank, 2, 0, 1);
    const Status saved =
        inside(context)->save_checkpoint(inside(trainer.optimizer), save_options(file, "one", 1));
    if (saved.ok()) _exit(7);
    if (rank == 1 && saved.error().info().what.find("rank 0") == std::string::npos) _exit(8);
    train(trainer, rank, 2, 1, 1);
    save(trainer, save_options(folder.path, "two", 2));
  }));
  EXPECT_TRUE(checkpoint::resolve(folder.path, "two").ok());
}

TEST(CheckpointTest, WhatDoesNotFitIsToldBeforeAnythingChanges) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    train(trainer, rank, 2, 0, 1);
    save(trainer, save_options(folder.path, "one", 1));
  }));
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    const auto refused = [&](const LoadOptions& options, const char* words) {
      const auto report = inside(context)->load_checkpoint({}, options);
      if (report.ok()) _exit(7);
      const ErrorInfo& info = report.error().info();
      if ((info.what + info.subject).find(words) == std::string::npos) {
        std::fprintf(stderr, "rank %d: %s: %s\n", rank, info.subject.c_str(), info.what.c_str());
        _exit(8);
      }
    };
    meron_param param{};
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    const int64_t shape = 67;
    desc.name = "in.weight";
    desc.shape = &shape;
    desc.dims = 1;
    CALL(meron_param_register, &param, context, &desc);
    meron_unit unit{};
    CALL(meron_unit_create, &unit, context, "in", &param, 1);
    refused({.root = folder.path, .name = "", .strict = false}, "in.weight");
    refused({.root = folder.path, .name = ""}, "unexpected");
    refused({.root = folder.path, .name = "none"}, "none");
    refused({.root = folder.path + "/nowhere", .name = ""}, "nowhere");
    meron_unit_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_unit_get_info, &info, unit);
    if (info.version != 0) _exit(9);
  }));
}

}  // namespace
}  // namespace meron::test

// SPDX-License-Identifier: Apache-2.0
// Loads: what they move between the ranks, and blocks of files of another size than saves write.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "kernels/cpu/crc32c.h"
#include "tests/distributed/one_param.h"
#include "tests/distributed/sanitized.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {
namespace {

constexpr int64_t kElements = 3'000'001;
constexpr int kArrays = 3;  // values, and two states of AdamW

// A model of one param, large enough for several blocks per file.
struct Large {
  OneParam model;
  int64_t count;
  meron_optimizer optimizer{};

  explicit Large(meron_context context, int64_t elements = kElements)
      : model(context, elements), count(elements) {
    const meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
  }
  void step() const {
    std::vector<float> values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1009) * 0.01f;
    model.write(values);
    model.reduce_and_step(optimizer, values);
  }
  // All arrays, one after the other. Each rank fills in its shards.
  void dump(float* out) const {
    const std::vector<float> values = model.gather();
    std::copy(values.begin(), values.end(), out);
    meron_param_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_param_get_info, &info, model.param);
    for (int s = 1; s < kArrays; ++s) {
      CALL(meron_optimizer_read_state, out + s * count + info.shard_offset, info.shard_count,
           optimizer, model.param, static_cast<meron_optimizer_state>(s));
    }
  }
};

meron_checkpoint_load_options load_options(const Large& large, bool rank0_only) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &large.optimizer;
  options.optimizer_count = 1;
  options.rank0_only = rank0_only ? 1 : 0;
  return options;
}

// The words of the error, "" if it is well.
std::string try_load(meron_context context, const Large& large, const std::string& folder,
                     bool rank0_only) {
  const meron_checkpoint_load_options options = load_options(large, rank0_only);
  meron_checkpoint loaded{};
  meron_error* error = nullptr;
  if (meron_checkpoint_load(&loaded, context, folder.c_str(), nullptr, &options, &error) ==
      MERON_OK) {
    CALL(meron_checkpoint_release, loaded);
  }
  return words_of(error);
}

bool save_large(const std::string& folder, int ranks, Shared<float>& states) {
  return run_world({"shm", ranks, "zero3"}, [&](int, meron_context context) {
    const Large large(context, static_cast<int64_t>(states.size()) / kArrays);
    large.step();
    meron_checkpoint_save_options options = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    options.optimizers = &large.optimizer;
    options.optimizer_count = 1;
    meron_future save{};
    CALL(meron_checkpoint_save_begin, &save, context, folder.c_str(), "one", &options);
    finish(save);
    large.dump(states.data());
  });
}

bool same(Shared<float>& a, Shared<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- Bytes between ranks ------------------------------------------------------------------------

struct Wire {
  World world;
  double models;  // how often all states of the model are sent
};

World world_over(const char* transport, int ranks, const char* plan, int node = 0) {
  World world{transport, ranks, plan};
  world.node = node;
  return world;
}

// Rank 0 alone has the files: to every host it sends what that host's ranks own, once.
TEST(CheckpointLoad, RankZeroSendsEachHostTheShardsOfItsRanksOnce) {
  constexpr int64_t kCount = kSanitized ? 1'000'001 : kElements;
  const Folder folder;
  Shared<float> saved(kArrays * kCount);
  ASSERT_TRUE(save_large(folder.path, 2, saved));
  const double model = static_cast<double>(saved.size() * sizeof(float));
  for (const Wire& wire : std::vector<Wire>{{world_over("sockets", 4, "zero3"), 3.0 / 4},
                                            {world_over("sockets", 2, "zero0"), 1.0},
                                            {world_over("cluster", 4, "zero3", 2), 1.0 / 2},
                                            {world_over("cluster", 4, "zero0", 2), 1.0},
                                            {world_over("cluster", 6, "zero0", 2), 2.0},
                                            {world_over("cluster", 4, "mics", 2), 1.0}}) {
    SCOPED_TRACE(wire.world.plan + " over " + wire.world.transport + " of " +
                 std::to_string(wire.world.ranks));
    Shared<float> loaded(saved.size());
    Shared<uint64_t> sent(static_cast<size_t>(wire.world.ranks));
    ASSERT_TRUE(run_world(wire.world, [&](int rank, meron_context context) {
      const Large large(context, kCount);
      const uint64_t before = SocketTransport::bytes_sent();
      const std::string words = try_load(context, large, folder.path, true);
      require(words.empty(), words.c_str());
      sent[static_cast<size_t>(rank)] = SocketTransport::bytes_sent() - before;
      large.dump(loaded.data());
    }));
    EXPECT_TRUE(same(saved, loaded));
    double all = 0;
    for (size_t rank = 0; rank < sent.size(); ++rank) all += static_cast<double>(sent[rank]);
    // Votes and heartbeats are extra.
    EXPECT_GE(all, wire.models * model);
    EXPECT_LE(all, wire.models * model * 1.02 + 256e3);
  }
}

// ---- Blocks -------------------------------------------------------------------------------------

std::string text_in(const std::string& path) {
  std::string text(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary)
      .read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

// As if a writer had taken checksums of blocks of this size.
void use_blocks_of(const std::string& checkpoint, uint64_t block) {
  const std::string path = checkpoint + "/meron.json";
  auto manifest = meron::checkpoint::parse_manifest(text_in(path));
  require(manifest.ok(), "a manifest");
  manifest->block_bytes = block;
  for (meron::checkpoint::File& file : manifest->files) {
    const std::string content = text_in(checkpoint + "/" + file.name);
    file.crc.clear();
    for (uint64_t at = 0; at < content.size(); at += block) {
      file.crc.push_back(
          kernels::crc32c(content.data() + at, std::min<uint64_t>(block, content.size() - at)));
    }
  }
  std::ofstream(path, std::ios::binary) << meron::checkpoint::to_json(*manifest);
}

// Library code of a test is for its ranks, as libmeron is.
bool in_a_rank(const std::function<void()>& body) {
  return run_world({"self", 1, "zero0"}, [&](int, meron_context) { body(); });
}

TEST(CheckpointLoad, BlocksLargerThanThoseOfASaveAreRead) {
  const Folder folder;
  Shared<float> saved(kArrays * kElements);
  ASSERT_TRUE(save_large(folder.path, 1, saved));
  for (const uint64_t block : {uint64_t{1} << 20, uint64_t{8} << 20, uint64_t{32} << 20}) {
    ASSERT_TRUE(in_a_rank([&] { use_blocks_of(folder.path + "/one", block); }));
    for (const bool rank0_only : {false, true}) {
      SCOPED_TRACE(std::to_string(block) + (rank0_only ? " by rank 0" : ""));
      Shared<float> loaded(saved.size());
      ASSERT_TRUE(run_world({"shm", 3, "zero3"}, [&](int, meron_context context) {
        const Large large(context);
        const std::string words = try_load(context, large, folder.path, rank0_only);
        require(words.empty(), words.c_str());
        large.dump(loaded.data());
      }));
      EXPECT_TRUE(same(saved, loaded));
    }
  }
}

// Its files share memory on their way to the drive, and pass through all of it several times.
TEST(CheckpointLoad, StatesOfManyTimesTheStagingComeBackAsTheyWere) {
  constexpr int64_t kMany = 10'000'003;
  const Folder folder;
  Shared<float> saved(kArrays * kMany);
  ASSERT_TRUE(save_large(folder.path, 2, saved));
  for (const int ranks : {1, 2, 3}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    Shared<float> loaded(saved.size());
    ASSERT_TRUE(run_world({"shm", ranks, "zero3"}, [&](int, meron_context context) {
      const Large large(context, kMany);
      const std::string words = try_load(context, large, folder.path, false);
      require(words.empty(), words.c_str());
      large.dump(loaded.data());
    }));
    EXPECT_TRUE(same(saved, loaded));
  }
}

TEST(CheckpointLoad, AChangedByteIsFoundInALargeBlock) {
  const Folder folder;
  Shared<float> saved(kArrays * kElements);
  ASSERT_TRUE(save_large(folder.path, 1, saved));
  ASSERT_TRUE(in_a_rank([&] {
    use_blocks_of(folder.path + "/one", uint64_t{8} << 20);
    for (const auto& entry : std::filesystem::directory_iterator(folder.path + "/one")) {
      if (entry.path().extension() != ".safetensors") continue;
      std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(10 << 20);
      file.put('\x5A');
    }
  }));
  EXPECT_TRUE(run_world({"self", 1, "zero3"}, [&](int, meron_context context) {
    const Large large(context);
    const std::string words = try_load(context, large, folder.path, false);
    require(words.find("at offset 8388608") != std::string::npos, words.c_str());
    _exit(0);  // the group is broken
  }));
}

// ---- The end of a load --------------------------------------------------------------------------

void spoil_last_byte(const std::string& checkpoint) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().filename().string().find("-00001") == std::string::npos) continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x5A');
  }
}

// Rank 0 has read what it owns.
TEST(CheckpointLoad, AReadErrorOnOneRankIsAnErrorOnAll) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    const OneParam model(context, kElements);
    model.write(std::vector<float>(kElements, 1.0f));
    const meron_checkpoint_save_options saving = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    std::string words = try_save(context, folder.path, "one", saving);
    require(words.empty(), words.c_str());
    if (rank == 1) spoil_last_byte(folder.path + "/one");
    barrier(context);
    Loaded loaded;
    const meron_checkpoint_load_options loading = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    words = test::try_load(context, nullptr, folder.path, nullptr, loading, &loaded);
    require(words.find("rank 1") != std::string::npos, ("no error: " + words).c_str());
    _exit(0);  // the group is broken
  }));
}

// When it ends on one rank, no other reads files any more: they may go.
TEST(CheckpointLoad, FilesMayGoWhenItEnds) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 3, "zero0"}, [&](int rank, meron_context context) {
    const OneParam model(context, 3000);
    model.write(std::vector<float>(3000, 1.0f));
    for (int i = 0; i < 40; ++i) {
      const std::string name = "save-" + std::to_string(i);
      const meron_checkpoint_save_options saving = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
      std::string words = try_save(context, folder.path, name, saving);
      require(words.empty(), words.c_str());
      Loaded loaded;
      const meron_checkpoint_load_options loading = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
      words = test::try_load(context, nullptr, folder.path, name.c_str(), loading, &loaded);
      require(words.empty(), words.c_str());
      if (rank == i % 3) std::filesystem::remove_all(folder.path + "/" + name);
      barrier(context);
    }
  }));
}

// ---- Arguments ----------------------------------------------------------------------------------

// The others would wait for that rank for twice the timeout.
TEST(CheckpointLoad, AnOptimizerGroupOnOneRankAloneIsAMismatchOnAll) {
  const Folder folder;
  EXPECT_TRUE(run_world({"shm", 2, "zero3"}, [&](int rank, meron_context context) {
    const OneParam model(context, 600);
    meron_optimizer optimizer{};
    const meron_optimizer_options options = MERON_OPTIMIZER_OPTIONS_INIT;
    CALL(meron_optimizer_create, &optimizer, &model.unit, 1, &options);
    model.write(std::vector<float>(600, 1.0f));
    meron_checkpoint_save_options saving = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    saving.optimizers = &optimizer;
    saving.optimizer_count = 1;
    std::string words = try_save(context, folder.path, "one", saving);
    require(words.empty(), words.c_str());
    if (rank == 1) {
      const meron_optimizer_group group = MERON_OPTIMIZER_GROUP_INIT;
      uint32_t number = 0;
      CALL(meron_optimizer_add_group, &number, optimizer, &model.param, 1, &group);
    }
    Loaded loaded;
    const meron_checkpoint_load_options loading = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    words = test::try_load(context, &optimizer, folder.path, nullptr, loading, &loaded);
    require(words.find("checkpoint_load") != std::string::npos, words.c_str());
    require(words.find("rank 0") != std::string::npos, words.c_str());
    require(words.find("rank 1") != std::string::npos, words.c_str());
    _exit(0);  // the group is broken
  }));
}

}  // namespace
}  // namespace meron::test

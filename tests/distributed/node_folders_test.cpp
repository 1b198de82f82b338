// SPDX-License-Identifier: Apache-2.0
// Checkpoints in a folder per node: nodes are those of the transport, and each sees its own folder
// only.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "io/fault_plan.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

// A world whose ranks say which node they are on; over sockets alone each rank is one.
struct Nodes {
  Way way;
  int ranks = 4;
  int ranks_per_node = 2;
};

Nodes of_nodes(const std::string& plan, meron_dtype dtype, int ranks, int ranks_per_node) {
  return {{plan, dtype, "cluster", ranks_per_node}, ranks, ranks_per_node};
}

// The folder that a rank sees: node `first` and on.
std::string folder_of(const Folder& folder, const Nodes& nodes, int rank, int first = 0) {
  return folder.path + "/disk" + std::to_string(first + rank / nodes.ranks_per_node);
}

std::string try_save(const Trainer& trainer, const std::string& folder, const std::string& name,
                     uint64_t step, bool overwrite = false, uint64_t keep = 0) {
  meron_checkpoint_save_options options = save_options(trainer, step);
  options.per_node = 1;
  options.overwrite = overwrite ? 1 : 0;
  options.keep = keep;
  return test::try_save(trainer, folder, name, options);
}

// The step of what was loaded, or 0 and the words of the error.
uint64_t try_load(const Trainer& trainer, const std::string& folder, const char* name,
                  std::string* words, bool per_node = true) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.per_node = per_node ? 1 : 0;
  Loaded loaded;
  *words = test::try_load(trainer.context, &trainer.optimizer, folder, name, options, &loaded);
  return loaded.step;
}

void require(bool good, int rank, const std::string& words) {
  if (good) return;
  std::fprintf(stderr, "rank %d: '%s'\n", rank, words.c_str());
  std::fflush(stderr);
  _exit(5);
}

using States = std::vector<float>;

void run_and_save(const Nodes& nodes, const Folder& folder, States* saved, States* ended) {
  const size_t count = kStates * weight_count();
  Shared<float> states(2 * count);
  ASSERT_TRUE(run_world(world_of(nodes.way, nodes.ranks), [&](int rank, meron_context context) {
    Trainer trainer(context, nodes.way.dtype);
    train(trainer, rank, nodes.ranks, 0, 2);
    const std::string words = try_save(trainer, folder_of(folder, nodes, rank), "two", 2);
    require(words.empty(), rank, words);
    dump(trainer, states.data());
    train(trainer, rank, nodes.ranks, 2, 2);
    dump(trainer, states.data() + count);
  }));
  saved->assign(states.data(), states.data() + count);
  ended->assign(states.data() + count, states.data() + 2 * count);
}

// `first`: the disk that the first node has now. With `folder_for_all` the files are in one.
void load_and_run(const Nodes& nodes, const Folder& folder, States* loaded, States* ended,
                  int first = 0, const std::string& folder_for_all = {}) {
  const size_t count = kStates * weight_count();
  Shared<float> states(2 * count);
  ASSERT_TRUE(run_world(world_of(nodes.way, nodes.ranks), [&](int rank, meron_context context) {
    Trainer trainer(context, nodes.way.dtype);
    train(trainer, rank, nodes.ranks, 7, 3);
    std::string words;
    const bool per_node = folder_for_all.empty();
    const std::string from = per_node ? folder_of(folder, nodes, rank, first) : folder_for_all;
    require(try_load(trainer, from, nullptr, &words, per_node) == 2, rank, words);
    dump(trainer, states.data());
    train(trainer, rank, nodes.ranks, 2, 2);
    dump(trainer, states.data() + count);
  }));
  loaded->assign(states.data(), states.data() + count);
  ended->assign(states.data() + count, states.data() + 2 * count);
}

bool same_bits(const States& a, const States& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(NodeFolders, EachNodeHasTheFilesOfItsRanksAndTheWorldLoadsThem) {
  const std::string int8 = R"j({"preset": "zero3", "optimizer": {"dtype": "int8"}})j";
  for (const std::string& plan : {std::string("zero0"), std::string("zero3"), int8,
                                  std::string("mics"), std::string("zeropp"), nvme_plan()}) {
    SCOPED_TRACE(plan);
    const Folder folder;
    const Nodes nodes = of_nodes(plan, MERON_BF16, 4, 2);
    States saved, ended, loaded, went_on;
    run_and_save(nodes, folder, &saved, &ended);
    for (int rank = 0; rank < 4; ++rank) {
      const std::string file = "/two/values-0000" + std::to_string(rank) + "-of-00004.safetensors";
      EXPECT_EQ(fs::exists(folder.path + "/disk0" + file), rank < 2) << file;
      EXPECT_EQ(fs::exists(folder.path + "/disk1" + file), rank >= 2) << file;
    }
    load_and_run(nodes, folder, &loaded, &went_on);
    EXPECT_TRUE(same_bits(saved, loaded));
    EXPECT_TRUE(same_bits(ended, went_on));
  }
}

TEST(NodeFolders, OtherNumbersOfNodesAndRanksLoadThem) {
  const Folder folder;
  const Nodes four = of_nodes("zero3", MERON_BF16, 4, 2);
  States saved, ended, loaded, went_on;
  run_and_save(four, folder, &saved, &ended);
  // Three nodes. The third has no files, and the first two swap folders.
  fs::rename(folder.path + "/disk0", folder.path + "/disk2");
  fs::rename(folder.path + "/disk1", folder.path + "/disk0");
  fs::rename(folder.path + "/disk2", folder.path + "/disk1");
  load_and_run(of_nodes("zero3", MERON_BF16, 3, 1), folder, &loaded, &went_on);
  EXPECT_TRUE(same_bits(saved, loaded));
  // One node that received the other's files too; and a load as of one folder.
  fs::copy(folder.path + "/disk1", folder.path + "/disk0",
           fs::copy_options::recursive | fs::copy_options::skip_existing);
  fs::remove_all(folder.path + "/disk1");
  load_and_run(of_nodes("zero1", MERON_BF16, 2, 2), folder, &loaded, &went_on);
  EXPECT_TRUE(same_bits(saved, loaded));
  load_and_run({{"zero2", MERON_BF16}, 3, 3}, folder, &loaded, &went_on, 0, folder.path + "/disk0");
  EXPECT_TRUE(same_bits(saved, loaded));
}

// A host died while the nodes gave the name: the next load takes the one before, and the next save
// takes the name.
TEST(NodeFolders, ACheckpointThatSomeNodesLackIsIncomplete) {
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  EXPECT_TRUE(run_world(world_of(nodes.way, 2), [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = folder_of(folder, nodes, rank);
    std::string words;
    train(trainer, rank, 2, 0, 1);
    require(try_save(trainer, own, "one", 1).empty(), rank, "one");
    train(trainer, rank, 2, 1, 1);
    require(try_save(trainer, own, "two", 2).empty(), rank, "two");
    if (rank == 1) fs::remove_all(own + "/two");
    require(try_load(trainer, own, nullptr, &words) == 1, rank, words);
    require(try_load(trainer, own, "two", &words) == 0, rank, words);
    require(words.find("'two'; two lacks the files of node 1") != words.npos, rank, words);
    words = try_save(trainer, own, "two", 2);
    require(words.empty(), rank, words);
    words = try_save(trainer, own, "two", 2);
    require(words.find("has the name already") != words.npos, rank, words);
    words = try_save(trainer, own, "two", 3, true, 1);
    require(words.empty(), rank, words);
    require(!fs::exists(own + "/one"), rank, "keep=1 left 'one'");
    require(try_load(trainer, own, nullptr, &words) == 3, rank, words);
  }));
}

// A checkpoint that is complete on one node, or that cannot be read, is replaced only on request.
TEST(NodeFolders, ANameThatIsCompleteOnOneNodeIsTaken) {
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  EXPECT_TRUE(run_world(world_of(nodes.way, 2), [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = folder_of(folder, nodes, rank);
    train(trainer, rank, 2, 0, 1);
    require(try_save(trainer, own, "one", 1).empty(), rank, "one");
    if (rank == 0) {
      fs::copy(folder.path + "/disk1", own,
               fs::copy_options::recursive | fs::copy_options::skip_existing);
      fs::remove_all(folder.path + "/disk1");
    }
    std::string words = try_save(trainer, own, "one", 2);
    require(words.find("has the name already") != words.npos, rank, words);
    std::string loaded;
    require(try_load(trainer, own, nullptr, &loaded) == 1, rank, loaded);
    if (rank == 0) fs::resize_file(own + "/one/meron.json", 10);
    require(try_load(trainer, own, "one", &loaded) == 0, rank, loaded);
    require(loaded.find("one in rank 0's folder: ") != loaded.npos, rank, loaded);
    words = try_save(trainer, own, "one", 2);
    require(words.find("has the name already") != words.npos, rank, words);
    words = try_save(trainer, own, "one", 3, true);
    require(words.empty(), rank, words);
  }));
}

TEST(NodeFolders, AFailureOfOneNodeIsThatOfAllAndLeavesNothing) {
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  EXPECT_TRUE(run_world(world_of(nodes.way, 2), [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = folder_of(folder, nodes, rank);
    std::string words;
    train(trainer, rank, 2, 0, 1);
    require(try_load(trainer, own, nullptr, &words) == 0, rank, words);
    require(words.find("have no complete checkpoint") != words.npos, rank, words);
    if (rank == 1) {
      fs::create_directories(own + "/one");
      std::fclose(std::fopen((own + "/one/mine").c_str(), "w"));
    }
    words = try_save(trainer, own, "one", 1);
    require(words.find("something that is no checkpoint has the name") != words.npos, rank, words);
    require(rank == 1 || words.find("rank 1") != words.npos, rank, words);
    require(rank == 1 || !fs::exists(own + "/one"), rank, "a node published alone");
    if (rank == 1) fs::remove_all(own + "/one");
    words = try_save(trainer, own, "one", 1);
    require(words.empty(), rank, words);
  }));
}

// All nodes but one have given the checkpoint its name when that one fails.
TEST(NodeFolders, AFailedRenameOnOneNodeLeavesTheFormerCheckpointOnAll) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  World world = world_of(nodes.way, 2);
  // A save renames its manifest, its directory, and if that succeeds the file `latest`.
  world.faults = "rename:5:EIO,rename:7:EIO";
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = folder_of(folder, nodes, rank);
    std::string words;
    const auto fail_to_save = [&](const std::string& name) {
      words = try_save(trainer, own, name, 2, true);
      require(words.find("EIO") != words.npos, rank, words);
      require(rank == 1 || words.find("rank 1") != words.npos, rank, words);
    };
    train(trainer, rank, 2, 0, 1);
    require(try_save(trainer, own, "last", 1).empty(), rank, "last");
    fail_to_save("last");
    require(try_load(trainer, own, "last", &words) == 1, rank, words);
    fail_to_save("new");
    require(!fs::exists(own + "/new"), rank, "a node kept 'new'");
    require(try_load(trainer, own, nullptr, &words) == 1, rank, words);
    require(try_save(trainer, own, "last", 3, true).empty(), rank, "last");
    require(try_load(trainer, own, nullptr, &words) == 3, rank, words);
  }));
}

// A node whose ranks own no element has a folder with a manifest alone. `params`: how many there
// are.
void save_and_load_few(int params) {
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  EXPECT_TRUE(run_world(world_of(nodes.way, 2), [&](int rank, meron_context context) {
    const std::string own = folder_of(folder, nodes, rank);
    if (params == 1) {
      const std::array<int64_t, 2> shape = {4, 3};
      meron_param_desc desc = MERON_PARAM_DESC_INIT;
      desc.name = "w";
      desc.shape = shape.data();
      desc.dims = 2;
      desc.dtype = MERON_F32;
      meron_param param{};
      CALL(meron_param_register, &param, context, &desc);
      meron_unit unit{};
      CALL(meron_unit_create, &unit, context, "layer", &param, 1);
    }
    meron_checkpoint_save_options saving = MERON_CHECKPOINT_SAVE_OPTIONS_INIT;
    saving.per_node = 1;
    saving.step = 7;
    meron_checkpoint_load_options loading = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
    loading.per_node = 1;
    std::string words = test::try_save(context, own, "one", saving);
    require(words.empty(), rank, words);
    for (const char* name : {static_cast<const char*>(nullptr), "one"}) {
      Loaded loaded;
      words = test::try_load(context, nullptr, own, name, loading, &loaded);
      require(loaded.step == 7, rank, words);
    }
    words = test::try_save(context, own, "one", saving);
    require(words.find("has the name already") != words.npos, rank, words);
    // Without the node that has all the files it is none.
    if (rank == 0 && params == 1) fs::remove_all(own + "/one");
    Loaded loaded;
    words = test::try_load(context, nullptr, own, nullptr, loading, &loaded);
    require(params == 0 || words.find("one lacks the files of node 0") != words.npos, rank, words);
  }));
  EXPECT_TRUE(fs::exists(folder.path + "/disk1/one/meron.json"));
  EXPECT_FALSE(fs::exists(folder.path + "/disk1/one/values-00001-of-00002.safetensors"));
}

TEST(NodeFolders, ANodeWithoutElementsHasNoFilesAndTheWorldLoads) {
  save_and_load_few(1);
}

TEST(NodeFolders, ACheckpointWithoutFilesLoads) {
  save_and_load_few(0);
}

// Text of the log, in the process of a rank.
std::string& told() {
  static std::string text;
  return text;
}

// The newest is damaged: a load takes the one before, and says so.
void load_past_a_damaged_one(bool per_node) {
  const Folder folder;
  const Nodes nodes = of_nodes("zero3", MERON_F32, 2, 1);
  World world = world_of(nodes.way, 2);
  world.log = [](void*, meron_log_level, const char* message, size_t) {
    told().append(message).append("\n");
  };
  EXPECT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, MERON_F32);
    const std::string own = per_node ? folder_of(folder, nodes, rank) : folder.path;
    for (const uint64_t step : {1, 2}) {
      train(trainer, rank, 2, static_cast<int>(step) - 1, 1);
      meron_checkpoint_save_options options = save_options(trainer, step);
      options.per_node = per_node ? 1 : 0;
      const std::string words =
          test::try_save(trainer, own, "step-" + std::to_string(step), options);
      require(words.empty(), rank, words);
    }
    if (rank == 1) fs::resize_file(own + "/step-2/values-00001-of-00002.safetensors", 10);
    std::string words;
    require(try_load(trainer, own, "step-1", &words, per_node) == 1, rank, words);
    require(told().find("passed over") == std::string::npos, rank, told());
    require(try_load(trainer, own, nullptr, &words, per_node) == 1, rank, words);
    train(trainer, rank, 2, 1, 1);  // a call of this rank logs the messages of the engine's threads
    const bool logged = told().find("step-1 was taken") != std::string::npos &&
                        told().find("passed over: step-2: ") != std::string::npos &&
                        told().find("the file has 10 bytes") != std::string::npos;
    require(logged == (rank == 0), rank, told());
  }));
}

TEST(NodeFolders, ALoadLogsWhichOnesItPassedOver) {
  load_past_a_damaged_one(true);
  load_past_a_damaged_one(false);
}

}  // namespace
}  // namespace meron::test

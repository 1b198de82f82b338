// SPDX-License-Identifier: Apache-2.0
// What a directory of checkpoints has, which of them is taken, and which are removed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <random>
#include <set>

#include "../os/child_process.h"
#include "checkpoint/prune.h"
#include "checkpoint/tensor_reader.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "os/file.h"
#include "saved.h"

namespace meron {
namespace {

namespace fs = std::filesystem;

using checkpoint::Entry;
using checkpoint::Manifest;

class CheckpointDirectory : public ::testing::Test {
 protected:
  void SetUp() override { MERON_NEED_DISK(directory_); }

  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }
  const std::string& root() const { return directory_.path(); }

  // A checkpoint of one small file, which is not looked into.
  void make(const std::string& name, uint64_t step, bool whole_state = true) const {
    Manifest manifest = test::make_manifest(name, step);
    manifest.complete = whole_state;
    test::add_file(manifest, "file", 5, {1});
    put(name, manifest);
  }
  void put(const std::string& name, const Manifest& manifest) const {
    fs::create_directories(at(name));
    for (const auto& file : manifest.files) {
      test::write_text(at(name) + "/" + file.name, std::string(file.bytes, 'x'));
    }
    test::write_text(at(name) + "/meron.json", checkpoint::to_json(manifest));
  }
  // The same with a history. Ids follow from names.
  void make_of_line(const std::string& name, const std::string& lineage, uint64_t step) {
    Manifest manifest = test::make_manifest(name, step);
    manifest.id = fmt::format("{:032x}", std::hash<std::string>()(name));
    manifest.origin.created = fmt::format("2026-11-25T09:00:{:02}Z", ++made_);
    test::add_file(manifest, "file", 5, {1});
    put(name, manifest);
    test::write_text(
        at(name) + "/history.json",
        checkpoint::to_json(checkpoint::History{
            .id = manifest.id, .parent = {}, .lineage = lineage, .step = step, .saved_ns = made_}));
  }
  std::vector<std::string> listed(std::optional<uint32_t> node = {}) const {
    std::vector<std::string> names;
    const auto entries = checkpoint::list(root(), node);
    EXPECT_TRUE(entries.ok());
    for (const Entry& entry : *entries) {
      names.push_back(entry.complete() ? entry.name : entry.name + " is incomplete");
    }
    return names;
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(root())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  test::DiskDirectory directory_;
  uint64_t made_ = 0;
};

TEST_F(CheckpointDirectory, IsListedNewestFirstWithoutWhatIsOfOthers) {
  make("b", 9);
  make("a", 10);
  make("weights", 11, false);
  make(".hidden", 12);
  make(".saving-x-01234567", 13);
  fs::create_directories(at("notes"));
  test::write_text(at("file"), "x");
  fs::create_symlink(at("a"), at("best"));
  EXPECT_EQ(listed(), (std::vector<std::string>{"weights", "a", "b"}));
  const auto entries = checkpoint::list(root());
  EXPECT_FALSE((*entries)[0].whole_state);
  EXPECT_EQ((*entries)[1].step, 10U);
  EXPECT_EQ((*entries)[1].bytes, 5U);
  EXPECT_EQ(checkpoint::list(at("none")).error().code(), MERON_E_NOT_FOUND);
}

TEST_F(CheckpointDirectory, OfEqualStepsTheLaterIsNewer) {
  Manifest manifest = test::make_manifest("a", 5);
  manifest.origin.created = "2026-11-25T08:00:01Z";
  put("a", manifest);
  manifest.name = "b";
  manifest.origin.created = "2026-11-25T08:00:00Z";
  put("b", manifest);
  EXPECT_EQ(listed(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(CheckpointDirectory, AnIncompleteCheckpointIsNamedWithItsReasonAndSkipped) {
  make("old", 1);
  for (const char* name : {"cut", "missing"}) make(name, 2);
  fs::resize_file(at("cut/file"), 4);
  fs::remove(at("missing/file"));
  const auto newest = checkpoint::newest_complete(root());
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->path, at("old"));
  EXPECT_EQ(newest->manifest.name, "old");
  ASSERT_EQ(newest->skipped.size(), 2U);
  const std::string words = checkpoint::words_of_skipped(*newest);
  EXPECT_THAT(words, testing::HasSubstr(at("old") + " was taken"));
  for (const auto& one : newest->skipped) {
    EXPECT_THAT(one.reason, testing::HasSubstr(at(one.name) + "/")) << one.reason;
    EXPECT_THAT(words, testing::HasSubstr(one.name + ": " + one.reason));
  }
  EXPECT_EQ(checkpoint::words_of_skipped(*checkpoint::resolve(root(), "old")), "");
  for (const char* name : {"cut", "missing"}) {
    EXPECT_EQ(checkpoint::resolve(root(), name).error().code(), MERON_E_CORRUPT) << name;
  }
  fs::remove_all(at("old"));
  const auto none = checkpoint::newest_complete(root());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), MERON_E_NOT_FOUND);
  EXPECT_THAT(none.error().info().what, testing::HasSubstr("missing was skipped: "));
}

// An older one in its place would be a surprise.
TEST_F(CheckpointDirectory, ADamagedCheckpointThatMayBeTheNewestIsAnError) {
  const struct {
    const char* name;
    meron_status code;
    std::function<void(const std::string&)> damage;
  } cases[] = {
      {"linked", MERON_E_CORRUPT,
       [&](const std::string& path) {
         fs::remove(path + "/file");
         fs::create_symlink(at("old/file"), path + "/file");
       }},
      {"longer", MERON_E_CORRUPT,
       [](const std::string& path) { test::write_text(path + "/file", "123456"); }},
      {"garbled", MERON_E_PARSE,
       [](const std::string& path) { test::write_text(path + "/meron.json", "{"); }},
      {"changed", MERON_E_CORRUPT,
       [](const std::string& path) {
         std::string text = *read_file(path + "/meron.json", 100'000);
         text.replace(text.find("\"step\": 2"), 9, "\"step\": 3");
         test::write_text(path + "/meron.json", text);
       }},
      {"of-a-newer-version", MERON_E_VERSION,
       [](const std::string& path) {
         std::string text = *read_file(path + "/meron.json", 100'000);
         text.replace(text.find("\"version\": 1"), 12, "\"version\": 3");
         test::write_text(path + "/meron.json", text);
       }},
  };
  make("old", 1);
  for (const auto& each : cases) {
    SCOPED_TRACE(each.name);
    make(each.name, 2);
    each.damage(at(each.name));
    const auto newest = checkpoint::newest_complete(root());
    ASSERT_FALSE(newest.ok());
    EXPECT_EQ(newest.error().code(), each.code);
    EXPECT_THAT(newest.error().info().what, testing::HasSubstr(each.name));
    EXPECT_THAT(newest.error().info().advice, testing::HasSubstr("by its name"));
    EXPECT_FALSE(checkpoint::resolve(root(), each.name).ok());
    EXPECT_TRUE(checkpoint::resolve(root(), "old").ok());
    EXPECT_EQ(listed(),
              (std::vector<std::string>{"old", std::string(each.name) + " is incomplete"}));
    fs::remove_all(at(each.name));
  }
}

TEST_F(CheckpointDirectory, ADamagedCheckpointThatIsOlderByItsHistoryDoesNotMatter) {
  make_of_line("a", "first", 1);
  make_of_line("b", "first", 2);
  test::write_text(at("a/meron.json"), "{");
  const auto newest = checkpoint::newest_complete(root());
  ASSERT_TRUE(newest.ok()) << newest.error().info().what;
  EXPECT_EQ(newest->manifest.name, "b");
  test::write_text(at("b/meron.json"), "{");
  EXPECT_EQ(checkpoint::newest_complete(root()).error().code(), MERON_E_PARSE);
}

// A run has gone back to step 2. The checkpoints that the first run saved later are not the newest.
TEST_F(CheckpointDirectory, TheLineThatWasSavedToLastComesFirst) {
  for (uint64_t step = 1; step <= 5; ++step) {
    make_of_line(fmt::format("step-{}", step), "first", step);
  }
  EXPECT_EQ(checkpoint::newest_complete(root())->other_run, "");
  make_of_line("second-3", "second", 3);
  auto newest = checkpoint::newest_complete(root());
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->manifest.name, "second-3");
  EXPECT_EQ(newest->history.lineage, "second");
  EXPECT_EQ(newest->other_run, "step-5");
  EXPECT_THAT(checkpoint::words_of_skipped(*newest), testing::HasSubstr("'step-5'"));
  EXPECT_EQ(listed(), (std::vector<std::string>{"second-3", "step-5", "step-4", "step-3", "step-2",
                                                "step-1"}));

  make_of_line("second-4", "second", 4);
  const auto removed = checkpoint::prune(root(), 1, {}, {}, {}, "second");
  ASSERT_TRUE(removed.ok());
  EXPECT_EQ(*removed, std::vector<std::string>{"second-3"});
  EXPECT_EQ(checkpoint::prune(root(), 1)->size(), 5U);
  EXPECT_EQ(listed(), std::vector<std::string>{"second-4"});
}

TEST_F(CheckpointDirectory, ANameThatReadersLookForIsRefusedForANewCheckpoint) {
  for (const char* name :
       {"meron.json", "zero_to_fp32.py", "zero_to_torch.py", "model.safetensors", "x.safetensors",
        "model.safetensors.index.json", "latest", "", ".x", "a/b"}) {
    EXPECT_EQ(checkpoint::check_new_name(name).error().code(), MERON_E_ARGUMENT) << name;
    EXPECT_FALSE(checkpoint::Saving::begin(root(), name).ok()) << name;
  }
  for (const char* name : {"meron.json.1", "safetensors", "step-1", "a b"}) {
    EXPECT_TRUE(checkpoint::check_new_name(name).ok()) << name;
  }
  // One that has such a name already is found all the same.
  make("meron.json", 3);
  EXPECT_EQ(checkpoint::resolve(root(), "")->manifest.step, 3U);
}

// Another save takes the name, or removes the checkpoint, after it was opened.
TEST_F(CheckpointDirectory, AReaderKeepsWhatItHasOpened) {
  const auto staging = test::make_staging();
  for (const bool removed : {false, true}) {
    SCOPED_TRACE(removed ? "removed" : "replaced");
    ASSERT_TRUE(test::save(staging, root(), "last", 1, true).ok());
    auto former = checkpoint::open_checkpoint(at("last"));
    ASSERT_TRUE(former.ok());
    checkpoint::TensorReader reader(*former), late(*checkpoint::open_checkpoint(at("last")));
    ASSERT_TRUE(reader.hold().ok());
    if (removed) {
      fs::remove_all(at("last"));
    } else {
      ASSERT_TRUE(test::save(staging, root(), "last", 2, true).ok());
      EXPECT_EQ(checkpoint::open_checkpoint(at("last"))->manifest.step, 2U);
    }
    EXPECT_FALSE(former->held->in_place());
    const checkpoint::Tensor& tensor = former->manifest.tensors.front();
    test::Content got(tensor.shape[0]);
    ASSERT_TRUE(reader.read("values", tensor.name, 0, got.size(), got.data(), got.size()).ok());
    const test::Content all = test::content_of(10, got.size() + 8);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + 8));
    // A reader that opens files too late gets an error that says why.
    const Status gone = late.hold();
    ASSERT_FALSE(gone.ok());
    EXPECT_EQ(gone.error().code(), MERON_E_NOT_FOUND);
    EXPECT_THAT(gone.error().info().what, testing::HasSubstr("replaced or removed"));
  }
}

// Every bit counts: also of a number that would be as good as another.
TEST_F(CheckpointDirectory, AManifestThatWasChangedIsRefused) {
  make("a", 12);
  const auto text = read_file(at("a/meron.json"), 100'000);
  ASSERT_TRUE(text.ok());
  for (const char* number : {"\"step\": 12", "T00:12:00Z"}) {
    std::string other = *text;
    const size_t place = other.find(number);
    ASSERT_NE(place, other.npos) << number;
    other[place + std::string(number).find("12")] = '3';
    test::write_text(at("a/meron.json"), other);
    const auto opened = checkpoint::open_checkpoint(at("a"));
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code(), MERON_E_CORRUPT);
    EXPECT_EQ(opened.error().info().subject, at("a/meron.json"));
  }
  for (const std::string& other : {text->substr(0, text->size() - 1), *text + "\n"}) {
    test::write_text(at("a/meron.json"), other);
    EXPECT_FALSE(checkpoint::open_checkpoint(at("a")).ok());
  }
  test::write_text(at("a/meron.json"), *text);
  EXPECT_TRUE(checkpoint::open_checkpoint(at("a")).ok());
}

TEST_F(CheckpointDirectory, AManifestThatIsALinkIsNone) {
  make("a", 1);
  fs::create_directories(at("b"));
  fs::create_symlink(at("a/meron.json"), at("b/meron.json"));
  EXPECT_EQ(listed(), (std::vector<std::string>{"a", "b is incomplete"}));
  EXPECT_EQ(checkpoint::resolve(root(), "b").error().code(), MERON_E_AUTH);
}

TEST_F(CheckpointDirectory, ANameIsResolved) {
  make("a", 1);
  make("b", 2);
  fs::create_directories(at("notes"));
  fs::create_symlink(at("a"), at("best"));
  const auto path_of = [&](const std::string& where, const std::string& name) {
    const auto found = checkpoint::resolve(where, name);
    return found.ok() ? found->path : test::text_of(found.error());
  };
  EXPECT_EQ(path_of(root(), "a"), at("a"));
  EXPECT_EQ(path_of(root(), ""), at("b"));
  EXPECT_EQ(path_of(at("a"), ""), at("a"));
  EXPECT_EQ(path_of(root(), "best"), at("best")) << "who names a link means it";
  const auto none = checkpoint::resolve(root(), "c");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), MERON_E_NOT_FOUND);
  EXPECT_THAT(none.error().info().advice, testing::HasSubstr("there are b, a"));
  EXPECT_EQ(checkpoint::resolve(root(), "notes").error().code(), MERON_E_NOT_FOUND);
  EXPECT_EQ(checkpoint::resolve(root(), "../a").error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(checkpoint::resolve(at("none"), "").error().code(), MERON_E_NOT_FOUND);
}

TEST_F(CheckpointDirectory, ACopyIsAsCompleteAsItsOriginal) {
  make("a", 1);
  fs::copy(at("a"), at("copy"), fs::copy_options::recursive);
  EXPECT_EQ(listed(), (std::vector<std::string>{"copy", "a"}));
}

TEST_F(CheckpointDirectory, OfNodesWithDisksOfTheirOwnEachHasItsFiles) {
  Manifest manifest = test::make_manifest("a", 1);
  manifest.origin.nodes = 2;
  for (uint32_t i = 0; i < 4; ++i) test::add_file(manifest, std::to_string(i), 5, {1}, i / 2);
  put("a", manifest);
  const std::vector<std::string> complete = {"a"}, incomplete = {"a is incomplete"};
  for (const std::optional<uint32_t> node : {std::optional<uint32_t>(), {0U}, {1U}}) {
    EXPECT_EQ(listed(node), complete) << "gathered in one place";
  }
  fs::remove(at("a/2"));
  EXPECT_EQ(listed(0), complete);
  EXPECT_EQ(listed(1), incomplete);
  EXPECT_EQ(listed(), incomplete) << "node 1 is there in part";
  fs::remove(at("a/3"));
  EXPECT_EQ(listed(0), complete);
  EXPECT_EQ(listed(1), incomplete);
  EXPECT_EQ(listed(), complete) << "node 0's";
  fs::resize_file(at("a/0"), 1);
  EXPECT_EQ(listed(), incomplete);
  fs::remove(at("a/0"));
  fs::remove(at("a/1"));
  EXPECT_EQ(listed(), incomplete);
}

TEST_F(CheckpointDirectory, IsPrunedToTheNewestAndWhatIsProtected) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 40; ++trial) {
    SCOPED_TRACE(fmt::format("seed {}, trial {}", seed, trial));
    std::vector<std::string> others = {"notes"};
    fs::create_directories(at("notes"));
    const size_t count = random() % 8;
    for (size_t i = 0; i < count; ++i) {
      const std::string name = fmt::format("step-{}", i);
      make(name, random() % 5, random() % 3 != 0);
      if (random() % 4 != 0) continue;
      fs::remove(at(name) + "/file");
      others.push_back(name);
    }
    const auto before = checkpoint::list(root());
    ASSERT_TRUE(before.ok());
    std::vector<std::string> protect;
    for (const Entry& entry : *before) {
      if (random() % 5 == 0) protect.push_back(entry.name);
    }
    const size_t keep = 1 + random() % 4;
    const auto removed = checkpoint::prune(root(), keep, protect);
    ASSERT_TRUE(removed.ok()) << test::text_of(removed.error());
    // The expected rest, computed in another way than by prune().
    std::set<std::string> expected(others.begin(), others.end());
    const Entry* newest_whole = nullptr;
    for (size_t i = 0; i < before->size() && (*before)[i].complete(); ++i) {
      const Entry& entry = (*before)[i];
      if (newest_whole == nullptr && entry.whole_state) newest_whole = &entry;
      if (i < keep || std::count(protect.begin(), protect.end(), entry.name) != 0) {
        expected.insert(entry.name);
      }
    }
    if (newest_whole != nullptr) expected.insert(newest_whole->name);
    EXPECT_EQ(names(), expected);
    // Oldest first.
    std::vector<std::string> order;
    for (auto entry = before->rbegin(); entry != before->rend(); ++entry) {
      if (expected.count(entry->name) == 0) order.push_back(entry->name);
    }
    EXPECT_EQ(*removed, order);
    for (const std::string& name : names()) fs::remove_all(at(name));
  }
}

TEST_F(CheckpointDirectory, PruningKeepsOneAtLeast) {
  EXPECT_EQ(checkpoint::prune(root(), 0).error().code(), MERON_E_ARGUMENT);
  make("a", 1);
  make("weights", 2, false);
  fs::create_symlink(at("a"), at("best"));
  const auto removed = checkpoint::prune(root(), 1);
  ASSERT_TRUE(removed.ok());
  EXPECT_TRUE(removed->empty()) << "the newest to go on from, and the newest";
}

TEST_F(CheckpointDirectory, AKilledOrFailedPruneLeavesNoneHalfRemoved) {
  if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  for (int k = 1;; ++k) {
    SCOPED_TRACE(k);
    ASSERT_LT(k, 100);
    for (uint64_t step = 1; step <= 4; ++step) make(fmt::format("step-{}", step), step);
    const int status = test::run_in_child([&] {
      CHILD_EXPECT(set_kill_point(fmt::format("*:{}", k)).ok());
      return checkpoint::prune(root(), 2).ok() ? 0 : 1;
    });
    ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
    const std::vector<std::string> left = listed();
    ASSERT_GE(left.size(), 2U);
    EXPECT_EQ(left[0], "step-4");
    EXPECT_EQ(left[1], "step-3");
    for (const std::string& name : left) EXPECT_THAT(name, testing::Not(testing::HasSubstr(" ")));
    for (const std::string& name : names()) fs::remove_all(at(name));
    if (status == 0) break;
  }
  for (const char* plan : {"rename:1:EIO", "rename:2:EIO", "fsync:1:EIO", "open:2:EIO"}) {
    for (uint64_t step = 1; step <= 4; ++step) make(fmt::format("step-{}", step), step);
    const test::Faults faults(plan);
    const auto removed = checkpoint::prune(root(), 2);
    for (const std::string& name : listed()) {
      EXPECT_THAT(name, testing::Not(testing::HasSubstr(" "))) << plan;
    }
    for (const std::string& name : names()) fs::remove_all(at(name));
  }
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A folder has the former model or the new one, whatever ends an export, and wherever.
#include "checkpoint/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <utility>

#include "../os/child_process.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/range_writer.h"
#include "checkpoint/source.h"
#include "checkpoint/tensor_reader.h"
#include "io/fault_plan.h"
#include "io/kill_point.h"
#include "saves.h"

namespace meron {
namespace {

namespace fs = std::filesystem;
using checkpoint::ModelExport;
using checkpoint::ModelLayout;
using checkpoint::ModelTensor;

// Several files where each tensor has its own, else one.
std::vector<ModelTensor> three_tensors() {
  return {{"a", "F32", {5}}, {"b", "BF16", {3, 3}}, {"c", "F32", {2, 2}}};
}

// Each tensor's bytes are `fill`.
Status export_filled(const std::string& folder, uint64_t most, unsigned fill) {
  MERON_ASSIGN(const auto model, ModelExport::begin(folder, true));
  uint32_t generation = 0;
  MERON_ASSIGN(const ModelLayout layout, model->lay_out(three_tensors(), most, &generation));
  MERON_TRY(model->make_files(layout));
  for (const auto& file : layout.files) {
    MERON_ASSIGN(auto to, checkpoint::RangeWriter::open(model->directory() + "/" + file.name));
    for (const auto& place : file.places) {
      const std::vector<std::byte> bytes(place.bytes, std::byte(fill));
      MERON_TRY(to.write(bytes, place.offset));
    }
    MERON_TRY(to.sync());
  }
  return model->publish(layout);
}

class ModelFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MERON_NEED_DISK(directory_);
    folder_ = directory_.path() + "/model";
  }
  // The byte that fills all tensors of the model that is there; 0: there is none, -1: a mix.
  int fill() const {
    auto found = checkpoint::open_source(folder_, "");
    if (!found.ok()) return found.error().code() == MERON_E_NOT_FOUND ? 0 : -1;
    checkpoint::TensorReader reader(*std::move(found));
    std::set<int> seen;
    for (const ModelTensor& tensor : three_tensors()) {
      uint64_t count = 1;
      for (const uint64_t size : tensor.shape) count *= size;
      std::vector<std::byte> bytes(count * checkpoint::element_bytes(tensor.dtype));
      if (!reader.read("values", tensor.name, 0, count, bytes.data(), bytes.size()).ok()) return -1;
      for (const std::byte byte : bytes) seen.insert(std::to_integer<int>(byte));
    }
    return seen.size() == 1 ? *seen.begin() : -1;
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  test::DiskDirectory directory_;
  std::string folder_;
};

constexpr uint64_t kOneFile = 1000, kThreeFiles = 1;
constexpr std::array<std::pair<uint64_t, uint64_t>, 4> kChanges = {{{kOneFile, kOneFile},
                                                                    {kOneFile, kThreeFiles},
                                                                    {kThreeFiles, kOneFile},
                                                                    {kThreeFiles, kThreeFiles}}};

// The folder has the files of that model, and no others.
void expect_only(const std::set<std::string>& names, uint64_t most) {
  EXPECT_EQ(names.size(), most == kOneFile ? 1U : 4U);
  EXPECT_EQ(names.count("model.safetensors"), most == kOneFile ? 1U : 0U);
  EXPECT_EQ(names.count("model.safetensors.index.json"), most == kOneFile ? 0U : 1U);
}

TEST_F(ModelFolderTest, ANewModelReplacesAllFilesOfTheFormer) {
  for (const auto& [before, after] : kChanges) {
    EXPECT_OK(export_filled(folder_, before, 1));
    EXPECT_EQ(fill(), 1);
    const std::set<std::string> former = names();
    EXPECT_OK(export_filled(folder_, after, 2));
    EXPECT_EQ(fill(), 2);
    expect_only(names(), after);
    // A reader that knows the former index must not find new files by it.
    if (before == kThreeFiles && after == kThreeFiles) {
      for (const std::string& name : names()) {
        EXPECT_TRUE(name == checkpoint::kHfIndexFile || former.count(name) == 0) << name;
      }
    }
    fs::remove_all(folder_);
  }
}

TEST_F(ModelFolderTest, AModelIsReplacedOnRequestOnly) {
  EXPECT_OK(export_filled(folder_, kThreeFiles, 1));
  const auto again = ModelExport::begin(folder_, false);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), MERON_E_DUPLICATE);
  EXPECT_EQ(fill(), 1);
  EXPECT_EQ(names().size(), 4U);
}

TEST_F(ModelFolderTest, TwoExportsAtATimeAreRefused) {
  const auto first = ModelExport::begin(folder_, true);
  ASSERT_TRUE(first.ok());
  const auto second = ModelExport::begin(folder_, true);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), MERON_E_STATE);
  EXPECT_THAT(second.error().info().what, testing::HasSubstr("process"));
}

TEST_F(ModelFolderTest, AnAbandonedExportLeavesNothing) {
  EXPECT_OK(export_filled(folder_, kOneFile, 1));
  {
    const auto model = ModelExport::begin(folder_, true);
    ASSERT_TRUE(model.ok());
    uint32_t generation = 0;
    EXPECT_OK((*model)->make_files(*(*model)->lay_out(three_tensors(), kThreeFiles, &generation)));
  }
  EXPECT_EQ(names(), std::set<std::string>{"model.safetensors"});
  EXPECT_EQ(fill(), 1);
}

TEST(ModelLayoutTest, FilesAreClosedBeforeTheyAreTooLarge) {
  const auto layout = checkpoint::lay_out_model(three_tensors(), 38);
  ASSERT_TRUE(layout.ok());
  ASSERT_EQ(layout->files.size(), 2U);  // 20 + 18, 16
  EXPECT_EQ(layout->files[0].places.size(), 2U);
  const auto index = checkpoint::parse_hf_index(layout->index);
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->total_bytes, 54U);
  EXPECT_EQ(index->files, (std::vector<std::string>{"model-00001-of-00002.safetensors",
                                                    "model-00002-of-00002.safetensors"}));
}

TEST(ModelLayoutTest, EachTensorBeginsAtAMultipleOfItsElement) {
  const auto layout = checkpoint::lay_out_model(
      std::vector<ModelTensor>{{"a", "BF16", {1}}, {"b", "F32", {1}}, {"c", "I64", {1}}}, 0);
  ASSERT_TRUE(layout.ok());
  for (const auto& place : layout->files[0].places) EXPECT_EQ(place.offset % place.bytes, 0U);
}

TEST(ModelLayoutTest, WhatAFileCannotHoldIsRefused) {
  for (const auto& tensors :
       std::vector<std::vector<ModelTensor>>{{},
                                             {{"a", "F32", {1}}, {"a", "F32", {1}}},
                                             {{"a", "F33", {1}}},
                                             {{"a", "F32", {1ULL << 40, 1ULL << 40}}},
                                             {{"__metadata__", "F32", {1}}}}) {
    const auto layout = checkpoint::lay_out_model(tensors, 0);
    ASSERT_FALSE(layout.ok());
    EXPECT_EQ(layout.error().code(), MERON_E_ARGUMENT);
  }
}

// Runs only if the build has fault points.
class FailingModelFolderTest : public ModelFolderTest {
 protected:
  void SetUp() override {
    ModelFolderTest::SetUp();
    if (!have_fault_points()) GTEST_SKIP() << "this build has no fault points";
  }
};

TEST_F(FailingModelFolderTest, AKillAnywhereLeavesTheFormerOrTheNewModel) {
  for (const auto& [before, after] : kChanges) {
    bool replaced = false;
    for (int k = 1;; ++k) {
      SCOPED_TRACE(fmt::format("{} to {}, kill {}", before, after, k));
      ASSERT_LT(k, 200);
      EXPECT_OK(export_filled(folder_, before, 1));
      test::write_text(folder_ + "/config.json", "mine");
      const int status = test::run_in_child([&, most = after] {
        CHILD_EXPECT(set_kill_point(fmt::format("*:{}", k)).ok());
        CHILD_EXPECT(export_filled(folder_, most, 2).ok());
        CHILD_EXPECT(kill_points_passed() < static_cast<uint64_t>(k));
        return 0;
      });
      ASSERT_TRUE(status == 0 || status == 1000 + SIGKILL) << status;
      const int found = fill();
      ASSERT_TRUE(found == 1 || found == 2) << found;
      EXPECT_TRUE(!replaced || found == 2) << "the new one was there at an earlier point";
      replaced = found == 2;
      // The next one removes what is left.
      EXPECT_OK(export_filled(folder_, kOneFile, 3));
      EXPECT_EQ(fill(), 3);
      EXPECT_EQ(names(), (std::set<std::string>{"config.json", "model.safetensors"}));
      fs::remove_all(folder_);
      if (status == 0) {
        EXPECT_TRUE(replaced);
        EXPECT_GT(k, 10) << "points were passed";
        break;
      }
    }
  }
}

TEST_F(FailingModelFolderTest, EveryFailingCallLeavesTheFormerOrTheNewModelAndNoOtherFile) {
  for (const auto& [before, after] : kChanges) {
    for (const char* call : {"mkdir", "open", "write", "fsync", "rename"}) {
      for (int n = 1;; ++n) {
        SCOPED_TRACE(fmt::format("{} to {}, {}:{}", before, after, call, n));
        ASSERT_LT(n, 100);
        EXPECT_OK(export_filled(folder_, before, 1));
        Status status = Ok{};
        {
          const test::Faults faults(fmt::format("{}:{}:ENOSPC", call, n));
          status = export_filled(folder_, after, 2);
        }
        if (!status.ok()) {
          EXPECT_EQ(status.error().code(), MERON_E_NO_SPACE);
          EXPECT_THAT(status.error().info().subject, testing::HasSubstr(folder_));
        }
        const int found = fill();
        EXPECT_TRUE(found == 2 || (found == 1 && !status.ok())) << found;
        expect_only(names(), found == 1 ? before : after);
        fs::remove_all(folder_);
        if (status.ok()) break;
      }
    }
  }
}

}  // namespace
}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// What can be opened: checkpoints, and models as Hugging Face publishes them.
#include "checkpoint/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "block_files.h"
#include "checkpoint/hf_index.h"
#include "checkpoint/hf_source.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_reader.h"
#include "some_manifest.h"

namespace meron::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::content_of;

class Sources : public test::OnDisk {
 protected:
  std::string at(const std::string& name) const { return directory_.path() + "/" + name; }

  // A file of F32 tensors of so many elements each, whose bytes follow from their names.
  static test::Content content(const std::string& tensor, uint64_t elements) {
    return content_of(std::hash<std::string>{}(tensor), elements * 4);
  }
  void write_model(const std::string& name,
                   const std::vector<std::pair<std::string, uint64_t>>& tensors) const {
    std::vector<SafetensorsEntry> entries;
    std::string data;
    for (const auto& [tensor, elements] : tensors) {
      const test::Content bytes = content(tensor, elements);
      entries.push_back({tensor, "F32", {elements}, data.size(), data.size() + bytes.size()});
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    const auto head = compose_safetensors(entries, {});
    ASSERT_TRUE(head.ok());
    test::write_text(at(name), *head + data);
  }
  void write_index(const std::vector<std::pair<std::string, std::string>>& map) const {
    HfIndex index;
    for (const auto& [tensor, file] : map) {
      auto known = std::find(index.files.begin(), index.files.end(), file);
      if (known == index.files.end()) known = index.files.insert(known, file);
      index.tensors.push_back({tensor, static_cast<uint32_t>(known - index.files.begin())});
    }
    test::write_text(at(std::string(kHfIndexFile)), to_json(index));
  }
  void expect_readable(const Checkpoint& checkpoint, const std::string& tensor,
                       uint64_t elements) const {
    TensorReader reader(checkpoint);
    const Tensor* const found = reader.find("values", tensor);
    ASSERT_NE(found, nullptr) << tensor;
    test::Content out(elements * 4);
    EXPECT_OK(reader.read("values", tensor, 0, elements, out.data(), out.size()));
    EXPECT_EQ(out, content(tensor, elements)) << tensor;
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, Sources, testing::Values(test::Backend::uring), test::name_of);

TEST_P(Sources, AModelOfOneFileOpensByItsDirectoryAndByItsFile) {
  write_model("model.safetensors", {{"a", 3}, {"none", 0}, {"b", 700'000}});
  for (const std::string& path : {directory_.path(), at("model.safetensors")}) {
    const auto opened = open_source(path, "");
    ASSERT_TRUE(opened.ok()) << opened.error().info().what;
    EXPECT_EQ(opened->path, path);
    EXPECT_EQ(opened->directory(), directory_.path());
    EXPECT_TRUE(opened->foreign);
    EXPECT_EQ(opened->manifest.tensors.size(), 3U);
    expect_readable(*opened, "a", 3);
    expect_readable(*opened, "none", 0);
    expect_readable(*opened, "b", 700'000);
    // Ranks receive it as text.
    const auto again = parse_manifest(to_json(opened->manifest), false);
    ASSERT_TRUE(again.ok()) << again.error().info().what;
    EXPECT_EQ(*again, opened->manifest);
    EXPECT_FALSE(parse_manifest(to_json(opened->manifest)).ok()) << "it has no checksums";
  }
}

TEST_P(Sources, ShardsMayBeLinksAsInACacheOfDownloads) {
  fs::create_directories(at("blobs"));
  fs::create_directories(at("snapshots/main"));
  write_model("blobs/0123", {{"a", 5}});
  write_model("blobs/4567", {{"b", 6}, {"c", 7}});
  fs::create_symlink("../../blobs/0123", at("snapshots/main/one.safetensors"));
  fs::create_symlink("../../blobs/4567", at("snapshots/main/two.safetensors"));
  write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}, {"c", "two.safetensors"}});
  fs::rename(at(std::string(kHfIndexFile)), at("blobs/89ab"));
  fs::create_symlink("../../blobs/89ab", at("snapshots/main/" + std::string(kHfIndexFile)));
  const auto opened = open_source(at("snapshots/main"), "");
  ASSERT_TRUE(opened.ok()) << opened.error().info().what;
  expect_readable(*opened, "a", 5);
  expect_readable(*opened, "c", 7);
}

TEST_P(Sources, CheckpointsNeverFollowLinks) {
  EXPECT_OK(test::save(test::make_staging(), directory_.path(), "one", 1));
  fs::rename(at("one/rank-0.safetensors"), at("elsewhere"));
  fs::create_symlink(at("elsewhere"), at("one/rank-0.safetensors"));
  expect_refused(open_source(at("one"), ""), MERON_E_CORRUPT, "no regular file");
}

TEST_P(Sources, CheckpointsComeBeforeModels) {
  write_model("model.safetensors", {{"a", 3}});
  EXPECT_OK(test::save(test::make_staging(), directory_.path(), "one", 1));
  auto opened = open_source(directory_.path(), "");
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->manifest.name, "one");
  fs::rename(at("model.safetensors"), at("one/model.safetensors"));
  opened = open_source(at("one"), "");
  ASSERT_TRUE(opened.ok());
  EXPECT_FALSE(opened->foreign);
  fs::remove(at("one/rank-0.safetensors"));
  expect_refused(open_source(at("one"), ""), MERON_E_CORRUPT, "not there");
  fs::rename(at("one/model.safetensors"), at("model.safetensors"));
  expect_refused(open_source(directory_.path(), ""), MERON_E_NOT_FOUND, "one was skipped");
}

TEST_P(Sources, AnIndexThatDoesNotFitItsFilesIsRefused) {
  write_model("one.safetensors", {{"a", 5}, {"x", 1}});
  write_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}});
  auto opened = open_source(directory_.path(), "");
  expect_refused(opened, MERON_E_NOT_FOUND, "places tensors in it");
  EXPECT_THAT(opened.error().info().subject, testing::EndsWith("/two.safetensors"));

  write_model("two.safetensors", {{"c", 5}});
  opened = open_source(directory_.path(), "");
  expect_refused(opened, MERON_E_CORRUPT, "lacks tensor \"b\"");
  EXPECT_THAT(opened.error().info().subject, testing::EndsWith("/two.safetensors"));

  write_model("two.safetensors", {{"b", 5}, {"a", 5}});
  expect_refused(open_source(directory_.path(), ""), MERON_E_CORRUPT, "has tensor \"a\"");
  write_model("two.safetensors", {{"b", 5}, {"x", 5}});
  expect_refused(open_source(directory_.path(), ""), MERON_E_CORRUPT, "has tensor \"x\"");
  write_model("two.safetensors", {{"b", 5}, {"y", 5}});
  opened = open_source(directory_.path(), "");
  ASSERT_TRUE(opened.ok()) << "a tensor that the index does not name is there all the same";
  EXPECT_EQ(opened->manifest.tensors.size(), 4U);

  test::write_text(at(std::string(kHfIndexFile)), R"({"weight_map": {"a": "../x.safetensors"}})");
  expect_refused(open_source(directory_.path(), ""), MERON_E_CORRUPT, "slash");
}

TEST_P(Sources, HeadersThatLieAreFoundBeforeMemoryIsSpent) {
  write_model("model.safetensors", {{"a", 5}});
  const uint64_t whole = fs::file_size(at("model.safetensors"));
  for (const uint64_t bytes : {whole - 1, uint64_t{100}, uint64_t{8}, uint64_t{7}, uint64_t{0}}) {
    fs::resize_file(at("model.safetensors"), bytes);
    const auto opened = open_source(directory_.path(), "");
    ASSERT_FALSE(opened.ok()) << bytes;
    EXPECT_EQ(opened.error().info().subject, at("model.safetensors")) << bytes;
  }
  test::write_text(at("model.safetensors"), "\xff\xff\xff\xff\xff\xff\xff\x7f{}");
  EXPECT_FALSE(open_source(directory_.path(), "").ok());
}

TEST_P(Sources, PicklesAreNamedWithWhatToDo) {
  test::write_text(at("pytorch_model.bin"), "x");
  expect_refused(open_source(directory_.path(), ""), MERON_E_NOT_FOUND, "pytorch_model.bin");
  const auto opened = open_source(at("pytorch_model.bin"), "");
  expect_refused(opened, MERON_E_ARGUMENT, "pickle");
  EXPECT_THAT(opened.error().info().advice, testing::HasSubstr("meron checkpoint import"));
  write_model("adapter.safetensors", {{"a", 5}});
  EXPECT_TRUE(open_source(directory_.path(), "").ok()) << "the only one";
  write_model("other.safetensors", {{"a", 5}});
  EXPECT_THAT(open_source(directory_.path(), "").error().info().advice,
              testing::HasSubstr("adapter.safetensors"));
  EXPECT_TRUE(open_source(at("adapter.safetensors"), "").ok());
  EXPECT_FALSE(open_source(at("none"), "").ok());
}

TEST_P(Sources, TheReaderReadsABlockOnceAndVerifiesIt) {
  EXPECT_OK(test::save(test::make_staging(), directory_.path(), "one", 1));
  const auto opened = open_source(directory_.path(), "one");
  ASSERT_TRUE(opened.ok());
  TensorReader reader(*opened);
  const std::string kName = "tensor-rank-0.safetensors";
  const Tensor* const tensor = reader.find("values", kName);
  ASSERT_NE(tensor, nullptr);
  const uint64_t elements = tensor->shape[0];
  const test::Content all = content_of(10, elements + 8);
  constexpr uint64_t kStep = 1000;
  for (uint64_t begin = 0; begin < elements; begin += kStep) {
    test::Content out(std::min(kStep, elements - begin));
    EXPECT_OK(reader.read("values", kName, begin, out.size(), out.data(), out.size()));
    ASSERT_TRUE(std::equal(out.begin(), out.end(), all.begin() + 8 + static_cast<long>(begin)));
  }
  EXPECT_EQ(reader.bytes_read(), test::file_sizes()[0]);

  test::Content out(elements);
  EXPECT_OK(reader.read("values", kName, 0, elements, out.data(), elements));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), all.begin() + 8));
  EXPECT_OK(reader.read("values", kName, elements, 0, nullptr, 0));
  EXPECT_EQ(reader.read("values", kName, elements, 1, out.data(), 1).error().code(),
            MERON_E_ARGUMENT);
  EXPECT_EQ(reader.read("values", kName, 0, 2, out.data(), 1).error().code(), MERON_E_ARGUMENT);
  EXPECT_EQ(reader.read("values", kName, 1, UINT64_MAX, out.data(), UINT64_MAX).error().code(),
            MERON_E_ARGUMENT);

  test::flip_bit(at("one/rank-0.safetensors"), test::kTestBlock + 5, 3);
  TensorReader anew(*opened);
  EXPECT_OK(anew.read("values", kName, 0, 100, out.data(), 100));
  const Status damaged = anew.read("values", kName, elements - 1, 1, out.data(), 1);
  ASSERT_FALSE(damaged.ok());
  EXPECT_EQ(damaged.error().code(), MERON_E_CORRUPT);
  EXPECT_THAT(damaged.error().info().what, testing::HasSubstr("tensor-rank-0"));
  EXPECT_EQ(damaged.error().info().subject, at("one/rank-0.safetensors"));
  EXPECT_OK(anew.read("values", kName, 5, 100, out.data(), 100));  // an error is not final
}

}  // namespace
}  // namespace meron::checkpoint

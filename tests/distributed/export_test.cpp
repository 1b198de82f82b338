// SPDX-License-Identifier: Apache-2.0
// Weights out: whatever the plan, the tier and the number of ranks, the files have the values, or
// the masters, of the model bit for bit.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/source.h"
#include "checkpoint/tensor_reader.h"
#include "tests/distributed/saved_worlds.h"

namespace meron::test {
namespace {

namespace fs = std::filesystem;

void export_as(meron_context context, const std::string& folder, bool keep, meron_dtype dtype) {
  meron_checkpoint_export_options options = MERON_CHECKPOINT_EXPORT_OPTIONS_INIT;
  options.keep_dtype = keep ? 1 : 0;
  options.dtype = dtype;
  options.max_file_bytes = 10'000;  // several files
  CALL(meron_checkpoint_export, context, folder.c_str(), &options);
}

// The f32 values that the optimizer updates, put together from the parts of all ranks.
void masters(Trainer& trainer, float* out) {
  for (size_t i = 0; i < kParams; out += trainer.descs[i].count(), ++i) {
    meron_param_info info{};
    info.struct_size = sizeof(info);
    CALL(meron_param_get_info, &info, trainer.params[i]);
    std::vector<float> part(info.shard_count + 1);
    CALL(meron_optimizer_read_state, part.data(), info.shard_count, trainer.optimizer,
         trainer.params[i], MERON_OPTIMIZER_STATE_MASTER);
    std::copy_n(part.begin(), info.shard_count, out + info.shard_offset);
  }
}

// All params of the model there, one after the other, as bytes.
std::vector<std::byte> exported(const std::string& folder, const std::string& dtype) {
  auto found = checkpoint::open_source(folder, "");
  EXPECT_TRUE(found.ok());
  checkpoint::TensorReader reader(*std::move(found));
  std::vector<std::byte> out;
  for (const TinyUnit& unit : tiny_units()) {
    for (const TinyParam& param : unit.params) {
      const checkpoint::Tensor* const tensor = reader.find("values", param.name);
      EXPECT_NE(tensor, nullptr);
      if (tensor == nullptr) return {};
      EXPECT_EQ(tensor->dtype, dtype);
      EXPECT_EQ(std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end()), param.shape);
      std::vector<std::byte> bytes(param.count() * checkpoint::element_bytes(dtype));
      EXPECT_TRUE(
          reader.read("values", param.name, 0, param.count(), bytes.data(), bytes.size()).ok());
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  }
  return out;
}

uint16_t rounded_to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

void expect_exported(const Way& way, int ranks) {
  const Folder folder;
  Shared<float> weights(weight_count()), master(weight_count());
  World world{way.transport, ranks, way.plan};
  if (way.node != 0) world.node = way.node;
  ASSERT_TRUE(run_world(world, [&](int rank, meron_context context) {
    Trainer trainer(context, way.dtype);
    train(trainer, rank, ranks, 0, 2);
    export_as(context, folder.path + "/own", true, MERON_F32);
    export_as(context, folder.path + "/f32", false, MERON_F32);
    export_as(context, folder.path + "/bf16", false, MERON_BF16);
    masters(trainer, master.data());
    std::vector<float> whole(weight_count());
    trainer.weights(whole.data());
    if (rank == 0) std::copy(whole.begin(), whole.end(), weights.data());
    export_as(context, folder.path + "/again", true, MERON_F32);  // the ranks continue
  }));
  std::vector<uint16_t> bf16;
  for (size_t i = 0; i < weight_count(); ++i) bf16.push_back(rounded_to_bf16(master[i]));
  const auto equal = [](const std::vector<std::byte>& a, const void* b) {
    return !a.empty() && std::memcmp(a.data(), b, a.size()) == 0;
  };
  EXPECT_TRUE(equal(exported(folder.path + "/f32", "F32"), master.data()));
  EXPECT_TRUE(equal(exported(folder.path + "/bf16", "BF16"), bf16.data()));
  const std::string own = way.dtype == MERON_F32 ? "F32" : "BF16";
  const std::vector<std::byte> kept = exported(folder.path + "/own", own);
  EXPECT_EQ(kept, exported(folder.path + "/again", own));
  std::vector<uint16_t> values;
  for (size_t i = 0; i < weight_count(); ++i) values.push_back(rounded_to_bf16(weights[i]));
  EXPECT_TRUE(way.dtype == MERON_F32 ? equal(kept, weights.data()) : equal(kept, values.data()));
}

TEST(ExportTest, EveryPlanExportsTheValuesOfAllRanks) {
  const std::string nvme =
      R"j({"preset": "zero3", "param": {"tier": "nvme"}, "optimizer": {"tier": "nvme"}, "nvme": {"path": ")j" +
      fs::current_path().string() + R"j("}})j";
  for (const Way& way : {Way{"zero0", MERON_BF16},
                         {"zero1"},
                         {"zero1", MERON_BF16},
                         {"zero3"},
                         {"zero3", MERON_BF16},
                         {nvme, MERON_BF16}}) {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(way.plan + ", ranks: " + std::to_string(ranks));
      expect_exported(way, ranks);
    }
  }
}

TEST(ExportTest, AMeshExportsEachValueOnce) {
  expect_exported({"mics", MERON_BF16, "cluster", 2}, 4);
}

}  // namespace
}  // namespace meron::test

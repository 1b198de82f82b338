// SPDX-License-Identifier: Apache-2.0
// Checkpoints through the C++ layer: what is saved is loaded, at another number of ranks too.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/capi/hpp/world.h"

namespace meron::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest()
      : folder((std::filesystem::temp_directory_path() /
                ("meron-hpp-" + std::to_string(::getpid()) + "-" +
                 testing::UnitTest::GetInstance()->current_test_info()->name()))
                   .string()) {
    std::filesystem::remove_all(folder);
  }
  ~CheckpointTest() override { std::filesystem::remove_all(folder); }
  const std::string folder;
};

struct Model {
  explicit Model(const Context& context)
      : weight(context.param("weight", {3, 5})),
        unit(context.unit("layer", weight)),
        optimizer(adamw(unit)) {}
  void fill(float value) const {
    Update writing = update(unit);
    for (float& x : writing.view(weight).as<float>()) x = value;
    writing.publish();
  }
  std::vector<float> values() const {
    const Gather full = gather(unit);
    const auto view = full.view(weight).as<const float>();
    return {view.begin(), view.end()};
  }
  Param weight;
  Unit unit;
  Optimizer optimizer;
};

TEST_F(CheckpointTest, LoadsAtAnotherNumberOfRanks) {
  run_ranks(2, [&](Context& context) {
    const Model model(context);
    model.fill(1.5F);
    model.optimizer.set_steps(7);
    SaveOptions options;
    options.step = 42;
    options.extra = R"({"epoch": 3})";
    const Future saving = save_checkpoint_begin(context, std::filesystem::path(folder), "step-42",
                                                model.optimizer, options);
    wait_copied(context);
    EXPECT_TRUE(wait_copied_for(context, std::chrono::nanoseconds(0)));
    saving.wait();
    EXPECT_EQ(0U, save_progress(context).saving);
  });

  const Context context = open_self();
  const Model model(context);
  const Checkpoint loaded = load_checkpoint(context, folder, nullptr, model.optimizer);
  EXPECT_THAT(model.values(), Each(1.5F));
  EXPECT_EQ(7U, model.optimizer.info().steps);
  EXPECT_EQ(42U, loaded.info().step);
  EXPECT_EQ(2U, loaded.info().world);
  EXPECT_EQ(folder + "/step-42", loaded.path());
  EXPECT_THAT(std::string(loaded.extra()), HasSubstr("epoch"));
  EXPECT_EQ("", loaded.missing());
  EXPECT_EQ("", loaded.unexpected());
}

TEST_F(CheckpointTest, RefusesWhatDoesNotFitAndChangesNothing) {
  const Context context = open_self();
  const Model model(context);
  model.fill(2.0F);
  save_checkpoint(context, folder, "a", {model.optimizer});
  expect_error(MERON_E_DUPLICATE, [&] { save_checkpoint(context, folder, "a"); });
  expect_error(MERON_E_ARGUMENT, [&] { save_checkpoint(context, folder, "a/b"); });
  expect_error(MERON_E_ARGUMENT, [&] { (void)load_checkpoint(context, folder); });
  expect_error(MERON_E_NOT_FOUND,
               [&] { (void)load_checkpoint(context, folder, "b", model.optimizer); });
  EXPECT_THAT(model.values(), Each(2.0F));
  LoadOptions values_only;
  values_only.values_only = true;
  (void)load_checkpoint(context, folder, "a", {}, values_only);
  EXPECT_THAT(model.values(), Each(2.0F));
}

TEST(CheckpointTensorTest, TakesTypeAndCountFromTheMemory) {
  const std::vector<int64_t> data{4, 5, 6};
  const CheckpointTensor tensor = checkpoint_tensor("rng", {2, 3}, data, 3);
  const meron_checkpoint_tensor raw = tensor.raw();
  EXPECT_STREQ("rng", raw.name);
  EXPECT_STREQ("I64", raw.dtype);
  EXPECT_EQ(nullptr, raw.kind);
  EXPECT_EQ(2U, raw.dims);
  EXPECT_THAT(std::vector<uint64_t>(raw.shape, raw.shape + raw.dims), ElementsAre(2, 3));
  EXPECT_EQ(3U, raw.begin);
  EXPECT_EQ(3U, raw.count);
  EXPECT_EQ(data.data(), raw.data);
}

}  // namespace
}  // namespace meron::test

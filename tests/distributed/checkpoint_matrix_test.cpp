// SPDX-License-Identifier: Apache-2.0
// Saves at N ranks, loads at M, for all N and M from 1 to 6 (1 to 3 under a sanitizer): every state
// has the same bits, and training continues with the bits of a run without interruption. For N !=
// M, every step has the same micro-batches, and the sum of the gradients is the same in any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/distributed/device_steps.h"
#include "tests/distributed/one_param.h"
#include "tests/distributed/sanitized.h"

namespace meron::test {
namespace {

constexpr int kMostRanks = kSanitized ? 3 : 6;
// Of a step. Ranks share them out; where they do not divide, a rank's last one is empty.
constexpr int kMicroBatches = 12;
constexpr int kSaved = 2;  // steps before the save

// The values that are equal at different world sizes.
enum class Alike : uint8_t {
  all,     // everything
  states,  // what is saved; values that are gathered and gradients pass a codec that cuts by ranks
};

struct Plan {
  const char* name;
  DeviceWay way;
  Alike alike = Alike::all;
};

// Ranks of a node: as many nodes as possible of more than one rank each, else of one.
int node_of(int ranks) {
  if (ranks == 4) return 2;
  return ranks == 6 ? 3 : 1;
}

// Multiples of 2^-9 of 7 bits: exact in bf16, as are the sums of any number of them here in f32.
void round_gradients(std::vector<std::vector<float>>& gradients) {
  for (auto& gradient : gradients) {
    for (float& value : gradient) {
      value = std::clamp(std::nearbyint(value * 512.0f), -127.0f, 127.0f) / 512.0f;
    }
  }
}

void clear_gradients(std::vector<std::vector<float>>& gradients) {
  for (auto& gradient : gradients) std::fill(gradient.begin(), gradient.end(), 0.0f);
}

meron_reduce_options reduce_options(bool last) {
  meron_reduce_options options = MERON_REDUCE_OPTIONS_INIT;
  options.op = MERON_REDUCE_OP_SUM;  // divided once, by the same number in every world
  options.divisor = kMicroBatches;
  options.boundary = last ? 1 : 0;
  return options;
}

void train_shared(const DeviceWay& way, Trainer& trainer, int rank, int ranks, int first,
                  int steps) {
  const std::unique_ptr<TrainersDevice> device =
      on_device(way) ? std::make_unique<TrainersDevice>(way.computes == Computes::on_own ? rank : 0)
                     : nullptr;
  for (int step = first; step < first + steps; ++step) {
    for (int first_of = 0; first_of < kMicroBatches; first_of += ranks) {
      const int k = first_of + rank;
      const auto index = static_cast<uint64_t>(step * kMicroBatches + k);
      const ChangeGradients change = k < kMicroBatches ? round_gradients : clear_gradients;
      const meron_reduce_options options = reduce_options(first_of + ranks >= kMicroBatches);
      if (device) {
        device_micro_batch(*device, trainer, index, options, change);
        continue;
      }
      auto gradients = trainer.zeros();
      (void)trainer.micro_batch(index, gradients);
      change(gradients);
      trainer.reduce(gradients, options, true);
    }
    trainer.step();
  }
}

std::string name_of(int ranks) {
  return "of" + std::to_string(ranks);
}

void save(const Trainer& trainer, const std::string& folder, int ranks) {
  const meron_checkpoint_save_options options = save_options(trainer, kSaved);
  meron_future future{};
  CALL(meron_checkpoint_save_begin, &future, trainer.context, folder.c_str(),
       name_of(ranks).c_str(), &options);
  finish(future);
}

void load(const Trainer& trainer, const std::string& folder, int from) {
  meron_checkpoint_load_options options = MERON_CHECKPOINT_LOAD_OPTIONS_INIT;
  options.optimizers = &trainer.optimizer;
  options.optimizer_count = 1;
  meron_checkpoint loaded{};
  CALL(meron_checkpoint_load, &loaded, trainer.context, folder.c_str(), name_of(from).c_str(),
       &options);
  CALL(meron_checkpoint_release, loaded);
}

// All states of a world where it saves or has loaded, a step later, and two steps later.
struct States {
  Shared<float> before{kStates * weight_count()}, next{kStates * weight_count()},
      last{kStates * weight_count()};
};

bool same(Shared<float>& a, Shared<float>& b, bool values) {
  const size_t from = values ? 0 : weight_count();
  return std::memcmp(a.data() + from, b.data() + from, (a.size() - from) * sizeof(float)) == 0;
}

class CheckpointMatrix : public testing::TestWithParam<Plan> {
 protected:
  DeviceWay way_at(int ranks) const {
    DeviceWay way = GetParam().way;
    if (std::strcmp(way.way.transport, "cluster") == 0) way.way.node = node_of(ranks);
    return way;
  }
  static void go_on(const DeviceWay& way, Trainer& trainer, int rank, int ranks, States& states,
                    bool twice = true) {
    dump(trainer, states.before.data());
    train_shared(way, trainer, rank, ranks, kSaved, 1);
    dump(trainer, states.next.data());
    if (!twice) return;
    train_shared(way, trainer, rank, ranks, kSaved + 1, 1);
    dump(trainer, states.last.data());
  }
  bool run_and_save(int ranks) {
    const DeviceWay way = way_at(ranks);
    return run_device_world(way, ranks, [&](int rank, meron_context context) {
      Trainer trainer(context, way.way.dtype);
      train_shared(way, trainer, rank, ranks, 0, kSaved);
      save(trainer, folder_.path, ranks);
      go_on(way, trainer, rank, ranks, saved_[ranks]);
    });
  }
  // One world that loads what each world has saved.
  bool load_and_run(int ranks) {
    const DeviceWay way = way_at(ranks);
    return run_device_world(way, ranks, [&](int rank, meron_context context) {
      Trainer trainer(context, way.way.dtype);
      for (int saver = 1; saver <= kMostRanks; ++saver) {
        load(trainer, folder_.path, saver);
        go_on(way, trainer, rank, ranks, loaded_[saver], saver == ranks);
      }
    });
  }
  void expect_same(int from, int to) {
    const bool all = GetParam().alike == Alike::all || from == to;
    EXPECT_TRUE(same(saved_[from].before, loaded_[from].before, all)) << from << " to " << to;
    if (!all) return;
    EXPECT_TRUE(same(saved_[from].next, loaded_[from].next, true)) << from << " to " << to;
    if (from != to) return;
    EXPECT_TRUE(same(saved_[from].last, loaded_[from].last, true)) << from;
  }

  const Folder folder_;
  std::array<States, kMostRanks + 1> saved_, loaded_;  // by the number of ranks that saved
};

TEST_P(CheckpointMatrix, EveryNumberOfRanksLoadsTheSavesOfEveryOther) {
  int pairs = 0;
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    ASSERT_TRUE(run_and_save(ranks)) << ranks;
    EXPECT_FALSE(same(saved_[ranks].before, saved_[ranks].next, true)) << "no step trains";
    if (GetParam().alike == Alike::all) {
      EXPECT_TRUE(same(saved_[1].last, saved_[ranks].last, true)) << ranks << " ranks train";
    }
  }
  for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
    ASSERT_TRUE(load_and_run(ranks)) << ranks;
    for (int saver = 1; saver <= kMostRanks; ++saver) {
      expect_same(saver, ranks);
      ++pairs;
    }
  }
  std::printf("%s: saved at 1 to %d ranks, loaded at 1 to %d: %d pairs\n", GetParam().name,
              kMostRanks, kMostRanks, pairs);
}

const char* const kInt8 = R"j({"preset": "zero3", "optimizer": {"dtype": "int8"}})j";
const char* const kBf16States = R"j({"preset": "zero2", "optimizer": {"dtype": "bf16"}})j";
const char* const kDeviceTiers = R"j({"preset": "zero3", "param": {"tier": "device"},
    "gradient": {"tier": "device"}, "optimizer": {"tier": "device"}})j";
const char* const kDeviceValues = R"j({"preset": "zero3", "param": {"tier": "device"}})j";

INSTANTIATE_TEST_SUITE_P(
    Plans, CheckpointMatrix,
    testing::Values(
        Plan{"zero0", {{"zero0"}, Computes::on_host}},
        Plan{"zero1", {{"zero1"}, Computes::on_host}},
        Plan{"zero2", {{"zero2"}, Computes::on_host}},
        Plan{"zero3", {{"zero3"}, Computes::on_host}},
        Plan{"int8_states", {{kInt8, MERON_BF16}, Computes::on_host}},
        Plan{"bf16_states", {{kBf16States}, Computes::on_host}},
        Plan{"nvme", {{nvme_plan(), MERON_BF16}, Computes::on_host}},
        Plan{"mics", {{"mics", MERON_BF16, "cluster"}, Computes::on_host}},
        Plan{"hpz", {{"hpz", MERON_BF16, "cluster"}, Computes::on_host}},
        Plan{"zeropp", {{"zeropp", MERON_BF16, "cluster"}, Computes::on_host}, Alike::states},
        Plan{"device", {{kDeviceTiers, MERON_BF16}, Computes::on_own}},
        Plan{"shared_device", {{kDeviceValues, MERON_BF16}, Computes::on_shared}}),
    [](const testing::TestParamInfo<Plan>& info) { return info.param.name; });

}  // namespace
}  // namespace meron::test

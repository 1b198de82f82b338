// SPDX-License-Identifier: Apache-2.0
#include "trainer.h"

#include <chrono>

#include "base/hash.h"

namespace meron::bench {

Trainer::Trainer(const std::string& plan, const Model& model, uint32_t threads) : model_(model) {
  meron_plan parsed = {0};
  expect(meron_plan_parse(&parsed, plan.data(), plan.size(), expect.error()));
  meron_context_options options = MERON_CONTEXT_OPTIONS_INIT;
  options.rank = 0;
  options.world_size = 1;
  options.transport = "self";
  options.threads = threads;
  options.plan = parsed;
  expect(meron_context_open(&context_, &options, expect.error()));
  expect(meron_plan_release(parsed, expect.error()));
  const int64_t shape[] = {static_cast<int64_t>(model.elements)};
  for (size_t u = 0; u < model.units; ++u) {
    const std::string name = "unit." + std::to_string(u);
    meron_param_desc desc = MERON_PARAM_DESC_INIT;
    desc.name = name.c_str();
    desc.shape = shape;
    desc.dims = 1;
    desc.dtype = MERON_BF16;
    meron_param param = {0};
    meron_unit unit = {0};
    expect(meron_param_register(&param, context_, &desc, expect.error()));
    expect(meron_unit_create(&unit, context_, name.c_str(), &param, 1, expect.error()));
    params_.push_back(param);
    units_.push_back(unit);
  }
  expect(
      meron_optimizer_create(&optimizer_, units_.data(), units_.size(), nullptr, expect.error()));
}

Trainer::~Trainer() {
  expect(meron_context_close(context_, expect.error()));
}

void Trainer::reduce() {
  std::vector<float> gradient(model_.elements);
  for (size_t u = 0; u < units_.size(); ++u) {
    for (float& value : gradient) {
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<float>(static_cast<int32_t>(random_ >> 32)) * 0x1p-38f;
    }
    const meron_source source = {params_[u], gradient.data(), gradient.size(), MERON_F32, 0};
    meron_future done = {0};
    expect(meron_reduce_begin(&done, units_[u], &source, 1, nullptr, expect.error()));
    wait_and_release(done);
  }
}

double Trainer::step() {
  const auto begin = std::chrono::steady_clock::now();
  meron_future done = {0};
  expect(meron_optimizer_step_begin(&done, optimizer_, expect.error()));
  wait_and_release(done);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

meron_stats Trainer::stats() const {
  meron_stats stats{};
  stats.struct_size = sizeof(stats);
  expect(meron_context_stats(&stats, context_, expect.error()));
  return stats;
}

uint64_t Trainer::checksum() {
  uint64_t sum = 0;
  for (size_t u = 0; u < units_.size(); ++u) {
    meron_future gather = {0};
    expect(meron_gather_begin(&gather, &units_[u], 1, nullptr, expect.error()));
    expect(meron_future_wait(gather, MERON_TIMEOUT_DEFAULT, expect.error()));
    meron_view view{};
    expect(meron_gather_view(&view, gather, params_[u], expect.error()));
    sum = hash_combine(
        sum, hash_text({static_cast<const char*>(view.data), view.count * sizeof(uint16_t)}));
    expect(meron_future_release(gather, expect.error()));
  }
  return sum;
}

}  // namespace meron::bench

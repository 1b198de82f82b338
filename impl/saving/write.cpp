// SPDX-License-Identifier: Apache-2.0
#include "saving/write.h"

#include <algorithm>
#include <utility>

#include "checkpoint/staging.h"
#include "io/io_engine.h"
#include "saving/saver.h"

namespace meron {
namespace {

// A world of one rank that has no units.
class SoloExchange final : public Exchange {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status broadcast(std::byte* /*data*/, uint64_t /*bytes*/, int /*root*/) override { return Ok{}; }
  Status gather(const std::byte* own, uint64_t bytes, std::byte* all) override {
    std::copy_n(own, bytes, all);
    return Ok{};
  }
  Status read(const UnitState& unit, const State& /*state*/, const Range& /*range*/,
              std::byte* /*out*/) override {
    return no_units(unit);
  }
  Status write(const UnitState& unit, const State& /*state*/, const Range& /*range*/,
               const std::byte* /*data*/) override {
    return no_units(unit);
  }

 private:
  static Status no_units(const UnitState& unit) {
    return Error(MERON_E_INTERNAL, "a unit without a context", "please report this defect")
        .on(unit.unit().name());
  }
};

}  // namespace

Status write_checkpoint(WriteOptions options) {
  SaveOptions saving;
  saving.target.root = std::move(options.root);
  saving.target.name = std::move(options.name);
  saving.step = options.step;
  saving.target.overwrite = options.overwrite;
  saving.plan = "{}";
  saving.tensors = std::move(options.tensors);
  saving.extra = std::move(options.extra);
  if (!options.optimizers.empty()) {
    MERON_ASSIGN(saving.optimizers, checkpoint::parse_optimizers(options.optimizers));
  }
  MERON_ASSIGN(auto engine, IoEngine::create());
  MERON_ASSIGN(const auto staging, checkpoint::Staging::create(std::move(engine)));
  SoloExchange exchange;
  return save(exchange, {}, saving, staging, [] {});
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// How the context makes optimizers and begins their steps, and what the plan predicts of both.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/hash.h"
#include "base/human_bytes.h"
#include "base/no_memory.h"
#include "engine/context.h"
#include "io/drive_error.h"
#include "optim/clip.h"

namespace meron {
namespace {

constexpr int64_t kTellEveryNs = kNanosPerSecond;

}  // namespace

Result<std::shared_ptr<Optimizer>> Context::create_optimizer(
    std::vector<std::shared_ptr<Unit>> units, const OptimizerOptions& options) {
  std::shared_ptr<Optimizer> optimizer;
  {
    // A save that copies them may keep an optimizer that was released.
    MERON_ASSIGN([[maybe_unused]] const Turn turn, turn_when_copied());
    auto held = lock();
    MERON_ASSIGN(optimizer, create_optimizer(held, std::move(units), options));
  }
  const uint64_t bytes = optimizer->nvme_bytes();
  const int64_t begun = now_ns();
  int64_t told = begun, moved = begun;
  std::pair<uint64_t, size_t> moved_so_far;
  while (true) {
    bool done = false;
    uint64_t written = 0;
    size_t units = 0;
    {
      auto held = lock();
      const Status open = check_open();
      Result<bool> prepared = open.ok() ? catch_no_memory([&] { return optimizer->prepare(); })
                                        : Result<bool>(open.error());
      if (!prepared.ok()) {
        // The last reference is dropped under the lock, because the destructor changes units.
        Error error = std::move(prepared).error();
        Channel& channel = optimizer->units().front()->channel();
        optimizer.reset();
        return channel.size() > 1 ? channel.fail(error) : error;
      }
      done = *prepared;
      written = optimizer->prepared_bytes();
      units = optimizer->prepared_units();
    }
    const int64_t now = now_ns();
    const std::pair<uint64_t, size_t> so_far(written, units);
    if (std::exchange(moved_so_far, so_far) != so_far) moved = now;
    if (!done && now - moved > rank_->timeout_ns) {
      auto held = lock();
      const Error error = drive_silent_error(rank_->plan.nvme.path, rank_->timeout_ns);
      Channel& channel = optimizer->units().front()->channel();
      optimizer.reset();
      return channel.size() > 1 ? channel.fail(error) : error;
    }
    if (bytes > 0 && (now - told > kTellEveryNs || (done && told != begun))) {
      told = now;
      const double seconds = static_cast<double>(now - begun) / kNanosPerSecond;
      options_.log(
          LogLevel::info,
          fmt::format("rank {} has written {:.0f} % of the {} of optimizer states to {}, "
                      "at {}/s",
                      transport_->rank(),
                      100.0 * static_cast<double>(written) / static_cast<double>(bytes),
                      human_bytes(bytes), rank_->plan.nvme.path,
                      human_bytes(static_cast<uint64_t>(static_cast<double>(written) / seconds))));
    }
    if (done) break;
    optimizer->wait_for_drive(kTellEveryNs);
  }
  if (rank_->drive.storage) {
    for (const std::string& notice : rank_->drive.storage->engine().take_notices()) {
      options_.log(LogLevel::warning, notice);
    }
  }
  return optimizer;
}

Result<std::shared_ptr<Optimizer>> Context::create_optimizer(
    Held& held, std::vector<std::shared_ptr<Unit>> units, const OptimizerOptions& options) {
  MERON_TRY(check_units(units));
  MERON_TRY(await_room(held, units.front()->channel()));
  MERON_TRY(validate(options));
  for (const auto& unit : units) {
    if (unit->has_optimizer) {
      return Error(MERON_E_DUPLICATE,
                   fmt::format("unit '{}' has an optimizer already", unit->name()),
                   "give each unit to one optimizer")
          .on(unit->name());
    }
    if (unit->state() == ValueState::updating) {
      return Error(MERON_E_STATE, fmt::format("unit '{}' is being updated", unit->name()),
                   "publish the update first")
          .on(unit->name());
    }
  }
  if (std::none_of(units.begin(), units.end(),
                   [](const auto& unit) { return unit->trainable(); })) {
    return Error(MERON_E_ARGUMENT, "none of the units has a trainable param",
                 "register params without `frozen` to train them");
  }
  std::erase_if(units, [](const auto& unit) { return !unit->trainable(); });
  Channel& channel = units.front()->channel();
  MERON_TRY(post_call(CallKind::create_optimizer, units, hash_of(options)));
  optimizer_states_ = states_of(options);
  auto optimizer = catch_no_memory([&] { return Optimizer::create(std::move(units), options); });
  if (!optimizer.ok() && channel.size() > 1) return channel.fail(std::move(optimizer).error());
  return optimizer;
}

Result<std::shared_ptr<StepOperation>> Context::step(Held& held,
                                                     const std::shared_ptr<Optimizer>& optimizer) {
  MERON_TRY(check_open());
  MERON_TRY(optimizer->units().front()->channel().usable());
  MERON_TRY(await_room(held, optimizer->units().front()->channel()));
  MERON_TRY(StepOperation::check(*optimizer));
  auto step = StepOperation::prepare(optimizer, rank_->deadline());
  pending_.make_room();
  MERON_ASSIGN(const uint64_t sequence,
               post_call(CallKind::step, optimizer->units(), optimizer->fingerprint()));
  step->begin(sequence);
  submit(held, step);
  return step;
}

Result<double> Context::clip(std::vector<std::shared_ptr<Unit>> units, double max_norm) {
  std::shared_ptr<ClipOperation> clip;
  {
    MERON_ASSIGN([[maybe_unused]] const Turn turn, this->turn());
    auto held = lock();
    MERON_TRY(check_units(units));
    MERON_TRY(await_room(held, units.front()->channel()));
    std::erase_if(units, [](const auto& unit) { return !unit->trainable(); });
    if (units.empty()) {
      return Error(MERON_E_ARGUMENT, "none of the units has a trainable param",
                   "give the units that were reduced");
    }
    MERON_TRY(ClipOperation::check(units));
    MERON_ASSIGN(clip, ClipOperation::prepare(units, max_norm, rank_->deadline()));
    pending_.make_room();
    MERON_ASSIGN(const uint64_t sequence,
                 post_call(CallKind::clip, units, mix(std::bit_cast<uint64_t>(max_norm))));
    clip->begin(sequence);
    submit(held, clip);
  }
  Result<bool> ended = wait(clip, -1);
  note_delivered(*clip, ended);
  MERON_TRY(std::move(ended));
  return clip->norm();
}

Result<RankPrediction> Context::predict(Held& /*held*/, Workload workload) {
  RankPrediction total;
  for (const Group& group : groups_) {
    if (!group.channel) continue;
    const Channel& channel = *group.channel;
    ModelDesc model;
    for (const auto& unit : units_) {
      if (&unit->channel() != &channel) continue;
      UnitDesc desc;
      desc.name = unit->name();
      for (const Flat& flat : unit->flats()) desc.flats.push_back(flat.desc);
      model.units.push_back(std::move(desc));
    }
    if (model.units.empty()) continue;
    workload.ranks = static_cast<uint32_t>(channel.size());
    workload.node = static_cast<uint32_t>(ranks_per_node(channel.members()));
    workload.optimizer_states = optimizer_states_;
    MERON_ASSIGN(const Prediction prediction, meron::predict(rank_->plan, model, workload));
    const RankPrediction& own = prediction.ranks[static_cast<size_t>(channel.index())];
    // One ring of buckets serves all groups; whole gradients have a bucket per unit.
    const uint64_t buckets = own.memory.gradient_buckets;
    total.memory.gradient_buckets = is_sharded(rank_->plan.gradient)
                                        ? std::max(total.memory.gradient_buckets, buckets)
                                        : total.memory.gradient_buckets + buckets;
    total.memory.param += own.memory.param;
    total.memory.secondary_partition += own.memory.secondary_partition;
    total.memory.reduced_gradient += own.memory.reduced_gradient;
    total.memory.feedback += own.memory.feedback;
    total.memory.moments += own.memory.moments;
    total.memory.master += own.memory.master;
    total.memory.state_buffers += own.memory.state_buffers;
    total.memory.param_buffers = std::max(total.memory.param_buffers, own.memory.param_buffers);
    total.nvme.optimizer += own.nvme.optimizer;
    total.nvme.param += own.nvme.param;
    total.nvme.read += own.nvme.read;
    total.nvme.written += own.nvme.written;
    total.device.param += own.device.param;
    total.device.gradient += own.device.gradient;
    total.device.optimizer += own.device.optimizer;
    total.links.gather_mapped += own.links.gather_mapped;
    total.links.gather_copied += own.links.gather_copied;
    total.links.reduce += own.links.reduce;
    total.links.inter_node_gather += own.links.inter_node_gather;
    total.links.inter_node_reduce += own.links.inter_node_reduce;
  }
  return total;
}

}  // namespace meron

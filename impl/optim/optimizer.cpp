// SPDX-License-Identifier: Apache-2.0
#include "optim/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "base/hash.h"

namespace meron {

Optimizer::Optimizer(std::vector<std::shared_ptr<Unit>> units, const OptimizerOptions& options)
    : rank_(units.front()->rank()),
      units_(std::move(units)),
      options_(options),
      groups_{options.group} {}

Optimizer::~Optimizer() {
  // Only where prepare() has failed, and the context with it.
  if (holds_values_) (void)units_[prepared_]->unlease().ok();
  for (const auto& unit : units_) {
    unit->has_optimizer = false;
    for (Flat& flat : unit->flats()) flat.master = nullptr;
  }
  const Recess recess;  // the drive is waited for, and much memory goes
  filling_.reset();
  file_.reset();
  parked_.reset();
  for (const Buffer& buffer : buffers_) rank_.arena().release(buffer);
}

Result<std::shared_ptr<Optimizer>> Optimizer::create(std::vector<std::shared_ptr<Unit>> units,
                                                     const OptimizerOptions& options) {
  std::shared_ptr<Optimizer> optimizer(new Optimizer(std::move(units), options));
  for (const auto& unit : optimizer->units_) unit->has_optimizer = true;
  MERON_TRY(optimizer->allocate_states());
  return optimizer;
}

Status Optimizer::allocate_states() {
  std::vector<StateFile::Region> regions;
  std::vector<size_t> unit_of;
  for (size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = *units_[u];
    auto& states = states_.emplace_back(unit.flats().size());
    for (size_t f = 0; f < unit.flats().size(); ++f) {
      if (!unit.flats()[f].desc.trainable) continue;
      states[f] = std::make_unique<FlatStates>(unit, f, options_);
      MERON_TRY(states[f]->allocate(buffers_));
      StateFile::Region region = states[f]->region();
      if (region.elements == 0 || region.shape.bytes(region.elements) == 0) continue;
      regions_.push_back(states[f].get());
      regions.push_back(std::move(region));
      unit_of.push_back(u);
    }
  }
  if (!regions.empty()) {
    MERON_ASSIGN(Storage* const storage, rank_.open_storage());
    MERON_ASSIGN(file_, StateFile::create(*storage, rank_.arena(), rank_.counters, rank_.plan,
                                          rank_.timeout_ns, std::move(regions)));
    for (size_t r = 0; r < regions_.size(); ++r) regions_[r]->set_file(*file_, r);
  }
  sub_groups_end_.assign(units_.size(), 0);
  for (size_t i = 0; file_ && i < file_->sub_groups().size(); ++i) {
    for (size_t u = unit_of[file_->sub_groups()[i].region]; u < units_.size(); ++u) {
      sub_groups_end_[u] = i + 1;
    }
  }
  return Ok{};
}

Result<bool> Optimizer::prepare() {
  if (file_ && !filling_) filling_ = std::make_unique<StatePass>(*file_, StatePass::Kind::fill);
  if (filling_) MERON_TRY(filling_->advance());
  for (; prepared_ < units_.size(); ++prepared_) {
    MERON_ASSIGN(const bool filled, fill_unit(prepared_));
    if (!filled) return false;
  }
  if (filling_ && !filling_->idle()) return false;
  filling_.reset();
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t f = 0; f < states_[u].size(); ++f) {
      if (!states_[u][f] || !states_[u][f]->shape().master) continue;
      units_[u]->flats()[f].master = states_[u][f].get();
    }
  }
  return true;
}

// A master begins with the values. If these are on nvme they are staged for it, one unit at a time.
Result<bool> Optimizer::fill_unit(size_t index) {
  Unit& unit = *units_[index];
  const bool needs_values =
      unit.stores() && !unit.updated_on_device() &&
      std::any_of(states_[index].begin(), states_[index].end(),
                  [](const auto& states) { return states && states->shape().master; });
  if (needs_values) {
    if (!std::exchange(holds_values_, true)) unit.lease();
    MERON_ASSIGN(const bool staged, unit.stage_own());
    if (!staged) return false;
  }
  while (filling_ && filling_->handed_out() < sub_groups_end_[index]) {
    std::byte* const records = filling_->front();
    if (records == nullptr) return false;
    const StateFile::SubGroup& group = filling_->sub_group();
    states_of(group).fill(group, records);
    filling_->pop();
    MERON_TRY(filling_->advance());
  }
  for (const auto& states : states_[index]) {
    if (states) MERON_TRY(states->fill_memory());
  }
  if (std::exchange(holds_values_, false)) MERON_TRY(unit.unlease());
  return true;
}

void Optimizer::wait_for_drive(int64_t timeout_ns) {
  if (holds_values_ && !units_[prepared_]->drive_text().empty()) {
    units_[prepared_]->wait_for_drive(timeout_ns);
  } else if (filling_) {
    filling_->wait(timeout_ns);
  }
}

uint64_t Optimizer::prepared_bytes() const {
  if (!filling_) return nvme_bytes();
  uint64_t bytes = 0;
  for (size_t i = 0; i < filling_->handed_out(); ++i) bytes += file_->sub_groups()[i].bytes;
  return bytes;
}

Status Optimizer::check_idle() const {
  if (stepping_) {
    return Error(MERON_E_STATE, "the optimizer is stepping", "wait for the step first");
  }
  if (offloaded()) {
    return Error(MERON_E_STATE, "the states of the optimizer are offloaded", "reload them first");
  }
  return Ok{};
}

Status Optimizer::offload(const std::string& folder) {
  MERON_TRY(check_idle());
  if (rank_.plan.optimizer.tier == Tier::device) {
    return Error(MERON_E_UNSUPPORTED, "the states of the optimizer reside on the device",
                 "only states on the host are offloaded: give the optimizer tier host");
  }
  MERON_ASSIGN(Storage* const storage, rank_.open_storage(folder));
  const auto write = [&] {
    const Recess recess;  // nothing but this call uses them: the optimizer is idle
    return ParkedBuffers::write(*storage, rank_.counters, rank_.timeout_ns, buffers_);
  };
  MERON_ASSIGN(parked_, write());
  for (const auto& unit : states_) {
    for (const auto& states : unit) {
      if (states) states->park();
    }
  }
  const std::vector<Buffer> gone = std::exchange(buffers_, {});
  const Recess recess;
  for (const Buffer& buffer : gone) rank_.arena().release(buffer);
  return Ok{};
}

Status Optimizer::reload() {
  if (!offloaded()) {
    return Error(MERON_E_STATE, "the states of the optimizer are not offloaded",
                 "offload them before");
  }
  std::vector<Buffer> buffers;
  const auto read_back = [&]() -> Status {
    for (const auto& unit : states_) {
      for (const auto& states : unit) {
        if (states) MERON_TRY(states->allocate(buffers));
      }
    }
    const Recess recess;
    return parked_->read(buffers);
  };
  if (Status read = read_back(); !read.ok()) {
    for (const auto& unit : states_) {
      for (const auto& states : unit) {
        if (states) states->park();
      }
    }
    if (read.error().code() == MERON_E_TIMEOUT) return read;
    const Recess recess;
    for (const Buffer& buffer : buffers) rank_.arena().release(buffer);
    return read;
  }
  buffers_ = std::move(buffers);
  parked_.reset();
  return Ok{};
}

Status Optimizer::check_trained(const Param& param) const {
  for (const auto& unit : units_) {
    if (unit.get() == param.unit && param.desc.trainable) return Ok{};
  }
  return Error(MERON_E_ARGUMENT,
               fmt::format("param '{}' is not trained by this optimizer", param.desc.name),
               "create the optimizer with the unit that has the param")
      .on(param.desc.name);
}

Result<uint32_t> Optimizer::add_group(const std::vector<const Param*>& params,
                                      const GroupOptions& options) {
  std::set<const Param*> given;
  for (const Param* param : params) {
    MERON_TRY(check_trained(*param));
    if (cohorts_.of(*param).group != 0 || !given.insert(param).second) {
      return Error(MERON_E_DUPLICATE,
                   fmt::format("param '{}' is in a group already", param->desc.name),
                   "give each param to one group")
          .on(param->desc.name);
    }
  }
  const auto index = static_cast<uint32_t>(groups_.size());
  for (const Param* param : params) {
    Cohort cohort = cohorts_.of(*param);
    cohort.group = index;
    cohorts_.set(*param, cohort);
    membership_ = hash_combine(membership_, hash_text(param->desc.name));
  }
  membership_ = hash_combine(membership_, index);
  groups_.push_back(options);
  index_cohorts();
  return index;
}

void Optimizer::set_steps(uint64_t steps) {
  steps_ = steps;
  cohorts_.catch_up();
  index_cohorts();
}

uint64_t Optimizer::steps_of(const Param& param) const {
  return steps_ - static_cast<uint64_t>(cohorts_.of(param).behind);
}

void Optimizer::set_param_steps(const std::map<const Param*, uint64_t>& steps) {
  for (const auto& [param, count] : steps) {
    Cohort cohort = cohorts_.of(*param);
    cohort.behind = static_cast<int64_t>(steps_ - count);
    cohorts_.set(*param, cohort);
  }
  if (!steps.empty()) index_cohorts();
}

void Optimizer::skip(const std::vector<const Param*>& params) {
  cohorts_.skip(params);
  index_cohorts();
}

void Optimizer::index_cohorts() {
  cohorts_.index();
  for (size_t u = 0; u < units_.size(); ++u) {
    for (size_t f = 0; f < states_[u].size(); ++f) {
      if (states_[u][f]) states_[u][f]->runs = cohorts_.runs(*units_[u], f);
    }
  }
}

uint64_t Optimizer::fingerprint() const {
  uint64_t hash = hash_combine(hash_combine(steps_, membership_), cohorts_.fingerprint());
  hash = hash_combine(hash, mix(std::bit_cast<uint64_t>(options_.max_norm)));
  for (const GroupOptions& group : groups_) hash = hash_combine(hash, hash_of(group));
  return hash;
}

Result<Optimizer::Place> Optimizer::place(const Param& param, OptimizerState which) {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].get() != param.unit) continue;
    FlatStates* const states = states_[u][param.place.flat].get();
    if (states == nullptr) break;
    const int index =
        which == OptimizerState::master ? FlatStates::kMaster : index_of(options_, which);
    if (which != OptimizerState::master && index < 0) {
      return Error(MERON_E_ARGUMENT,
                   fmt::format("{} keeps no {}", name_of(options_.rule),
                               which == OptimizerState::exp_avg ? "average of gradients"
                                                                : "average of their squares"),
                   "ask for a state that the rule has")
          .on(param.desc.name);
    }
    const Range part = part_of(param, states->flat().owned);
    return Place{states, index, param.place.offset + part.begin, part};
  }
  return check_trained(param).error();
}

FlatStates* Optimizer::states(const Unit& unit, size_t flat) const {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (units_[u].get() == &unit) return states_[u][flat].get();
  }
  return nullptr;
}

void Optimizer::count_step() {
  ++steps_;
  cohorts_.count_step();
}

CohortSteps Optimizer::next_step(const std::vector<GroupOptions>& groups, double clip) const {
  const uint64_t number = steps_ + 1;
  CohortSteps out;
  for (const Cohort& cohort : cohorts_.all()) {
    std::optional<kernels::UpdateStep>& step = out.emplace_back();
    if (cohort.skipped) continue;
    const GroupOptions& group = groups[cohort.group];
    const uint64_t count = number - static_cast<uint64_t>(cohort.behind);
    const auto t = static_cast<double>(count);
    step.emplace();
    step->rule = options_.rule;
    step->lr = group.learning_rate / (1.0 + (t - 1.0) * group.lr_decay);
    step->beta1 = group.beta1;
    step->beta2 = group.beta2;
    step->eps = group.epsilon;
    step->weight_decay = group.weight_decay;
    step->bias1 = 1.0 - std::pow(group.beta1, t);
    step->bias2 = 1.0 - std::pow(group.beta2, t);
    step->grad_scale = clip;
    step->nesterov = options_.nesterov;
    step->dampening = options_.dampening;
    step->first_step = count == 1;
    step->seed = number;
  }
  return out;
}

}  // namespace meron

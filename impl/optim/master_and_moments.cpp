// SPDX-License-Identifier: Apache-2.0
#include "optim/master_and_moments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "gradient/gradient.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/update_element.h"
#include "kernels/cpu/update_reference.h"
#include "optim/nonfinite.h"

namespace meron {
namespace {

kernels::StateType type_of(StateDType dtype) {
  switch (dtype) {
    case StateDType::f32:
      break;
    case StateDType::bf16:
      return kernels::StateType::bf16;
    case StateDType::int8:
      return kernels::StateType::int8;
  }
  return kernels::StateType::f32;
}

// A block of 8-bit states with elements of several groups. They share one scale, so the full block
// is decoded to f32, updated group by group, and encoded again.
class SharedBlock {
 public:
  SharedBlock(const StateView& view, uint32_t states, const kernels::UpdateStep& step,
              uint64_t first, uint64_t elements)
      : view_(view), states_(states), step_(step), first_(first), elements_(elements) {
    for (uint32_t s = 0; s < states_; ++s) {
      kernels::decode_states(kernels::StateType::int8, kind(s), values_[s].data(),
                             view_.states.data[s], view_.states.scales[s], elements_);
    }
  }

  // The f32 states from an element of the block on.
  kernels::States from(uint64_t element) {
    kernels::States states{.type = kernels::StateType::f32};
    for (uint32_t s = 0; s < states_; ++s) states.data[s] = values_[s].data() + (element - first_);
    return states;
  }

  void store() {
    const std::array<const float*, kMaxStates> from = {values_[0].data(), values_[1].data()};
    kernels::store_states_reference(step_, view_.states, from.data(), elements_, first_);
  }

 private:
  kernels::StateKind kind(uint32_t s) const { return kernels::state_kind(step_.rule, s); }

  const StateView view_;
  const uint32_t states_;
  const kernels::UpdateStep step_;
  const uint64_t first_, elements_;
  std::array<std::array<float, kBlock>, kMaxStates> values_{};
};

}  // namespace

StateView StateView::from(uint64_t elements) const {
  StateView later = *this;
  if (later.master != nullptr) later.master += elements;
  for (size_t s = 0; s < kMaxStates; ++s) {
    if (states.data[s] == nullptr) continue;
    later.states.data[s] =
        static_cast<std::byte*>(states.data[s]) + kernels::state_bytes(states.type, elements);
    if (states.scales[s] != nullptr) later.states.scales[s] += elements / kBlock;
  }
  return later;
}

FlatStates::FlatStates(Unit& unit, size_t flat, const OptimizerOptions& options)
    : unit_(unit),
      flat_(flat),
      rule_(options.rule),
      shape_(state_shape(unit.rank().plan, unit.flats()[flat].desc, states_of(options))),
      split_(split_states(unit.rank().plan, shape_, unit.flats()[flat].owned)) {
  runs.push_back({unit.flats()[flat].desc.elements, 0});
}

Status FlatStates::allocate(std::vector<Buffer>& buffers) {
  const uint64_t on_host = split_.host.size();
  const auto take = [&](uint64_t bytes, const char* what) -> Result<std::byte*> {
    const auto allocate = [&] {
      const Recess recess;  // for as long as the host takes to give the memory
      return unit_.rank().arena().allocate(bytes, MemoryKind::optimizer,
                                           fmt::format("{} of unit '{}'", what, unit_.name()));
    };
    MERON_ASSIGN(const Buffer buffer, allocate());
    buffers.push_back(buffer);
    return buffer.data;
  };
  parked_ = false;
  if (on_device()) {
    MERON_ASSIGN(device_, DeviceStates::create(unit_, flat_, shape_));
    return Ok{};
  }
  constexpr std::array kWhich = {"the first state", "the second state"};
  for (uint32_t s = 0; s < shape_.states; ++s) {
    const uint64_t bytes = state_bytes(shape_.dtype, on_host) + scale_bytes(shape_.dtype, on_host);
    MERON_ASSIGN(host_states_[s], take(bytes, kWhich[s]));
  }
  if (!shape_.master) return Ok{};
  MERON_ASSIGN(std::byte* const master, take(on_host * sizeof(float), "the master copy"));
  host_master_ = reinterpret_cast<float*>(master);
  return Ok{};
}

void FlatStates::park() {
  host_states_ = {};
  host_master_ = nullptr;
  parked_ = true;
}

StateFile::Region FlatStates::region() const {
  return {.shape = shape_,
          .elements = split_.nvme.size(),
          .name = fmt::format("the optimizer states of unit '{}'", unit_.name())};
}

Status FlatStates::fill_memory() {
  if (device_) return device_->fill();
  if (host_master_ == nullptr) return Ok{};
  const Recess recess(split_.host.size() >= kInlineElements);
  kernels::convert(host_master_, kernels::Type::f32, flat().own(split_.host.begin),
                   kernel_type(flat().desc.dtype), split_.host.size());
  note_values(host_master_, split_.host.size());
  return Ok{};
}

// The first step of f16 values has to know how large they are.
void FlatStates::note_values(const float* values, uint64_t count) {
  if (flat().desc.dtype != DType::f16 || on_device()) return;
  for (uint64_t i = 0; i < count; ++i) {
    largest_.value = std::max(largest_.value, kernels::magnitude_of(values[i]));
  }
}

void FlatStates::fill(const StateFile::SubGroup& group, std::byte* records) {
  const Recess recess;
  unit_.rank().threads.for_range(
      0, group.records(), 1, kInlineElements / kRecord, [&](int, uint64_t begin, uint64_t end) {
        for (uint64_t r = begin; r < end; ++r) {
          std::byte* const record = file_->record(group, r, records);
          const uint64_t elements = file_->record_elements(group, r);
          std::fill_n(record, shape_.bytes(elements), std::byte{0});
          if (shape_.master) {
            const uint64_t first = split_.nvme.begin + group.first + r * kRecord;
            kernels::convert(record, kernels::Type::f32, flat().own(first),
                             kernel_type(flat().desc.dtype), elements);
          }
          file_->seal(group, r, records);
        }
      });
}

StateView FlatStates::view_of(std::byte* record, uint64_t elements) const {
  StateView view;
  view.states.type = type_of(shape_.dtype);
  if (shape_.master) view.master = reinterpret_cast<float*>(record);
  for (uint32_t s = 0; s < shape_.states; ++s) {
    view.states.data[s] = record + shape_.state_offset(elements, s);
    if (shape_.dtype != StateDType::int8) continue;
    view.states.scales[s] = reinterpret_cast<float*>(record + shape_.scale_offset(elements, s));
  }
  return view;
}

StateView FlatStates::host_view() const {
  StateView view;
  view.states.type = type_of(shape_.dtype);
  view.master = host_master_;
  for (uint32_t s = 0; s < shape_.states; ++s) {
    view.states.data[s] = host_states_[s];
    if (shape_.dtype != StateDType::int8) continue;
    view.states.scales[s] =
        reinterpret_cast<float*>(host_states_[s] + state_bytes(shape_.dtype, split_.host.size()));
  }
  return view;
}

// Random bits differ by flat and step, and do not depend on how the flat is sharded.
uint64_t FlatStates::seed(uint64_t step_seed) const {
  return hash_combine(hash_combine(unit_.name_hash(), flat_), step_seed);
}

kernels::Largest FlatStates::update_range(const CohortSteps& steps, bool handed_over,
                                          const StateView& view, uint64_t begin, uint64_t end) {
  Flat& flat = this->flat();
  kernels::Largest largest;
  const float* const sum = unit_.gradient().memory().sum(flat_);
  const auto seeded = [&](kernels::UpdateStep step) {
    step.seed = seed(step.seed);
    return step;
  };
  const auto run = [&](const std::optional<kernels::UpdateStep>& numbers, const StateView& states,
                       uint64_t from, uint64_t to) {
    std::byte* const values = flat.own(from);
    if (!numbers) {
      // The memory of values that a drive keeps has nothing yet.
      if (states.master == nullptr) return;
      kernels::convert(values, kernel_type(flat.desc.dtype), states.master, kernels::Type::f32,
                       to - from);
      return;
    }
    float* const master =
        states.master != nullptr ? states.master : reinterpret_cast<float*>(values);
    largest.include(kernels::update(seeded(*numbers), master, sum + (from - flat.summed.begin),
                                    kernels::Type::f32, states.states,
                                    states.master != nullptr ? values : nullptr,
                                    kernel_type(flat.desc.dtype), to - from, from, handed_over));
  };
  auto cohort = std::partition_point(runs.begin(), runs.end(),
                                     [&](const CohortRun& each) { return each.end <= begin; });
  const bool blocked = shape_.dtype == StateDType::int8;
  for (uint64_t from = begin; from < end;) {
    uint64_t to = std::min(end, cohort->end);
    if (blocked && to < end) to = to / kBlock * kBlock;
    if (to > from) {
      run(steps[cohort->cohort], view.from(from - begin), from, to);
    } else {
      // The block has elements of this cohort and of those that follow.
      to = std::min(from + kBlock, end);
      const StateView at = view.from(from - begin);
      const auto updated = std::find_if(cohort, runs.end(), [&](const CohortRun& each) {
        return each.end >= to || steps[each.cohort].has_value();
      });
      std::optional<SharedBlock> block;
      if (steps[updated->cohort]) {
        block.emplace(at, shape_.states, seeded(*steps[updated->cohort]), from, to - from);
      }
      for (uint64_t i = from; i < to;) {
        const uint64_t until = std::min(to, cohort->end);
        run(steps[cohort->cohort],
            {.master = at.master == nullptr ? nullptr : at.master + (i - from),
             .states = block ? block->from(i) : kernels::States{}},
            i, until);
        i = until;
        if (i == cohort->end && i < to) ++cohort;
      }
      if (block) block->store();
    }
    from = to;
    while (from < end && from >= cohort->end) ++cohort;
  }
  return largest;
}

void FlatStates::update_host(const CohortSteps& steps, bool handed_over, const Range& range) {
  const StateView view = host_view();
  std::mutex mutex;
  kernels::Largest largest;  // guarded by mutex
  {
    const Recess recess(range.size() >= kInlineElements);
    unit_.rank().threads.for_range(
        range.begin, range.end, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
          const kernels::Largest some =
              update_range(steps, handed_over, view.from(begin - split_.host.begin), begin, end);
          const std::lock_guard lock(mutex);
          largest.include(some);
        });
  }
  const bool all =
      std::all_of(steps.begin(), steps.end(), [](const auto& s) { return s.has_value(); });
  if (all && range.begin == split_.host.begin) largest_ = {};
  largest_.include(largest);
}

kernels::Largest FlatStates::limits() const {
  constexpr uint32_t kF32 = 0x7f7fffff, kBf16 = 0x7f7f7fff, kF16 = 0x477fefff;
  const DType dtype = flat().desc.dtype;
  return {.value = dtype == DType::f16    ? kF16
                   : dtype == DType::bf16 ? kBf16
                                          : kF32,
          .state = kernels::largest_state_bits(type_of(shape_.dtype))};
}

bool FlatStates::may_overflow(const std::vector<GroupOptions>& groups, double gradient) const {
  const double room = 0x1p126;  // of f32's 2^128
  const auto value = static_cast<double>(std::bit_cast<float>(largest_.value));
  const auto state = static_cast<double>(std::bit_cast<float>(largest_.state));
  const double most = flat().desc.dtype == DType::f16 ? 0x1p15 : room;
  const bool squares = shape_.states > 0 &&
                       kernels::state_kind(rule_, shape_.states - 1) == kernels::StateKind::square;
  return std::any_of(groups.begin(), groups.end(), [&](const GroupOptions& group) {
    const double decayed = gradient + group.weight_decay * value;
    // With squares |m| / sqrt(v) is below 8 for the usual betas.
    const double next = state + (squares ? decayed * decayed : decayed);
    const double change = squares ? 16.0 : std::max(1.0, decayed + next);
    const double moved = value + group.learning_rate * (change + group.weight_decay * value);
    return !(next < room) || !(moved < most);
  });
}

Result<std::optional<Overflow>> FlatStates::find_overflow(const CohortSteps& steps) const {
  Flat& flat = this->flat();
  MERON_ASSIGN(const float* const sum, unit_.gradient().memory().show(flat_));
  const float* const values = shape_.master ? host_master_
                              : unit_.stores() || on_device() || flat.owned.size() == 0
                                  ? nullptr
                                  : reinterpret_cast<const float*>(flat.own(split_.host.begin));
  const StateView view = host_view();
  const kernels::Largest most = limits();
  const auto count = shape_.states;
  std::mutex mutex;
  std::optional<Overflow> first;  // guarded by mutex

  const auto try_run = [&](const kernels::UpdateStep& step, uint64_t begin, uint64_t end) {
    std::array<float, kBlock> p{};
    std::array<std::array<float, kBlock>, kMaxStates> s{};
    if (begin >= split_.host.begin && end <= split_.host.end) {
      const uint64_t block = (begin - split_.host.begin) / kBlock * kBlock;
      const StateView at = view.from(block);
      const uint64_t skip = begin - split_.host.begin - block;
      if (values != nullptr) std::copy_n(values + block + skip, end - begin, p.data());
      for (uint32_t k = 0; k < count; ++k) {
        std::array<float, kBlock> full;
        kernels::decode_states(at.states.type, kernels::state_kind(rule_, k), full.data(),
                               at.states.data[k], at.states.scales[k], skip + (end - begin));
        std::copy_n(full.data() + skip, end - begin, s[k].data());
      }
    }
    std::array<float, kBlock> copy;  // of the new values, as they would be stored
    const kernels::Largest largest =
        kernels::update(step, p.data(), sum + (begin - flat.summed.begin), kernels::Type::f32,
                        {.type = kernels::StateType::f32, .data = {s[0].data(), s[1].data()}},
                        copy.data(), kernel_type(flat.desc.dtype), end - begin, begin);
    if (largest.value <= most.value && largest.state <= most.state) return;
    for (uint64_t i = 0; i < end - begin; ++i) {
      const bool state = count > 0 && kernels::magnitude_of(s[count - 1][i]) > most.state;
      if (!state && kernels::magnitude_of(p[i]) <= most.value) continue;
      const std::lock_guard lock(mutex);
      const Overflow found{begin + i, !state};
      if (!first || found < *first) first = found;
      return;
    }
  };
  const Recess recess;
  unit_.rank().threads.for_range(
      flat.owned.begin, flat.owned.end, kBlock, 0, [&](int, uint64_t begin, uint64_t end) {
        auto run = std::partition_point(runs.begin(), runs.end(),
                                        [&](const CohortRun& each) { return each.end <= begin; });
        for (uint64_t from = begin; from < end;) {
          const uint64_t block = flat.owned.begin + (from - flat.owned.begin) / kBlock * kBlock;
          uint64_t to = std::min({end, block + kBlock, run->end});
          if (from < split_.host.end) to = std::min(to, split_.host.end);
          if (steps[run->cohort]) try_run(*steps[run->cohort], from, to);
          from = to;
          while (from < end && from >= run->end) ++run;
        }
      });
  return first;
}

Result<std::optional<uint64_t>> FlatStates::find_held_overflow() const {
  if (!on_device() || flat().desc.dtype != DType::f16) return std::optional<uint64_t>();
  return device_->find_overflow();
}

Error FlatStates::overflow_error(const StateView& view, uint64_t first, uint64_t count) const {
  const kernels::Largest most = limits();
  std::array<float, kBlock> values;
  NonFinitePlace place;
  for (uint64_t begin = 0; begin < count && place.unit == NonFinitePlace::kNone; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    const StateView at = view.from(begin);
    const auto look = [&](const float* from, uint32_t limit, NonFinitePlace::Kind kind) {
      const float* const end = from + size;
      const float* const found = std::find_if(
          from, end, [&](float value) { return !(kernels::magnitude_of(value) <= limit); });
      if (found == end) return;
      place = place_in(unit_, flat_, first + begin + static_cast<uint64_t>(found - from));
      place.unit = 0;
      place.kind = kind;
    };
    const float* const p = at.master != nullptr
                               ? at.master
                               : reinterpret_cast<const float*>(flat().own(first + begin));
    look(p, most.value, NonFinitePlace::Kind::value);
    for (uint32_t k = 0; k < shape_.states; ++k) {
      kernels::decode_states(at.states.type, kernels::state_kind(rule_, k), values.data(),
                             at.states.data[k], at.states.scales[k], size);
      look(values.data(), most.state, NonFinitePlace::Kind::state);
    }
  }
  return Error(MERON_E_NONFINITE,
               fmt::format("the update on nvme made {} infinite or NaN: {}",
                           place.kind == NonFinitePlace::Kind::value ? "a value" : "a state",
                           text_of(place, unit_, unit_.rank().transport.rank())),
               "load the last checkpoint, and lower the learning rate or clip the gradients");
}

Status FlatStates::update_on_device(const CohortSteps& steps) {
  std::vector<DeviceRun> updates;
  uint64_t begin = split_.device.begin;
  for (const CohortRun& run : runs) {
    const uint64_t end = std::min(run.end, split_.device.end);
    if (end <= begin) continue;
    if (std::optional<kernels::UpdateStep> step = steps[run.cohort]) {
      step->seed = seed(step->seed);
      updates.push_back({{begin, end}, *step});
    }
    begin = end;
  }
  return device_->update(updates);
}

Status FlatStates::update(const CohortSteps& steps, bool handed_over,
                          const StateFile::SubGroup& group, std::byte* records) {
  const kernels::Largest most = limits();
  std::mutex mutex;
  std::optional<Error> error;  // guarded by mutex
  // A record is short, but a sub-group is not, and its values are not read while it is updated.
  const bool past_caches = handed_over || (shape_.master && group.bytes >= kernels::kStreamBytes);
  const Recess recess;
  unit_.rank().threads.for_range(
      0, group.records(), 1, kInlineElements / kRecord, [&](int, uint64_t begin, uint64_t end) {
        for (uint64_t r = begin; r < end; ++r) {
          if (Status intact = file_->verify(group, r, records); !intact.ok()) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::move(intact).error();
            return;
          }
          const uint64_t elements = file_->record_elements(group, r);
          const uint64_t first = split_.nvme.begin + group.first + r * kRecord;
          const StateView view = view_of(file_->record(group, r, records), elements);
          const kernels::Largest largest =
              update_range(steps, past_caches, view, first, first + elements);
          file_->seal(group, r, records);
          if (largest.value <= most.value && largest.state <= most.state) continue;
          const std::lock_guard lock(mutex);
          if (!error) error = overflow_error(view, first, elements);
        }
      });
  if (error) return *std::move(error);
  return Ok{};
}

}  // namespace meron

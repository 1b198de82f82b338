// SPDX-License-Identifier: Apache-2.0
#include "optim/states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "gradient/gradient.h"
#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/update_reference.h"

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

// One block of 8-bit states that elements of several groups share: they have one scale, so it is
// read whole, updated group by group in f32, and written whole.
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
  const kernels::UpdateStep& step_;
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
      split_(split_states(unit.rank().plan, unit.flats()[flat].owned)) {
  groups.push_back({unit.flats()[flat].desc.elements, 0});
}

Status FlatStates::allocate(std::vector<Buffer>& buffers) {
  const uint64_t here = split_.host.size();
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
    const uint64_t bytes = state_bytes(shape_.dtype, here) + scale_bytes(shape_.dtype, here);
    MERON_ASSIGN(host_states_[s], take(bytes, kWhich[s]));
  }
  if (!shape_.master) return Ok{};
  MERON_ASSIGN(std::byte* const master, take(here * sizeof(float), "the master copy"));
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
  return Ok{};
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

// Random bits are another's in each flat and step, and the same however the flat is cut.
uint64_t FlatStates::seed(uint64_t step_seed) const {
  return hash_combine(hash_combine(unit_.name_hash(), flat_), step_seed);
}

void FlatStates::update_range(const std::vector<kernels::UpdateStep>& steps, bool handed_over,
                              const StateView& view, uint64_t begin, uint64_t end) {
  Flat& flat = this->flat();
  const float* const sum = unit_.gradient().memory().sum(flat_);
  const auto run = [&](const kernels::UpdateStep& numbers, const StateView& states, uint64_t from,
                       uint64_t to) {
    kernels::UpdateStep step = numbers;
    step.seed = seed(numbers.seed);
    std::byte* const values = flat.own(from);
    float* const master =
        states.master != nullptr ? states.master : reinterpret_cast<float*>(values);
    kernels::update(step, master, sum + (from - flat.summed.begin), kernels::Type::f32,
                    states.states, states.master != nullptr ? values : nullptr,
                    kernel_type(flat.desc.dtype), to - from, from, handed_over);
  };
  auto group = std::find_if(groups.begin(), groups.end(),
                            [&](const GroupRun& each) { return each.end > begin; });
  const bool blocked = shape_.dtype == StateDType::int8;
  for (uint64_t from = begin; from < end;) {
    uint64_t to = std::min(end, group->end);
    if (blocked && to < end) to = to / kBlock * kBlock;
    if (to > from) {
      run(steps[group->group], view.from(from - begin), from, to);
      from = to;
    } else {
      // The block has elements of this group and of those that follow.
      const uint64_t block_end = std::min(from + kBlock, end);
      const StateView at = view.from(from - begin);
      kernels::UpdateStep step = steps[group->group];
      step.seed = seed(step.seed);
      SharedBlock block(at, shape_.states, step, from, block_end - from);
      for (uint64_t i = from; i < block_end;) {
        const uint64_t until = std::min(block_end, group->end);
        StateView piece{.master = at.master == nullptr ? nullptr : at.master + (i - from),
                        .states = block.from(i)};
        run(steps[group->group], piece, i, until);
        i = until;
        if (i == group->end && i < block_end) ++group;
      }
      block.store();
      from = block_end;
    }
    while (from < end && from >= group->end) ++group;
  }
}

void FlatStates::update_host(const std::vector<kernels::UpdateStep>& steps, bool handed_over,
                             const Range& range) {
  const StateView view = host_view();
  const Recess recess(range.size() >= kInlineElements);
  unit_.rank().threads.for_range(
      range.begin, range.end, kBlock, kInlineElements, [&](int, uint64_t begin, uint64_t end) {
        update_range(steps, handed_over, view.from(begin - split_.host.begin), begin, end);
      });
}

Status FlatStates::update_on_device(const std::vector<kernels::UpdateStep>& steps) {
  std::vector<DeviceRun> runs;
  uint64_t begin = split_.device.begin;
  for (const GroupRun& group : groups) {
    const uint64_t end = std::min(group.end, split_.device.end);
    if (end <= begin) continue;
    kernels::UpdateStep step = steps[group.group];
    step.seed = seed(step.seed);
    runs.push_back({{begin, end}, step});
    begin = end;
  }
  return device_->update(runs);
}

Status FlatStates::update(const std::vector<kernels::UpdateStep>& steps, bool handed_over,
                          const StateFile::SubGroup& group, std::byte* records) {
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
          update_range(steps, past_caches, view_of(file_->record(group, r, records), elements),
                       first, first + elements);
          file_->seal(group, r, records);
        }
      });
  if (error) return *std::move(error);
  return Ok{};
}

// Pieces are what lies together in memory: of the elements [origin, end) that `view` shows, those
// in [from, to).
struct FlatStates::Piece {
  StateView view;
  uint64_t origin, end;
  uint64_t from, to;
};

// Copies one array between the device and the host, piece by piece. Device states have no block
// scales, so a write needs no read before it.
template <class Body>
Status FlatStates::for_pieces_on_device(int state, uint64_t first, uint64_t count, bool write,
                                        Body body) {
  constexpr uint64_t kPiece = 4096 * kBlock;
  const uint64_t last = first + count;
  std::vector<std::byte> record;
  for (uint64_t from = first; from < last;) {
    const uint64_t to = std::min(last, from + kPiece);
    record.resize(shape_.state_offset(to - from, shape_.states));
    if (!write) MERON_TRY(device_->read(state, {from, to}, record.data()));
    body(Piece{view_of(record.data(), to - from), from, to, from, to});
    if (write) MERON_TRY(device_->write(state, {from, to}, record.data()));
    from = to;
  }
  return Ok{};
}

template <class Body>
Status FlatStates::for_pieces(int state, uint64_t first, uint64_t count, bool write, Body body) {
  if (device_) return for_pieces_on_device(state, first, count, write, body);
  const uint64_t last = first + count;
  const Range& here = split_.host;
  if (first < here.end) {
    body(Piece{host_view(), here.begin, here.end, first, std::min(last, here.end)});
  }
  if (last <= here.end) return Ok{};
  const uint64_t away = std::max(first, here.end);
  return file_->visit(
      region_, away - here.end, last - away, write,
      [&](const StateFile::SubGroup& group, std::byte* records) {
        for (uint64_t r = 0; r < group.records(); ++r) {
          const uint64_t origin = here.end + group.first + r * kRecord;
          const uint64_t elements = file_->record_elements(group, r);
          const uint64_t from = std::max(away, origin);
          const uint64_t to = std::min(last, origin + elements);
          if (from >= to) continue;
          std::byte* const record = file_->record(group, r, records);
          body(Piece{view_of(record, elements), origin, origin + elements, from, to});
        }
      });
}

// Calls change(values, count, element) on the f32 values of a state block by block, and stores them
// where `write`.
template <class Change>
void FlatStates::for_blocks(const Piece& piece, uint32_t state, bool write, Change change) {
  const kernels::States& states = piece.view.states;
  const kernels::StateKind kind = kernels::state_kind(static_cast<kernels::Rule>(rule_), state);
  std::array<float, kBlock> values;
  for (uint64_t at = piece.origin + (piece.from - piece.origin) / kBlock * kBlock; at < piece.to;
       at += kBlock) {
    const StateView view = piece.view.from(at - piece.origin);
    const uint64_t elements = std::min(kBlock, piece.end - at);
    kernels::decode_states(states.type, kind, values.data(), view.states.data[state],
                           view.states.scales[state], elements);
    const uint64_t from = std::max(at, piece.from), to = std::min(at + elements, piece.to);
    change(values.data() + (from - at), to - from, from);
    if (!write) continue;
    kernels::encode_states(states.type, kind, view.states.data[state], view.states.scales[state],
                           values.data(), elements);
  }
}

Status FlatStates::read(int state, uint64_t first, uint64_t count, float* out) {
  if (state == kMaster && !shape_.master) {
    return unit_.use_values([&] { std::memcpy(out, flat().own(first), count * sizeof(float)); });
  }
  const Recess recess;  // nothing but this call uses them: the optimizer is idle
  return for_pieces(state, first, count, false, [&](const Piece& piece) {
    float* const to = out + (piece.from - first);
    if (state == kMaster) {
      std::memcpy(to, piece.view.master + (piece.from - piece.origin),
                  (piece.to - piece.from) * sizeof(float));
      return;
    }
    for_blocks(piece, static_cast<uint32_t>(state), false,
               [&](const float* values, uint64_t elements, uint64_t element) {
                 std::memcpy(out + (element - first), values, elements * sizeof(float));
               });
  });
}

Status FlatStates::write(int state, uint64_t first, uint64_t count, const float* values) {
  if (state == kMaster) {
    return put(first, reinterpret_cast<const std::byte*>(values), DType::f32, count);
  }
  const Recess recess;
  return for_pieces(state, first, count, true, [&](const Piece& piece) {
    for_blocks(piece, static_cast<uint32_t>(state), true,
               [&](float* old, uint64_t elements, uint64_t element) {
                 std::memcpy(old, values + (element - first), elements * sizeof(float));
               });
  });
}

Status FlatStates::put(uint64_t first, const std::byte* values, DType dtype, uint64_t count) {
  const Recess recess;
  return for_pieces(kMaster, first, count, true, [&](const Piece& piece) {
    kernels::convert(piece.view.master + (piece.from - piece.origin), kernels::Type::f32,
                     values + (piece.from - first) * size_of(dtype), kernel_type(dtype),
                     piece.to - piece.from);
  });
}

float* FlatStates::in_place(int state, uint64_t first, uint64_t count) {
  if (on_device()) return nullptr;
  if (first + count > split_.host.end) return nullptr;
  if (state == kMaster) {
    if (!shape_.master) {
      return flat().shard ? nullptr : reinterpret_cast<float*>(flat().own(first));
    }
    return host_master_ + (first - split_.host.begin);
  }
  if (shape_.dtype != StateDType::f32) return nullptr;
  return reinterpret_cast<float*>(host_states_[static_cast<size_t>(state)]) +
         (first - split_.host.begin);
}

}  // namespace meron

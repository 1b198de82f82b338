// SPDX-License-Identifier: Apache-2.0
// Reading and writing ranges of a flat's states on any tier, between steps.
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/accumulate.h"
#include "kernels/cpu/copy.h"
#include "optim/master_and_moments.h"

namespace meron {

// A piece is adjacent in memory: elements [from, to) of those, [origin, end), that `view` shows.
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
  const Range& host = split_.host;
  if (first < host.end) {
    body(Piece{host_view(), host.begin, host.end, first, std::min(last, host.end)});
  }
  if (last <= host.end) return Ok{};
  const uint64_t on_nvme = std::max(first, host.end);
  return file_->visit(
      region_, on_nvme - host.end, last - on_nvme, write,
      [&](const StateFile::SubGroup& group, std::byte* records) {
        for (uint64_t r = 0; r < group.records(); ++r) {
          const uint64_t origin = host.end + group.first + r * kRecord;
          const uint64_t elements = file_->record_elements(group, r);
          const uint64_t from = std::max(on_nvme, origin);
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
  const kernels::StateKind kind = kernels::state_kind(rule_, state);
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
  const Recess recess;  // the optimizer is idle, so only this call uses the states
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
    float* const master = piece.view.master + (piece.from - piece.origin);
    kernels::convert(master, kernels::Type::f32, values + (piece.from - first) * size_of(dtype),
                     kernel_type(dtype), piece.to - piece.from);
    note_values(master, piece.to - piece.from);
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

const float* FlatStates::readable_master(uint64_t first) const {
  Flat& flat = this->flat();
  const std::byte* const values = flat.coded() ? unit_.rank().arena().readable(flat.own(first))
                                               : flat.values + first * sizeof(float);
  return reinterpret_cast<const float*>(values);
}

}  // namespace meron

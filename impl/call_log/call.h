// SPDX-License-Identifier: Apache-2.0
// A collective call: its kinds, what ranks compare of it, and its record in the segment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace meron {

enum class CallKind : uint32_t {
  open = 1,
  register_param,
  create_unit,
  create_group,
  create_optimizer,
  gather,
  reduce,
  update,
  step,
  barrier,
  broadcast,
  all_reduce,
  create_schedule,
  finish,
  destroy_unit,
  save,
  load,
  agree,
  export_model,
  clip,
};
std::string_view name_of(CallKind kind);

// A call's values that must be equal on all ranks, as the flight recorder keeps them.
struct Call {
  CallKind kind;
  std::string_view subject;  // tensor, unit; cut to 87 bytes in messages
  uint64_t bytes = 0;
  uint64_t detail = 0;  // a hash of everything else that must be equal
};

// One collective call, as the flight recorder shows it and peers check it.
struct CallRecord {
  uint64_t sequence = 0;     // 1, 2, ... per group
  uint64_t fingerprint = 0;  // of everything that must be equal on all ranks
  uint64_t bytes = 0;
  int64_t begun_ns = 0;  // monotonic clock
  uint32_t operation = 0;
  uint32_t reserved = 0;
  char subject[88] = {};  // NUL-terminated, cut
};
static_assert(sizeof(CallRecord) == 128);

// Stored as words, the sequence first, and loaded with the sequence last: a record of a posted call
// that has that call's sequence is all of that call, also if the slot is being overwritten.
class CallSlot {
 public:
  void store(const CallRecord& record);
  CallRecord load() const;
  uint64_t fingerprint() const { return words_[1].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, sizeof(CallRecord) / 8> words_{};
};

// "gather of 'layer.3' (64 bytes)", for messages.
std::string call_text(const CallRecord& record);

}  // namespace meron

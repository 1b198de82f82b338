// SPDX-License-Identifier: Apache-2.0
#include "call_log/call.h"

#include <fmt/format.h>

#include <bit>

namespace meron {

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::open:
      return "context_open";
    case CallKind::register_param:
      return "param_register";
    case CallKind::create_unit:
      return "unit_create";
    case CallKind::create_group:
      return "group_create";
    case CallKind::create_optimizer:
      return "optimizer_create";
    case CallKind::gather:
      return "gather";
    case CallKind::reduce:
      return "reduce";
    case CallKind::update:
      return "update";
    case CallKind::step:
      return "optimizer_step";
    case CallKind::barrier:
      return "barrier";
    case CallKind::broadcast:
      return "broadcast";
    case CallKind::all_reduce:
      return "all_reduce";
    case CallKind::create_schedule:
      return "schedule_create";
    case CallKind::finish:
      return "reduce_finish";
    case CallKind::destroy_unit:
      return "unit_destroy";
    case CallKind::save:
      return "checkpoint_save";
    case CallKind::load:
      return "checkpoint_load";
    case CallKind::export_model:
      return "checkpoint_export";
    case CallKind::clip:
      return "gradient_clip";
    case CallKind::agree:
      return "agreement";
  }
  return "call";
}

void CallSlot::store(const CallRecord& record) {
  const auto words = std::bit_cast<std::array<uint64_t, sizeof(CallRecord) / 8>>(record);
  for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_release);
}

CallRecord CallSlot::load() const {
  std::array<uint64_t, sizeof(CallRecord) / 8> words;
  for (size_t i = words.size(); i-- > 0;) words[i] = words_[i].load(std::memory_order_acquire);
  CallRecord record = std::bit_cast<CallRecord>(words);
  record.subject[sizeof(record.subject) - 1] = '\0';
  return record;
}

std::string call_text(const CallRecord& record) {
  std::string text(name_of(static_cast<CallKind>(record.operation)));
  if (record.subject[0] != '\0') text += fmt::format(" of '{}'", record.subject);
  if (record.bytes != 0) text += fmt::format(" ({} bytes)", record.bytes);
  return text;
}

}  // namespace meron

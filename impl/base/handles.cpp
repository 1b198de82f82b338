// SPDX-License-Identifier: Apache-2.0
#include "base/handles.h"

#include <fmt/format.h>

namespace meron {
namespace {

constexpr uint64_t make_id(Kind kind, uint32_t generation, uint32_t slot) {
  return static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(generation) << 24 | slot;
}
constexpr uint32_t slot_of(uint64_t id) {
  return static_cast<uint32_t>(id & 0xffffff);
}

std::string with_article(std::string_view noun) {
  const bool vowel = std::string_view("aeio").find(noun.front()) != std::string_view::npos;
  return fmt::format("{} {}", vowel || noun == "update" ? "an" : "a", noun);
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::context:
      return "context";
    case Kind::group:
      return "group";
    case Kind::plan:
      return "plan";
    case Kind::param:
      return "param";
    case Kind::unit:
      return "unit";
    case Kind::gather:
      return "gather";
    case Kind::future:
      return "future";
    case Kind::update:
      return "update";
    case Kind::optimizer:
      return "optimizer";
    case Kind::schedule:
      return "schedule";
    case Kind::io:
      return "io";
    case Kind::io_request:
      return "io request";
    case Kind::io_buffer:
      return "io buffer";
    case Kind::checkpoint:
      return "checkpoint";
  }
  return "";
}

HandleTable& HandleTable::instance() {
  static HandleTable* table = new HandleTable;
  return *table;
}

Error HandleTable::gone(Kind kind) {
  if (kind == Kind::io) {
    return Error(MERON_E_STALE, "the io was closed", "do not use a handle after its close");
  }
  return Error(MERON_E_STALE,
               fmt::format("the {} was released, or its context was closed", name_of(kind)),
               "do not use a handle after its release");
}

Error HandleTable::no_handle(uint64_t id, Kind kind, bool issued) {
  const std::string advice =
      fmt::format("pass the {} that its create function handed out", name_of(kind));
  if (id == 0) return Error(MERON_E_HANDLE, fmt::format("the {} is null", name_of(kind)), advice);
  const std::string_view given = name_of(kind_of(id));
  if (given.empty() || !issued) {
    return Error(MERON_E_HANDLE,
                 fmt::format("{:#018x} is no handle that this process handed out", id), advice);
  }
  return Error(MERON_E_HANDLE,
               fmt::format("the handle is {} where {} is needed", with_article(given),
                           with_article(name_of(kind))),
               "look at the order of the arguments");
}

HandleTable::Slot& HandleTable::slot_at(uint32_t index) {
  return chunks_[index / kChunk].load(std::memory_order_acquire)[index % kChunk];
}

void HandleTable::free(uint32_t index) noexcept {
  const std::lock_guard lock(mutex_);
  if (free_count_++ == 0) {
    first_free_ = index;
  } else {
    slot_at(last_free_).next_free = index;
  }
  last_free_ = index;
}

Result<HandleTable::Room> HandleTable::reserve() {
  const std::lock_guard lock(mutex_);
  // Some free slots rest before they are used again, which makes generations last.
  if (free_count_ > kChunk / 2) {
    const uint32_t index = first_free_;
    first_free_ = slot_at(index).next_free;
    --free_count_;
    return Room(index);
  }
  const uint32_t index = used_.load(std::memory_order_relaxed);
  if (index >= kChunk * kChunks) {
    return Error(MERON_E_NO_MEMORY, "16,777,216 handles are in use",
                 "release handles that are not needed");
  }
  if (index % kChunk == 0) chunks_[index / kChunk].store(new Slot[kChunk]);
  used_.store(index + 1, std::memory_order_release);
  return Room(index);
}

HandleTable::Room::~Room() {
  if (index_ != kNone) instance().free(index_);
}

uint64_t HandleTable::Room::issue(std::shared_ptr<Object> object) noexcept {
  const uint32_t index = std::exchange(index_, kNone);
  Slot& slot = instance().slot_at(index);
  const Guard guard(slot);
  ++slot.generation;
  slot.id = make_id(object->kind, slot.generation, index);
  slot.object = std::move(object);
  return slot.id;
}

Result<uint64_t> HandleTable::insert(std::shared_ptr<Object> object) {
  MERON_ASSIGN(Room room, reserve());
  return room.issue(std::move(object));
}

Result<HandleTable::Slot*> HandleTable::locate(uint64_t id, Kind kind) {
  const bool issued = slot_of(id) < used_.load(std::memory_order_acquire);
  if (issued && kind_of(id) == kind) return &slot_at(slot_of(id));
  return no_handle(id, kind, issued);
}

Result<std::shared_ptr<Object>> HandleTable::find(uint64_t id, Kind kind) {
  MERON_ASSIGN(Slot* const slot, locate(id, kind));
  {
    const Guard guard(*slot);
    if (slot->id == id) return slot->object;
  }
  return gone(kind);
}

Result<std::shared_ptr<Object>> HandleTable::erase(uint64_t id, Kind kind) {
  MERON_ASSIGN(Slot* const slot, locate(id, kind));
  std::shared_ptr<Object> object;
  {
    const Guard guard(*slot);
    if (slot->id == id) {
      slot->id = 0;
      object = std::move(slot->object);
    }
  }
  if (!object) return gone(kind);
  free(slot_of(id));
  return object;
}

void HandleTable::erase_all(const Context* context) {
  erase_some(context, [](const Object&) { return true; });
}

void HandleTable::erase_some(const Context* context,
                             const std::function<bool(const Object&)>& chosen) {
  const uint32_t used = used_.load(std::memory_order_acquire);
  for (uint32_t index = 0; index < used; ++index) {
    Slot& slot = slot_at(index);
    std::shared_ptr<Object> object;  // destroyed without the slot's lock
    {
      const Guard guard(slot);
      if (!slot.object || slot.object->context.get() != context || !chosen(*slot.object)) continue;
      slot.id = 0;
      object = std::move(slot.object);
      slot.object = nullptr;
    }
    free(index);
  }
}

}  // namespace meron

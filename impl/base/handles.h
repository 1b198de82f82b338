// SPDX-License-Identifier: Apache-2.0
// Handles: what the C ABI hands out instead of pointers. An id holds kind (8 bits), generation (32)
// and slot (24); 0 is null. A generation is never used twice for a slot, so an id whose object is
// gone stays recognizable, in any language's finalizer, until 2^32 objects later.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

#include "base/result.h"

namespace meron {

class Context;

enum class Kind : uint8_t {
  context = 1,
  group,
  plan,
  param,
  unit,
  gather,
  future,
  update,
  optimizer,
  schedule,
  io,
  io_request,
  io_buffer,
  checkpoint,
};
std::string_view name_of(Kind kind);

// The target of a handle. `context` keeps the parent alive; it is null for plans and objects of an
// io.
struct Object {
  Object(Kind kind_in, std::shared_ptr<Context> context_in)
      : kind(kind_in), context(std::move(context_in)) {}
  virtual ~Object() = default;
  const Kind kind;
  const std::shared_ptr<Context> context;
};

// One per process. Thread-safe: a lookup takes the lock of its slot only. Never destroyed, because
// finalizers may call while the process ends.
class HandleTable {
 public:
  static HandleTable& instance();

  // Returns the kind encoded in the id, or no value of Kind if the id was never issued.
  static Kind kind_of(uint64_t id) { return static_cast<Kind>(id >> 56); }
  Result<uint64_t> insert(std::shared_ptr<Object> object);
  // MERON_E_HANDLE: null, never issued, or of another kind. MERON_E_STALE: released.
  Result<std::shared_ptr<Object>> find(uint64_t id, Kind kind);
  // The same, and the id is stale from now on. Destroy the object without locks held.
  Result<std::shared_ptr<Object>> erase(uint64_t id, Kind kind);
  // Makes all ids of a context stale.
  void erase_all(const Context* context);
  // The same of the objects of a context that `chosen` says, under a slot's lock.
  void erase_some(const Context* context, const std::function<bool(const Object&)>& chosen);

 private:
  static constexpr uint32_t kChunk = 1024;
  static constexpr uint32_t kChunks = 16384;

  struct Slot {
    std::atomic_flag lock;
    uint64_t id = 0;  // 0: free
    uint32_t generation = 0;
    std::shared_ptr<Object> object;
  };
  struct Guard {
    explicit Guard(Slot& slot) : flag(slot.lock) {
      while (flag.test_and_set(std::memory_order_acquire)) {
      }
    }
    ~Guard() { flag.clear(std::memory_order_release); }
    std::atomic_flag& flag;
  };

  HandleTable() = default;
  // The slot, if such an id can exist at all.
  Result<Slot*> locate(uint64_t id, Kind kind);
  static Error gone(Kind kind);

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;           // guards the two below
  std::deque<uint32_t> free_;  // used in turn, so that a generation lasts
  std::atomic<uint32_t> used_{0};
};

}  // namespace meron

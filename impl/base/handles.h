// SPDX-License-Identifier: Apache-2.0
// Handles: the C ABI returns these instead of pointers. An id holds kind (8 bits), generation (32)
// and slot (24); 0 is null. A slot never reuses a generation, so an id of a destroyed object stays
// recognizable, in any language's finalizer, until 2^32 objects later.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

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
  // Room for a handle. It allocates all memory that issuing the handle needs, which then cannot
  // fail: a call takes the room before it begins work. Released if it is not used.
  class Room {
   public:
    Room(Room&& other) noexcept : index_(std::exchange(other.index_, kNone)) {}
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;
    ~Room();
    // The id of the object's handle. Once.
    uint64_t issue(std::shared_ptr<Object> object) noexcept;

   private:
    friend class HandleTable;
    explicit Room(uint32_t index) : index_(index) {}
    uint32_t index_;
  };
  // MERON_E_NO_MEMORY if no id is left.
  Result<Room> reserve();
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
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Slot {
    std::atomic_flag lock;
    uint64_t id = 0;  // 0: free
    uint32_t generation = 0;
    uint32_t next_free = 0;  // guarded by mutex_
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
  // Why `id` is no handle of that kind. `issued`: its slot was used at some time.
  static Error no_handle(uint64_t id, Kind kind, bool issued);
  Slot& slot_at(uint32_t index);
  void free(uint32_t index) noexcept;

  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::mutex mutex_;  // guards what follows
  // A list through the free slots. They are used in turn, so that a generation lasts.
  uint32_t first_free_ = kNone, last_free_ = kNone, free_count_ = 0;
  std::atomic<uint32_t> used_{0};
};

}  // namespace meron

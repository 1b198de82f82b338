// SPDX-License-Identifier: Apache-2.0
// A queue of releases. Finalizers, even under a language's own lock or within a callback, only add
// to it. The next thread that takes the context's lock runs them.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

namespace meron {

// A function that is kept in place, so that to queue it takes no memory.
class Release {
 public:
  template <class Run>
  requires(!std::same_as<Run, Release>) Release(Run run)
      : calls_(&kCallsOf<Run>) {  // NOLINT: by design
    static_assert(sizeof(Run) <= kRoom && alignof(Run) <= alignof(std::max_align_t));
    static_assert(std::is_nothrow_move_constructible_v<Run>);
    ::new (static_cast<void*>(room_)) Run(std::move(run));
  }
  Release(Release&& other) noexcept : calls_(other.calls_) { calls_->move(room_, other.room_); }
  Release(const Release&) = delete;
  Release& operator=(const Release&) = delete;
  ~Release() { calls_->destroy(room_); }

  void operator()() { calls_->run(room_); }

 private:
  static constexpr size_t kRoom = 48;
  struct Calls {
    void (*run)(void* room);
    void (*move)(void* room, void* from);
    void (*destroy)(void* room);
  };
  template <class Run>
  static constexpr Calls kCallsOf = {
      [](void* room) { (*static_cast<Run*>(room))(); },
      [](void* room, void* from) { ::new (room) Run(std::move(*static_cast<Run*>(from))); },
      [](void* room) { std::destroy_at(static_cast<Run*>(room)); }};

  const Calls* calls_;
  alignas(std::max_align_t) std::byte room_[kRoom];
};

class Releases {
 public:
  Releases() { list_.reserve(kUsual); }

  // Takes no memory until more than a few wait.
  void add(Release release) {
    const std::lock_guard lock(mutex_);
    list_.push_back(std::move(release));
    some_.store(true, std::memory_order_release);
  }
  bool some() const { return some_.load(std::memory_order_acquire); }
  // Called in destructors, too.
  std::vector<Release> take() noexcept {
    std::vector<Release> taken;
    try {
      taken.reserve(kUsual);  // for those that are added next
    } catch (const std::bad_alloc&) {
      // The next add() takes the memory.
    }
    const std::lock_guard lock(mutex_);
    taken.swap(list_);
    some_.store(false, std::memory_order_relaxed);
    return taken;
  }

 private:
  static constexpr size_t kUsual = 64;

  std::mutex mutex_;  // a leaf: nothing is called under it
  std::vector<Release> list_;
  std::atomic<bool> some_{false};
};

}  // namespace meron

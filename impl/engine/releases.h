// SPDX-License-Identifier: Apache-2.0
// A queue of releases. Finalizers, even under a language's own lock or within a callback, only add
// to it. The next thread that takes the context's lock runs them.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace meron {

class Releases {
 public:
  using Release = std::function<void()>;

  void add(Release release) {
    const std::lock_guard lock(mutex_);
    list_.push_back(std::move(release));
    some_.store(true, std::memory_order_release);
  }
  bool some() const { return some_.load(std::memory_order_acquire); }
  std::vector<Release> take() {
    std::vector<Release> taken;
    const std::lock_guard lock(mutex_);
    taken.swap(list_);
    some_.store(false, std::memory_order_relaxed);
    return taken;
  }

 private:
  std::mutex mutex_;  // a leaf: nothing is called under it
  std::vector<Release> list_;
  std::atomic<bool> some_{false};
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A custom transport by memory of this process: each rank has a mailbox. As small as one can be.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "meron/meron.hpp"

namespace meron::test {

// State that the ranks of a world share.
struct PostOffice {
  using Message = std::vector<unsigned char>;
  std::mutex mutex;
  std::condition_variable changed;
  // Messages that no receive has taken yet, by (to, from, tag).
  std::map<std::tuple<int32_t, int32_t, uint64_t>, std::deque<Message>> boxes;
};

class Mailbox : public Transport {
 public:
  Mailbox(std::shared_ptr<PostOffice> office, int32_t rank)
      : office_(std::move(office)), rank_(rank) {}

  const char* name() const noexcept override { return "mailbox"; }
  bool send(uint64_t& request, int32_t peer, uint64_t tag, const void* data,
            uint64_t bytes) override {
    const auto* first = static_cast<const unsigned char*>(data);
    {
      const std::lock_guard<std::mutex> guard(office_->mutex);
      office_->boxes[{peer, rank_, tag}].emplace_back(first, first + bytes);
    }
    office_->changed.notify_all();
    request = kSent;
    return true;
  }
  bool receive(uint64_t& request, int32_t peer, uint64_t tag, void* data, uint64_t bytes) override {
    request = ++last_;
    waiting_[request] = {{rank_, peer, tag}, data, bytes};
    return true;
  }
  bool test(uint64_t request, uint64_t& bytes) override {
    if (request == kSent) return true;
    const auto found = waiting_.find(request);
    if (found == waiting_.end()) throw Error(MERON_E_INTERNAL, "no such request", "", "");
    const Waiting& waiting = found->second;
    {
      const std::lock_guard<std::mutex> guard(office_->mutex);
      auto& box = office_->boxes[waiting.box];
      // Messages of one tag go to the receives in the order in which these were started.
      const auto earlier = [&](const auto& other) {
        return other.first < request && other.second.box == waiting.box;
      };
      if (box.empty() || std::any_of(waiting_.begin(), waiting_.end(), earlier)) return false;
      bytes = box.front().size();
      if (bytes > waiting.bytes) throw Error(MERON_E_IO, "a message is too long", "", "");
      std::copy(box.front().begin(), box.front().end(), static_cast<unsigned char*>(waiting.data));
      box.pop_front();
    }
    waiting_.erase(found);
    return true;
  }
  void cancel(uint64_t request) noexcept override { waiting_.erase(request); }
  void idle(std::chrono::nanoseconds timeout) override {
    std::unique_lock<std::mutex> guard(office_->mutex);
    office_->changed.wait_for(guard, std::min<std::chrono::nanoseconds>(timeout, kLongest));
  }
  void closed() noexcept override { ++closings; }

  int closings = 0;

 private:
  struct Waiting {
    std::tuple<int32_t, int32_t, uint64_t> box;
    void* data = nullptr;
    uint64_t bytes = 0;
  };
  static constexpr uint64_t kSent = 0;  // a message that was sent is in its box: done at once
  // A message may arrive between a test and the wait, which it then does not wake.
  static constexpr std::chrono::milliseconds kLongest{1};

  std::shared_ptr<PostOffice> office_;
  int32_t rank_;
  uint64_t last_ = kSent;
  std::map<uint64_t, Waiting> waiting_;  // touched by one thread at a time, as the library promises
};

}  // namespace meron::test

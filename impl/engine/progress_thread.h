// SPDX-License-Identifier: Apache-2.0
// Moves what goes between nodes while the trainer computes: without it, a rank's part in its peers'
// gathers and sums would wait until its trainer calls the engine again. Only where the transport's
// functions may be called by any thread.
#pragma once

#include <atomic>
#include <thread>

namespace meron {

class Context;

class ProgressThread {
 public:
  // The context outlives it.
  explicit ProgressThread(Context& context);
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  void run();

  Context& context_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
// A lock's scope as a token. Only taking the lock makes a Held, so a function that takes one runs
// under the lock. A function that waits, calls the trainer's code or runs a long kernel must run
// without one: it uses Recess and expect_unheld().
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace meron {

class Held {
 public:
  // A mutex, and the functions that run when it is released.
  struct Mutex {
    std::mutex mutex;
    std::vector<std::function<void()>> later;  // guarded by mutex
  };

  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  // The calling thread's; null where it has none, or is in a Recess.
  static Held* here() { return here_; }
  // Runs `then` without the lock, when this thread releases it next. For the trainer's functions
  // that are due and whose result is not needed.
  void later(std::function<void()> then) { mutex_.later.push_back(std::move(then)); }

 protected:
  // `quietly`: what is due is left to the thread that releases the lock next.
  explicit Held(Mutex& mutex, bool quietly = false);
  struct IfFree {};
  Held(Mutex& mutex, IfFree) : mutex_(mutex), quietly_(true) {  // taken() says whether it has it
    if (here_ != nullptr || !mutex_.mutex.try_lock()) return;
    taken_ = true;
    here_ = this;
  }
  virtual ~Held() {
    if (!taken_) return;
    here_ = nullptr;
    mutex_.mutex.unlock();
  }
  bool taken() const { return taken_; }
  bool quiet() const { return quietly_; }
  // leave() releases the lock, and enter() takes it again.
  void leave() {
    if (!quietly_ && !mutex_.later.empty()) return leave_with_dues();
    give_back();
    if (!quietly_) left();
  }
  void enter() {
    mutex_.mutex.lock();
    taken_ = true;
    here_ = this;
  }

 private:
  friend class Recess;
  void give_back() {
    here_ = nullptr;
    taken_ = false;
    mutex_.mutex.unlock();
  }
  void leave_with_dues();
  // Runs each time after the lock was released, unless quietly.
  virtual void left() {}

  // In the part of a thread's memory that is found without a call.
  static thread_local Held* here_ __attribute__((tls_model("initial-exec")));
  Mutex& mutex_;
  const bool quietly_;
  bool taken_ = false;
};

// Releases the calling thread's lock, if it has one, until the end of the scope. Other threads must
// not touch the scope's objects: the turn, Operation::running() and the states of units
// (Unit::Busy) mark these under the lock. `wanted` is false for work too short to be worth a
// release.
class Recess {
 public:
  explicit Recess(bool wanted = true) : held_(wanted ? Held::here() : nullptr) {
    if (held_ != nullptr) held_->leave();
  }
  ~Recess() {
    if (held_ != nullptr) held_->enter();
  }
  Recess(const Recess&) = delete;
  Recess& operator=(const Recess&) = delete;

 private:
  Held* const held_;
};

// Making so many bytes of memory real, zeroing them or giving them back takes longer than a lock is
// held. Builds that check locks count what small tests have as long.
#ifdef MERON_LOCK_CHECKS
inline constexpr uint64_t kLongBytes = 32 << 10;
#else
inline constexpr uint64_t kLongBytes = 256 << 10;
#endif

// Marks the begin of work that must not run under a lock. Builds with MERON_LOCK_CHECKS end the
// process with a message if the calling thread holds one.
#ifdef MERON_LOCK_CHECKS
void expect_unheld(const char* what);
#else
inline void expect_unheld(const char* /*what*/) {}
#endif

inline Held::Held(Mutex& mutex, bool quietly) : mutex_(mutex), quietly_(quietly) {
  // One that waits for another while it has it would wait for itself.
  expect_unheld("taking a context's lock");
  enter();
}

}  // namespace meron

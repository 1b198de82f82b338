// SPDX-License-Identifier: Apache-2.0
#include "emulator.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace meron::cuda::emulator {

Place here{};

namespace {

constexpr unsigned kLanes = 32, kMaxThreads = 256;
constexpr size_t kStackBytes = size_t{256} << 10;  // touched where it is used

enum class State { ready, in_warp, in_block, ended };

struct Fiber {
  ucontext_t context;
  char* stack = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  State state = State::ended;
  bool parked = false;  // its thread has ended, and it can run another
};

// A meeting of a warp. Its result is valid until the end of the next meeting, because all lanes
// have left this one by then.
struct Warp {
  Meeting kind = Meeting::none;
  unsigned lanes = 0;  // that they exchange with
  unsigned arrived = 0;
  uint64_t given[kLanes], yielded[kLanes];
};

struct Machine {
  std::array<Fiber, kMaxThreads> fibers;
  std::array<Warp, kMaxThreads / kLanes> warps;
  ucontext_t scheduler;
  void* scheduler_fake_stack = nullptr;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
  const std::function<void()>* thread = nullptr;
  unsigned threads = 0;
  unsigned launches = 0;
  std::string error;
};

Machine& machine() {
  static Machine the_machine;
  return the_machine;
}

// AddressSanitizer must know which stack is in use.
void before_switch([[maybe_unused]] void** own, [[maybe_unused]] const void* stack,
                   [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(own, stack, bytes);
#endif
}
void after_switch([[maybe_unused]] void* own, [[maybe_unused]] const void** stack,
                  [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(own, stack, bytes);
#endif
}

Fiber& running() {
  return machine().fibers[here.thread];
}

// Back to the scheduler, until this thread is ready again.
void wait_as(State state) {
  Machine& m = machine();
  Fiber& fiber = running();
  fiber.state = state;
  before_switch(&fiber.fake_stack, m.scheduler_stack, m.scheduler_stack_bytes);
  swapcontext(&fiber.context, &m.scheduler);
  after_switch(fiber.fake_stack, &m.scheduler_stack, &m.scheduler_stack_bytes);
}

void fiber_main() {
  Machine& m = machine();
  after_switch(nullptr, &m.scheduler_stack, &m.scheduler_stack_bytes);
  for (;;) {
    (*m.thread)();
    running().parked = true;
    wait_as(State::ended);
  }
}

void start(Fiber& fiber) {
  fiber.state = State::ready;
  if (fiber.parked) {  // a new fiber would take AddressSanitizer most of the time of a test
    fiber.parked = false;
    return;
  }
  if (fiber.stack == nullptr) {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    fiber.stack = static_cast<char*>(memory);
  }
#if defined(__SANITIZE_ADDRESS__)
  // A launch that failed has left frames there.
  __asan_unpoison_memory_region(fiber.stack, kStackBytes);
#endif
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  fiber.fake_stack = nullptr;
  makecontext(&fiber.context, fiber_main, 0);
}

void switch_to(unsigned thread) {
  Machine& m = machine();
  here.thread = thread;
  Fiber& fiber = m.fibers[thread];
  before_switch(&m.scheduler_fake_stack, fiber.stack, kStackBytes);
  swapcontext(&m.scheduler, &fiber.context);
  after_switch(m.scheduler_fake_stack, nullptr, nullptr);
}

// The i-th of `count` in an order of this launch: forwards, backwards, or in steps of an odd
// number, which reaches all where `count` is a power of two.
unsigned in_order(unsigned i, unsigned count) {
  switch (machine().launches % 3) {
    case 0:
      return i;
    case 1:
      return count - 1 - i;
    default:
      return count == 1 ? 0 : (i * 11 + 5) % count;
  }
}

// Runs the lanes of a warp as far as they come without the rest of the block.
void run_warp(unsigned warp) {
  Machine& m = machine();
  const unsigned lanes = m.threads < kLanes ? m.threads : kLanes;
  for (bool moved = true; moved && m.error.empty();) {
    moved = false;
    for (unsigned i = 0; i < lanes && m.error.empty(); ++i) {
      const unsigned thread = warp * kLanes + in_order(i, lanes);
      if (m.fibers[thread].state != State::ready) continue;
      switch_to(thread);
      moved = true;
    }
  }
}

void run_block() {
  Machine& m = machine();
  for (unsigned t = 0; t < m.threads; ++t) start(m.fibers[t]);
  for (Warp& warp : m.warps) warp = {};
  const unsigned warps = (m.threads + kLanes - 1) / kLanes;
  while (m.error.empty()) {
    for (unsigned w = 0; w < warps && m.error.empty(); ++w) run_warp(in_order(w, warps));
    unsigned at_barrier = 0, in_warp = 0;
    for (unsigned t = 0; t < m.threads; ++t) {
      at_barrier += m.fibers[t].state == State::in_block;
      in_warp += m.fibers[t].state == State::in_warp;
    }
    if (!m.error.empty()) return;
    if (in_warp != 0) {
      m.error = "not all lanes of a warp came to a meeting";
    } else if (at_barrier == 0) {
      return;
    }
    for (unsigned t = 0; t < m.threads; ++t) {
      if (m.fibers[t].state == State::in_block) m.fibers[t].state = State::ready;
    }
  }
}

}  // namespace

// Does not release the thread's objects.
void fail(const char* what) {
  Machine& m = machine();
  if (m.error.empty()) {
    m.error = "thread " + std::to_string(here.thread) + " of block " + std::to_string(here.block) +
              ": " + what;
  }
  wait_as(State::ended);
  std::abort();
}

uint64_t meet(Meeting kind, uint64_t value, unsigned lanes) {
  Machine& m = machine();
  const unsigned thread = here.thread, lane = thread % kLanes;
  Warp& warp = m.warps[thread / kLanes];
  if (m.threads < kLanes) fail("a meeting of a warp that is not whole");
  if (warp.arrived == 0) {
    warp.kind = kind;
    warp.lanes = lanes;
  } else if (warp.kind != kind || warp.lanes != lanes) {
    fail("lanes of a warp came to different meetings");
  }
  warp.given[lane] = value;
  if (++warp.arrived < kLanes) {
    wait_as(State::in_warp);
    return warp.yielded[lane];
  }
  uint64_t largest = 0;
  for (const uint64_t given : warp.given) largest = given > largest ? given : largest;
  for (unsigned i = 0; i < kLanes; ++i) {
    warp.yielded[i] = kind == Meeting::maximum ? largest : warp.given[i ^ lanes];
    Fiber& fiber = m.fibers[thread - lane + i];
    if (fiber.state == State::in_warp) fiber.state = State::ready;
  }
  warp.arrived = 0;
  return warp.yielded[lane];
}

void meet_block() {
  wait_as(State::in_block);
}

std::string run(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  Machine& m = machine();
  m.thread = &thread;
  m.threads = threads;
  m.error.clear();
  here.blocks = blocks;
  for (unsigned i = 0; i < blocks && m.error.empty(); ++i) {
    here.block = in_order(i, blocks);
    if (m.launches % 3 == 2) here.block = (i + 1) % blocks;  // any number of them
    run_block();
  }
  ++m.launches;
  return m.error;
}

bool succeeds(unsigned blocks, unsigned threads, const std::function<void()>& thread) {
  const std::string error = run(blocks, threads, thread);
  if (!error.empty()) std::fprintf(stderr, "emulated kernel: %s\n", error.c_str());
  return error.empty();
}

}  // namespace meron::cuda::emulator

// SPDX-License-Identifier: Apache-2.0
#include "os/io_ring.h"

#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/human_bytes.h"
#include "os/fd.h"
#include "os/host.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr uint32_t kFileSlots = 64;
constexpr uint32_t kBufferSlots = 1024;
constexpr uint64_t kWakeTag = UINT64_MAX;
constexpr int64_t kProofNs = 2 * kNanosPerSecond;

// Constants that older headers lack. If the kernel refuses an unknown flag, the next set of flags
// is tried.
constexpr unsigned kSubmitAll = 1U << 7;      // IORING_SETUP_SUBMIT_ALL, Linux 5.18
constexpr unsigned kCoopTaskrun = 1U << 8;    // IORING_SETUP_COOP_TASKRUN, 5.19
constexpr unsigned kSingleIssuer = 1U << 12;  // IORING_SETUP_SINGLE_ISSUER, 6.0
constexpr unsigned kDeferTaskrun = 1U << 13;  // IORING_SETUP_DEFER_TASKRUN, 6.1

// The kernel gives the memory of a ring that was closed to a later one, perhaps another thread's:
// an order that ThreadSanitizer cannot see, because liburing maps and unmaps without libc.
std::atomic<uint64_t> closed_rings{0};

struct Shape {
  unsigned flags;
  bool tables;  // disabled at first, given its tables and restrictions, then enabled
};
constexpr std::array kShapes = {
    Shape{kSubmitAll | kSingleIssuer | kDeferTaskrun, true},
    Shape{kSubmitAll | kCoopTaskrun, true},
    Shape{0, true},
    // A container may forbid io_uring_register alone: without it there are no tables.
    Shape{kSubmitAll | kSingleIssuer | kDeferTaskrun, false},
    Shape{0, false},
};

}  // namespace

struct IoRing::State {
  class Slots {
   public:
    void fill(uint32_t count) {
      for (uint32_t slot = count; slot-- > 0;) free_.push_back(slot);
    }
    uint32_t take() {
      if (free_.empty()) return IoRing::kNone;
      const uint32_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    void give_back(uint32_t slot) { free_.push_back(slot); }

   private:
    std::vector<uint32_t> free_;
  };

  io_uring ring{};
  bool open = false;
  UniqueFd wake_fd;
  uint64_t wake_count = 0;  // where the armed read of wake_fd puts what it read
  bool files = false, buffers = false;
  Slots file_slots, buffer_slots;

  ~State() { close(); }

  // 0, or the errno of what failed.
  int make(uint32_t depth, const Shape& shape) {
    io_uring_params params{};
    params.flags = shape.flags | (shape.tables ? IORING_SETUP_R_DISABLED : 0U);
    const int failed = ::io_uring_queue_init_params(depth + 1, &ring, &params);
    if (failed != 0) return -failed;
    (void)closed_rings.load(std::memory_order_acquire);
    open = true;
    // Waiting with a bound without a request of its own: Linux 5.11.
    if ((params.features & IORING_FEAT_EXT_ARG) == 0) return ENOSYS;
    // A child of fork must not reach the queues of its parent.
    (void)::io_uring_ring_dontfork(&ring);
    if (!shape.tables) return 0;
    files = ::io_uring_register_files_sparse(&ring, kFileSlots) == 0;
    buffers = ::io_uring_register_buffers_sparse(&ring, kBufferSlots) == 0;
    (void)restrict_operations();  // Linux 5.10 and later have it; without it the ring works too
    const int disabled = ::io_uring_enable_rings(&ring);
    return disabled < 0 ? -disabled : 0;
  }

  int restrict_operations() {
    std::vector<io_uring_restriction> allowed;
    const auto allow = [&](uint16_t kind, uint8_t what) {
      io_uring_restriction entry{};
      entry.opcode = kind;
      entry.register_op = what;  // in a union with sqe_op and sqe_flags
      allowed.push_back(entry);
    };
    for (const int operation : {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED,
                                IORING_OP_WRITE_FIXED, IORING_OP_FSYNC}) {
      allow(IORING_RESTRICTION_SQE_OP, static_cast<uint8_t>(operation));
    }
    for (const int operation : {IORING_REGISTER_FILES_UPDATE, IORING_REGISTER_FILES_UPDATE2,
                                IORING_REGISTER_BUFFERS_UPDATE, IORING_REGISTER_ENABLE_RINGS}) {
      allow(IORING_RESTRICTION_REGISTER_OP, static_cast<uint8_t>(operation));
    }
    allow(IORING_RESTRICTION_SQE_FLAGS_ALLOWED, IOSQE_FIXED_FILE);
    return ::io_uring_register_restrictions(&ring, allowed.data(),
                                            static_cast<unsigned>(allowed.size()));
  }

  void close() {
    closed_rings.fetch_add(1, std::memory_order_release);
    if (open) ::io_uring_queue_exit(&ring);
    open = files = buffers = false;
    ring = {};
  }
};

IoRing::IoRing(std::unique_ptr<State> state) : state_(std::move(state)) {}
IoRing::~IoRing() = default;

Result<std::unique_ptr<IoRing>> IoRing::create(uint32_t depth) {
  if (depth == 0 || depth > kMaxDepth) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} requests at a time", depth),
                 fmt::format("choose 1 to {}", kMaxDepth));
  }
  auto state = std::make_unique<State>();
  state->wake_fd.reset(::eventfd(0, EFD_CLOEXEC));
  if (!state->wake_fd.valid()) return system_error("cannot make an eventfd", errno);
  int error = 0;
  for (const Shape& shape : kShapes) {
    error = state->make(depth, shape);
    if (error == 0) break;
    state->close();
    // EINVAL: a flag that this kernel lacks. Refusals may be of io_uring_register alone.
    if (error != EINVAL && error != EPERM && error != EACCES && error != ENOSYS) break;
  }
  if (error == ENOMEM) {
    const uint64_t limit = memlock_limit();
    return system_error("cannot set io_uring up", error,
                        fmt::format("raise the limit on locked memory, {} (ulimit -l)",
                                    limit == kNoLimit ? "none" : human_bytes(limit)));
  }
  if (error == EMFILE || error == ENFILE) return system_error("cannot set io_uring up", error);
  if (error != 0) {
    return Error(MERON_E_UNSUPPORTED, fmt::format("cannot set io_uring up: {}", errno_text(error)));
  }
  if (state->files) state->file_slots.fill(kFileSlots);
  if (state->buffers) state->buffer_slots.fill(kBufferSlots);

  std::unique_ptr<IoRing> ring(new IoRing(std::move(state)));
  ring->arm();
  ring->wake();
  Status proved = ring->submit_and_wait(kProofNs);
  if (proved.ok()) {
    io_uring_cqe* end = nullptr;
    const int missing = ::io_uring_peek_cqe(&ring->state_->ring, &end);
    const int result = missing != 0 ? -ETIMEDOUT : end->res;
    std::array<Completion, 1> none;
    ring->reap(none);  // arms it again
    if (result != static_cast<int>(sizeof(uint64_t))) {
      proved = Error(MERON_E_UNSUPPORTED,
                     fmt::format("io_uring does not work on this host: {}", errno_text(-result)));
    }
  } else {
    proved = Error(MERON_E_UNSUPPORTED, proved.error().info().what);
  }
  MERON_TRY(std::move(proved));
  return ring;
}

std::string IoRing::text() const {
  if (state_->files && state_->buffers) return "registered files and buffers";
  if (state_->files) return "registered files";
  return state_->buffers ? "registered buffers" : "nothing registered";
}

bool IoRing::takes_buffers() const {
  return state_->buffers;
}

uint32_t IoRing::add_file(int fd) {
  const uint32_t slot = state_->file_slots.take();
  if (slot == kNone) return kNone;
  if (::io_uring_register_files_update(&state_->ring, slot, &fd, 1) == 1) return slot;
  state_->file_slots.give_back(slot);
  return kNone;
}

void IoRing::remove_file(uint32_t slot) {
  const int none = -1;
  (void)::io_uring_register_files_update(&state_->ring, slot, &none, 1);
  state_->file_slots.give_back(slot);
}

Result<uint32_t> IoRing::add_buffer(std::byte* data, uint64_t bytes) {
  const uint32_t slot = state_->buffer_slots.take();
  if (slot == kNone) return kNone;
  const iovec range{.iov_base = data, .iov_len = bytes};
  const int result =
      ::io_uring_register_buffers_update_tag(&state_->ring, slot, &range, nullptr, 1);
  if (result == 1) return slot;
  state_->buffer_slots.give_back(slot);
  return system_error(
      fmt::format("cannot register {} of memory with the kernel", human_bytes(bytes)),
      result < 0 ? -result : EIO);
}

void IoRing::remove_buffer(uint32_t slot) {
  const iovec none{.iov_base = nullptr, .iov_len = 0};
  (void)::io_uring_register_buffers_update_tag(&state_->ring, slot, &none, nullptr, 1);
  state_->buffer_slots.give_back(slot);
}

bool IoRing::prepare(const Request& request) {
  io_uring_sqe* const entry = ::io_uring_get_sqe(&state_->ring);
  if (entry == nullptr) return false;
  const bool fixed_file = request.file_slot != kNone;
  const int fd = fixed_file ? static_cast<int>(request.file_slot) : request.fd;
  if (request.buffer_slot != kNone) {
    const auto slot = static_cast<int>(request.buffer_slot);
    if (request.write) {
      ::io_uring_prep_write_fixed(entry, fd, request.data, request.bytes, request.offset, slot);
    } else {
      ::io_uring_prep_read_fixed(entry, fd, request.data, request.bytes, request.offset, slot);
    }
  } else if (request.write) {
    ::io_uring_prep_write(entry, fd, request.data, request.bytes, request.offset);
  } else {
    ::io_uring_prep_read(entry, fd, request.data, request.bytes, request.offset);
  }
  if (fixed_file) ::io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
  ::io_uring_sqe_set_data64(entry, request.tag);
  return true;
}

void IoRing::arm() {
  // The queue has an entry more than requests, and this read is the only one not counted in them.
  io_uring_sqe* const entry = ::io_uring_get_sqe(&state_->ring);
  if (entry == nullptr) return;
  ::io_uring_prep_read(entry, state_->wake_fd.get(), &state_->wake_count, sizeof(uint64_t), 0);
  ::io_uring_sqe_set_data64(entry, kWakeTag);
}

// The kernel requires a repeated call if it has no memory for a request at the moment (EAGAIN),
// where completions must be taken first (EBUSY), and after a signal.
Status IoRing::submit() {
  const int result = ::io_uring_submit(&state_->ring);
  if (result >= 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR) return Ok{};
  return system_error("cannot hand requests to io_uring", -result);
}

Status IoRing::submit_and_wait(int64_t timeout_ns) {
  io_uring_cqe* first = nullptr;
  __kernel_timespec bound{.tv_sec = timeout_ns / kNanosPerSecond,
                          .tv_nsec = timeout_ns % kNanosPerSecond};
  const int result = ::io_uring_submit_and_wait_timeout(&state_->ring, &first, 1,
                                                        timeout_ns < 0 ? nullptr : &bound, nullptr);
  if (result >= 0 || result == -ETIME || result == -EAGAIN || result == -EBUSY ||
      result == -EINTR) {
    return Ok{};
  }
  return system_error("cannot hand requests to io_uring", -result);
}

size_t IoRing::reap(std::span<Completion> out) {
  size_t count = 0;
  unsigned head = 0, seen = 0;
  bool woken = false;
  io_uring_cqe* entry = nullptr;
  io_uring_for_each_cqe(&state_->ring, head, entry) {
    if (entry->user_data == kWakeTag) {
      woken = true;
    } else {
      if (count == out.size()) break;
      out[count++] = {.tag = static_cast<uint32_t>(entry->user_data), .result = entry->res};
    }
    ++seen;
  }
  ::io_uring_cq_advance(&state_->ring, seen);
  if (woken) arm();
  return count;
}

void IoRing::wake() {
  const uint64_t one = 1;
  (void)!::write(state_->wake_fd.get(), &one, sizeof one);
}

}  // namespace meron

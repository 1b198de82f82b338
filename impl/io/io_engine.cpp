// SPDX-License-Identifier: Apache-2.0
#include "io/io_engine.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

#include "io/fault_plan.h"
#include "io/io_backend.h"
#include "os/io_ring.h"
#include "os/process.h"
#include "os/system_error.h"

namespace meron {
namespace {

constexpr uint32_t kBlockGrain = 4096;
constexpr uint32_t kMaxBlock = 1U << 30;
constexpr int kMaxThreads = 256;
constexpr int kAttempts = 1000;  // to unregister memory, one per millisecond

Status check(const IoOptions& options) {
  if (options.block == 0 || options.block > kMaxBlock || options.block % kBlockGrain != 0) {
    return Error(MERON_E_ARGUMENT, fmt::format("a block of {} bytes", options.block),
                 fmt::format("choose a multiple of {} up to {}", kBlockGrain, kMaxBlock));
  }
  if (options.depth == 0 || options.depth > IoRing::kMaxDepth) {
    return Error(MERON_E_ARGUMENT, fmt::format("a depth of {} requests", options.depth),
                 fmt::format("choose 1 to {}", IoRing::kMaxDepth));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return Error(MERON_E_ARGUMENT, fmt::format("{} threads for storage", options.threads),
                 fmt::format("choose 1 to {}", kMaxThreads));
  }
  return Ok{};
}

}  // namespace

void IoShared::end(Transfer& transfer) {
  if (!transfer.failed()) {
    (transfer.write ? bytes_written_ : bytes_read_).fetch_add(transfer.bytes);
  }
  transfer.ticket->end(std::move(transfer.error), transfer.unsaid);
  const std::lock_guard lock(wake_mutex_);
  if (wake_) wake_();
}

void IoShared::on_end(std::function<void()> wake) {
  const std::lock_guard lock(wake_mutex_);
  wake_ = std::move(wake);
}

void IoShared::notice(const std::string& text) {
  const std::lock_guard lock(notice_mutex_);
  if (said_.insert(text).second) notices_.push_back(text);
}

std::vector<std::string> IoShared::take_notices() {
  const std::lock_guard lock(notice_mutex_);
  return std::exchange(notices_, {});
}

void IoShared::count_request(bool direct) {
  requests_.fetch_add(1, std::memory_order_relaxed);
  if (direct) direct_requests_.fetch_add(1, std::memory_order_relaxed);
}

IoCounters IoShared::counters() const {
  return {.bytes_read = bytes_read_.load(),
          .bytes_written = bytes_written_.load(),
          .requests = requests_.load(),
          .direct_requests = direct_requests_.load()};
}

Error closed_error(const Transfer& transfer) {
  return Error(MERON_E_CLOSED,
               fmt::format("the engine was closed before {} bytes at offset {} "
                           "were {}",
                           transfer.bytes, transfer.offset, transfer.write ? "written" : "read"))
      .on(transfer.file->path());
}

Error held_error(const Transfer& transfer, const std::optional<Error>& before) {
  Error error = closed_error(transfer);
  if (before) error.info().what += fmt::format("; before that: {}", before->info().what);
  error.info().advice =
      "look at the drive and the kernel's log, and do not use the request's memory again";
  return error;
}

Error no_thread_error(int error) {
  return system_error("cannot start a thread for storage", error,
                      "raise the limit on processes (ulimit -u), or end some");
}

Result<std::shared_ptr<IoEngine>> IoEngine::create(const IoOptions& options) {
  MERON_TRY(check(options));
  MERON_TRY(check_io_faults());
  auto shared = std::make_shared<IoShared>();
  std::shared_ptr<IoBackend> backend;
  std::string why = "requested";
  auto kind = IoOptions::Backend::uring;
  if (options.backend != IoOptions::Backend::threads) {
    auto ring = make_ring_backend(options, shared);
    if (ring.ok()) {
      backend = std::move(ring).value();
    } else if (options.backend == IoOptions::Backend::uring) {
      return std::move(ring).error();
    } else {
      const ErrorInfo& refusal = ring.error().info();
      why = refusal.what;
      shared->notice(fmt::format("{}; threads read and write instead{}{}", refusal.what,
                                 refusal.advice.empty() ? "" : ": ", refusal.advice));
    }
  }
  if (!backend) {
    MERON_ASSIGN(backend, make_thread_backend(options, shared, why));
    kind = IoOptions::Backend::threads;
  }
  if (!have_fault_points() && std::getenv("MERON_IO_FAULTS") != nullptr) {
    shared->notice("MERON_IO_FAULTS is set, but this build has no fault points");
  }
  return std::shared_ptr<IoEngine>(new IoEngine(std::move(shared), std::move(backend), kind));
}

IoEngine::IoEngine(std::shared_ptr<IoShared> shared, std::shared_ptr<IoBackend> backend,
                   IoOptions::Backend kind)
    : owner_pid_(process_id()),
      shared_(std::move(shared)),
      backend_(std::move(backend)),
      name_(backend_->name()),
      kind_(kind) {}

IoEngine::~IoEngine() {
  if (!forked()) {
    backend_->close();
    return;
  }
  // The threads are the parent's, and locks may be held by threads that do not exist here: what
  // they guard is left alone.
  (void)new std::shared_ptr<IoBackend>(std::move(backend_));
  (void)new std::shared_ptr<IoShared>(std::move(shared_));
}

bool IoEngine::forked() const {
  return process_id() != owner_pid_;
}

Result<std::shared_ptr<IoFile>> IoEngine::add(DirectFile file) {
  if (forked()) return Error(MERON_E_FORKED, "storage belongs to the process that was forked");
  auto added = std::make_shared<IoFile>(std::move(file));
  backend_->add_file(*added);
  return added;
}

bool IoEngine::register_buffer(std::byte* data, uint64_t bytes) {
  return data != nullptr && bytes != 0 && !forked() && backend_->register_buffer(data, bytes);
}

void IoEngine::unregister_buffer(std::byte* data) {
  if (data == nullptr || forked()) return;
  // Destructors call this before they unmap the memory, so the kernel must release it first.
  for (int attempt = 0;; ++attempt) {
    try {
      return backend_->unregister_buffer(data);
    } catch (const std::bad_alloc&) {
      if (attempt == kAttempts) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::shared_ptr<IoTicket> IoEngine::read(const std::shared_ptr<IoFile>& file, uint64_t offset,
                                         std::byte* data, uint64_t bytes) {
  return begin(false, file, offset, data, bytes);
}

std::shared_ptr<IoTicket> IoEngine::write(const std::shared_ptr<IoFile>& file, uint64_t offset,
                                          const std::byte* data, uint64_t bytes) {
  return begin(true, file, offset, const_cast<std::byte*>(data), bytes);
}

std::shared_ptr<IoTicket> IoEngine::begin(bool write, const std::shared_ptr<IoFile>& file,
                                          uint64_t offset, std::byte* data, uint64_t bytes) {
  auto ticket = std::make_shared<IoTicket>(bytes);
  constexpr auto kMaxOffset = static_cast<uint64_t>(INT64_MAX);
  if (forked()) {
    ticket->end(Error(MERON_E_FORKED, "storage belongs to the process that was forked"));
  } else if (!file || (data == nullptr && bytes != 0)) {
    ticket->end(Error(MERON_E_ARGUMENT, !file ? "no file is given" : "no memory is given"));
  } else if (offset > kMaxOffset || bytes > kMaxOffset - offset) {
    ticket->end(
        Error(MERON_E_ARGUMENT,
              fmt::format("{} bytes at offset {} exceed the largest size of a file", bytes, offset))
            .on(file->path()));
  } else if (bytes == 0) {
    ticket->end({});
  } else {
    auto transfer = std::make_shared<Transfer>();
    transfer->write = write;
    transfer->file = file;
    transfer->offset = offset;
    transfer->data = data;
    transfer->bytes = bytes;
    transfer->ticket = ticket;
    backend_->submit(std::move(transfer));
  }
  return ticket;
}

void IoEngine::on_end(std::function<void()> wake) {
  if (!forked()) shared_->on_end(std::move(wake));
}

IoOptions::Backend IoEngine::kind() const {
  return kind_;
}

std::string IoEngine::backend() const {
  return name_;
}

std::vector<std::string> IoEngine::take_notices() {
  if (forked()) return {};
  return shared_->take_notices();
}

IoCounters IoEngine::counters() const {
  return shared_->counters();
}

}  // namespace meron

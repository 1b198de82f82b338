// SPDX-License-Identifier: Apache-2.0
#include "io/file_io.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/human_bytes.h"
#include "base/layout.h"
#include "os/memory_file.h"

namespace meron {
namespace {

constexpr uint64_t kMaxBytes = 1ull << 62;
// Longest time for which a waiting thread does not check that transfers progress.
constexpr int64_t kLookNs = 100 * kNanosPerMilli;
// How long close() waits, with the engine's own bound within. More than that is only waited for
// where another thread closes the engine, or a drive holds one of its threads.
constexpr int64_t kCloseNs = 10 * kNanosPerSecond;
// Paths that describe() remembers.
constexpr size_t kMaxBuffered = 16;

Error closed() {
  return Error(MERON_E_CLOSED, "this was closed", "open another one");
}

Status check_range(const std::string& path, uint64_t offset, uint64_t bytes) {
  constexpr auto kMaxOffset = static_cast<uint64_t>(INT64_MAX);
  if (offset <= kMaxOffset && bytes <= kMaxOffset - offset) return Ok{};
  return Error(
             MERON_E_ARGUMENT,
             fmt::format("{} bytes at offset {} exceed the largest size of a file", bytes, offset),
             "offset and bytes together are at most 2^63 - 1")
      .on(path);
}

Status check_end(const DirectFile& file, uint64_t offset, uint64_t bytes) {
  MERON_ASSIGN(const uint64_t size, file.size());
  if (offset + bytes <= size) return Ok{};
  const uint64_t found = size > offset ? std::min(bytes, size - offset) : 0;
  return Error(MERON_E_IO,
               fmt::format("{} bytes are wanted at offset {}, and {} are there: the file has {}",
                           bytes, offset, found, size),
               "read less, or write the file to its end first")
      .on(file.path());
}

}  // namespace

IoMemory::~IoMemory() {
  const std::shared_ptr<IoEngine> engine = engine_.lock();
  // Also where only a part of it was registered: what is mapped here next must not meet its slots.
  if (engine) engine->unregister_buffer(data());
}

IoRequest::~IoRequest() {
  if (!memory_ || !ticket_) return;
  const Status status = ticket_->status();
  // A drive may still write to memory that it did not release, so this memory is never freed.
  if (!ticket_->done() || (!status.ok() && status.error().code() == MERON_E_CLOSED)) {
    (void)new std::shared_ptr<IoMemory>(std::move(memory_));
  }
}

Result<std::shared_ptr<FileIo>> FileIo::open(const IoOptions& options, int64_t timeout_ns) {
  MERON_ASSIGN(auto engine, IoEngine::create(options));
  return std::shared_ptr<FileIo>(new FileIo(options, timeout_ns, std::move(engine)));
}

FileIo::FileIo(const IoOptions& options, int64_t timeout_ns, std::shared_ptr<IoEngine> engine)
    : options_(options), timeout_ns_(timeout_ns), engine_(std::move(engine)) {}

FileIo::~FileIo() {
  try {
    (void)close();
  } catch (const std::bad_alloc&) {
    // All requests have ended. A destructor cannot report which of them failed.
  }
}

Result<std::shared_ptr<IoEngine>> FileIo::engine() const {
  const std::shared_lock lock(engine_mutex_);
  if (!engine_) return closed();
  return engine_;
}

Result<std::shared_ptr<IoRequest>> FileIo::read(const std::string& path, uint64_t offset,
                                                std::byte* data, uint64_t bytes) {
  return begin(false, path, offset, data, bytes);
}

Result<std::shared_ptr<IoRequest>> FileIo::write(const std::string& path, uint64_t offset,
                                                 const std::byte* data, uint64_t bytes) {
  return begin(true, path, offset, const_cast<std::byte*>(data), bytes);
}

Result<std::shared_ptr<IoRequest>> FileIo::begin(bool write, const std::string& path,
                                                 uint64_t offset, std::byte* data, uint64_t bytes) {
  MERON_TRY(check_range(path, offset, bytes));
  // Not under the lock: a file system may take its time, and close() must not wait for it.
  MERON_ASSIGN(DirectFile opened, DirectFile::open(path, write ? FileUse::write : FileUse::read));
  MERON_TRY(write ? opened.extend(offset, bytes) : check_end(opened, offset, bytes));
  const std::string why_buffered = opened.why_buffered();
  std::shared_ptr<IoRequest> request(new IoRequest);
  request->path_ = path;
  request->memory_ = memory_of(data, bytes);

  const std::shared_lock lock(engine_mutex_);
  if (!engine_) return closed();
  MERON_ASSIGN(const std::shared_ptr<IoFile> file, engine_->add(std::move(opened)));
  const std::lock_guard pending_lock(mutex_);
  if (!why_buffered.empty() && buffered_.size() < kMaxBuffered) {
    buffered_.emplace(path, why_buffered);
  }
  // Nothing may fail once it is under way, in the caller's memory.
  request->number_ = next_number_;
  const auto added = pending_.emplace(request->number_, request).first;
  try {
    request->ticket_ = write ? engine_->write(file, offset, data, bytes)
                             : engine_->read(file, offset, data, bytes);
  } catch (const std::bad_alloc&) {
    pending_.erase(added);
    throw;
  }
  ++next_number_;
  moved_ns_ = now_ns();
  return request;
}

std::shared_ptr<IoMemory> FileIo::memory_of(const std::byte* data, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto after = memory_.upper_bound(data);
  if (after == memory_.begin()) return nullptr;
  const auto& [start, held] = *std::prev(after);
  std::shared_ptr<IoMemory> memory = held.lock();
  const auto at = static_cast<uint64_t>(data - start);
  // A range that only begins there is the caller's mistake, whose memory then is the caller's.
  const bool within = memory && at <= memory->bytes() && bytes <= memory->bytes() - at;
  return within ? memory : nullptr;
}

Status FileIo::check_moving(const std::string& path) {
  std::optional<uint64_t> requests;
  {
    const std::shared_lock lock(engine_mutex_);
    // Closing ends every request, unless the drive holds a thread for longer than that waits.
    if (engine_) requests = engine_->counters().requests;
  }
  const std::lock_guard lock(mutex_);
  const int64_t now = now_ns();
  if (requests && std::exchange(seen_requests_, *requests) != *requests) moved_ns_ = now;
  if (now - moved_ns_ <= timeout_ns_) return Ok{};
  return Error(MERON_E_TIMEOUT,
               fmt::format("the drive has moved nothing for {} s",
                           static_cast<double>(timeout_ns_) / kNanosPerSecond),
               "look at the drive and the kernel's log; the memory stays in use until a wait or "
               "the close has succeeded")
      .on(path);
}

Result<bool> FileIo::wait(const std::shared_ptr<IoRequest>& request, int64_t timeout_ns) {
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (!request->ticket_->wait(std::min(kLookNs, deadline.remaining()))) {
    MERON_TRY(check_moving(request->path()));
    if (deadline.passed()) return false;
  }
  {
    const std::lock_guard lock(mutex_);
    pending_.erase(request->number_);
  }
  MERON_TRY(request->status());
  return true;
}

std::shared_ptr<IoRequest> FileIo::first_under_way() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, request] : pending_) {
    if (!request->done()) return request;
  }
  return nullptr;
}

Result<bool> FileIo::wait_all(int64_t timeout_ns) {
  const Deadline deadline = timeout_ns < 0 ? Deadline::never() : Deadline::after(timeout_ns);
  while (const auto request = first_under_way()) {
    if (request->ticket_->wait(std::min(kLookNs, deadline.remaining()))) continue;
    MERON_TRY(check_moving(request->path()));
    if (deadline.passed()) return false;
  }
  MERON_TRY(take_ended());
  return true;
}

Status FileIo::take_ended() {
  std::vector<std::shared_ptr<IoRequest>> taken;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    taken.reserve(pending_.size());
    for (auto at = pending_.begin(); at != pending_.end();) {
      if (!at->second->done()) {
        ++at;
        continue;
      }
      taken.push_back(std::move(at->second));
      at = pending_.erase(at);
    }
  }
  // By MERON_E_CLOSED the caller learns that a drive holds memory: no other error hides it.
  std::optional<Error> first;
  uint64_t others = 0;
  for (const auto& request : taken) {
    Status status = request->status();
    if (status.ok()) continue;
    if (first) ++others;
    const bool held = status.error().code() == MERON_E_CLOSED;
    if (!first || (held && first->code() != MERON_E_CLOSED)) first = std::move(status).error();
  }
  if (!first) return Ok{};
  if (others > 0) {
    first->info().what +=
        fmt::format(" (and {} more request{} failed)", others, others == 1 ? "" : "s");
  }
  return *std::move(first);
}

Status FileIo::close() {
  std::shared_ptr<IoEngine> engine;
  {
    const std::unique_lock lock(engine_mutex_);
    engine = std::exchange(engine_, nullptr);
  }
  if (!engine) return Ok{};
  // A call of another thread that still holds it releases it at once; who is last closes it.
  const Deadline deadline = Deadline::after(kCloseNs);
  engine.reset();
  while (const auto request = first_under_way()) {
    if (request->ticket_->wait(deadline.remaining())) continue;
    return Error(MERON_E_TIMEOUT,
                 fmt::format("the drive has not released a request for {} s",
                             kCloseNs / kNanosPerSecond),
                 "look at the drive and the kernel's log; memory of the requests stays in use")
        .on(request->path());
  }
  return take_ended();
}

Result<std::shared_ptr<IoMemory>> FileIo::allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes) {
    return Error(MERON_E_ARGUMENT, fmt::format("a buffer of {} bytes", bytes),
                 "choose 1 byte or more");
  }
  MERON_ASSIGN(const std::shared_ptr<IoEngine> engine, this->engine());
  MERON_ASSIGN(const MemoryFile file, MemoryFile::create("meron-io", bytes));
  std::shared_ptr<IoMemory> memory(new IoMemory);
  MERON_ASSIGN(memory->mapping_,
               Mapping::map_file(file.fd(), static_cast<size_t>(file.size()), Access::read_write));
  MERON_TRY(memory->mapping_.populate(0, memory->mapping_.size()));
  memory->bytes_ = bytes;
  memory->engine_ = engine;
  memory->registered_ = engine->register_buffer(memory->data(), file.size());
  const std::lock_guard lock(mutex_);
  forget_memory_that_is_gone();
  memory_.insert_or_assign(memory->data(), memory);
  return memory;
}

void FileIo::forget_memory_that_is_gone() {
  std::erase_if(memory_, [](const auto& entry) { return entry.second.expired(); });
}

Result<FileIo::Info> FileIo::info() {
  MERON_ASSIGN(const std::shared_ptr<IoEngine> engine, this->engine());
  Info info;
  info.options = options_;
  info.options.backend = engine->kind();
  info.counters = engine->counters();
  std::vector<std::shared_ptr<IoMemory>> held;  // the last reference may go here: without the lock
  const std::lock_guard lock(mutex_);
  info.requests = next_number_;
  info.pending = pending_.size();
  for (const auto& [start, memory] : memory_) {
    held.push_back(memory.lock());
    if (held.back()) info.memory_bytes += held.back()->bytes();
  }
  return info;
}

Result<std::string> FileIo::describe() {
  MERON_ASSIGN(const std::shared_ptr<IoEngine> engine, this->engine());
  std::string text = fmt::format(
      "{}; blocks of {}, {} at a time\n", engine->backend(), human_bytes(options_.block),
      engine->kind() == IoOptions::Backend::uring ? options_.depth
                                                  : static_cast<uint32_t>(options_.threads));
  const std::lock_guard lock(mutex_);
  for (std::string& notice : engine->take_notices()) notices_.push_back(std::move(notice));
  for (const std::string& notice : notices_) text += notice + "\n";
  for (const auto& [path, why] : buffered_) {
    text += fmt::format("{}: through the page cache: {}\n", path, why);
  }
  return text;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "memory/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/held.h"
#include "base/human_bytes.h"
#include "base/layout.h"
#include "memory/reserve.h"
#include "os/host.h"
#include "os/memory_guard.h"
#include "os/process.h"

namespace meron {

std::string_view name_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::param:
      return "param";
    case MemoryKind::gradient:
      return "gradient";
    case MemoryKind::optimizer:
      return "optimizer";
    case MemoryKind::staging:
      return "staging";
    case MemoryKind::control:
      return "control";
  }
  return "?";
}

Result<std::shared_ptr<Arena>> Arena::create(const ArenaOptions& options) {
  using Made = Result<std::shared_ptr<Arena>>;
  return with_reserve(options.reserve, [&](uint64_t bytes) -> Made {
    MERON_ASSIGN(MemoryFile file, MemoryFile::create(options.name, bytes));
    MERON_ASSIGN(DoubleMapping mapped, DoubleMapping::map(file));
    return std::shared_ptr<Arena>(new Arena(std::move(file), std::move(mapped), options.limit));
  });
}

Arena::Arena(MemoryFile file, DoubleMapping mapped, uint64_t limit)
    : owner_pid_(process_id()),
      limit_(limit),
      file_(std::move(file)),
      mapped_(std::move(mapped)),
      offsets_(mapped_.size()) {
  // The first page is never allocated or populated: empty buffers point into it.
  offsets_.allocate(std::max(kPage, page_size()));
}

Arena::~Arena() {
  mapped_.allow(0, high_end_);
}

bool Arena::forked() const {
  return process_id() != owner_pid_;
}

namespace {

// Ok if the host could give so much memory, including all that was promised to gradients.
Status require_promised(uint64_t bytes) {
  Status possible = require_memory(bytes);
  if (possible.ok()) return possible;
  Error error = std::move(possible).error();
  error.info().what = "with all that gradients will take, " + error.info().what;
  return error;
}

}  // namespace

Status Arena::check_process(std::string_view name) const {
  if (!forked()) return Ok{};
  return Error(MERON_E_FORKED, "this process is a fork of the one that owns the memory",
               "open a context of its own in the child, or start it with exec")
      .on(std::string(name));
}

Result<Arena::Block> Arena::take_block(uint64_t bytes, uint64_t room, MemoryKind kind,
                                       std::string_view name, Starts starts) {
  // footprint() of a size beyond the mapping could wrap around.
  const bool fits = bytes <= size();
  const uint64_t charge = fits ? footprint(bytes) : bytes;
  MERON_TRY(check_limit(charge, bytes, kind, name));
  const bool grows = room > bytes && room <= size();
  uint64_t length = grows ? footprint(room) : charge;
  auto begin = fits ? offsets_.allocate(length, kPage) : std::nullopt;
  if (!begin && grows) {  // then without room to grow
    length = charge;
    begin = offsets_.allocate(length, kPage);
  }
  if (!begin) {
    return no_room(bytes, kind, name,
                   fmt::format("of the address space of {} the largest free range has {}",
                               human_bytes(size()), human_bytes(offsets_.largest_free())),
                   "open the context with a larger arena_reserve, or shard more of the state");
  }
  Block block{.begin = *begin, .charge = charge, .length = length, .start = *begin};
  if (bytes >= kColorThreshold) {
    const uint64_t color = next_color_++ % kColors * kColorStep;
    block.start += starts == Starts::anywhere ? color : color / kPage * kPage;
  }
  high_end_ = std::max(high_end_, block.begin + length);
  pending_ += charge;
  return block;
}

Buffer Arena::add_live(const Block& block, uint64_t bytes, MemoryKind kind, bool promised) {
  const uint64_t id = next_id_++;
  live_.emplace(id, Live{.block = block.begin,
                         .charge = block.charge,
                         .length = block.length,
                         .kind = kind,
                         .promised = promised});
  counts_[static_cast<size_t>(kind)].add(block.charge);
  total_.add(block.charge);
  if (promised) promised_ += block.charge;
  mapped_.forbid(block.begin, block.length);
  if (!promised) mapped_.allow(block.start, bytes);
  return Buffer{.offset = block.start, .data = data() + block.start, .bytes = bytes, .id = id};
}

Result<Buffer> Arena::allocate(uint64_t bytes, MemoryKind kind, std::string_view name,
                               Starts starts) {
  if (bytes >= kLongBytes) expect_unheld("taking much memory");
  MERON_TRY(check_process(name));
  std::unique_lock lock(mutex_);
  if (bytes == 0) {
    const uint64_t id = next_id_++;
    live_.emplace(id, Live{.kind = kind});
    const uint64_t offset = id * 64 % kPage;
    return Buffer{.offset = offset, .data = data() + offset, .bytes = 0, .id = id};
  }
  MERON_ASSIGN(const Block block, take_block(bytes, 0, kind, name, starts));
  const uint64_t promised = bytes >= kLongBytes ? promised_ : 0;
  lock.unlock();

  Status populated = promised > 0 ? require_promised(promised + block.charge) : Status(Ok{});
  if (populated.ok()) populated = mapped_.writable().populate(block.begin, block.charge);
  // Pages that were populated before the refusal are still zero.
  if (!populated.ok()) static_cast<void>(mapped_.writable().discard(block.begin, block.charge));

  lock.lock();
  pending_ -= block.charge;
  if (!populated.ok()) {
    offsets_.free(block.begin);
    return no_room(bytes, kind, name, populated.error());
  }
  return add_live(block, bytes, kind, false);
}

Result<Buffer> Arena::promise(uint64_t bytes, MemoryKind kind, std::string_view name,
                              uint64_t room) {
  if (bytes == 0) return allocate(0, kind, name);
  MERON_TRY(check_process(name));
  std::unique_lock lock(mutex_);
  MERON_ASSIGN(const Block block, take_block(bytes, room, kind, name, Starts::anywhere));
  const uint64_t all = promised_ + block.charge;
  lock.unlock();
  const Status possible = require_promised(all);
  lock.lock();
  pending_ -= block.charge;
  if (!possible.ok()) {
    offsets_.free(block.begin);
    return no_room(bytes, kind, name, possible.error());
  }
  return add_live(block, bytes, kind, true);
}

Status Arena::provide(const Buffer& buffer, std::string_view name) {
  if (buffer.bytes >= kLongBytes) expect_unheld("taking much memory");
  MERON_TRY(check_process(name));
  std::unique_lock lock(mutex_);
  const auto found = live_.find(buffer.id);
  if (found == live_.end() || !found->second.promised) return Ok{};
  const Live live = found->second;
  promised_ -= live.charge;  // while the host gives it, it is no more to come
  lock.unlock();

  const auto populated = mapped_.writable().populate(live.block, live.charge);
  // Pages that were populated before the refusal are still zero.
  if (!populated.ok()) static_cast<void>(mapped_.writable().discard(live.block, live.charge));

  lock.lock();
  if (!populated.ok()) {
    promised_ += live.charge;
    return no_room(buffer.bytes, live.kind, name, populated.error());
  }
  live_.at(buffer.id).promised = false;
  mapped_.allow(buffer.offset, buffer.bytes);
  return Ok{};
}

Status Arena::extend(const Buffer& buffer, uint64_t bytes, std::string_view name) {
  if (bytes >= kLongBytes) expect_unheld("taking much memory");
  MERON_TRY(check_process(name));
  std::unique_lock lock(mutex_);
  const auto found = live_.find(buffer.id);
  if (found == live_.end()) return Ok{};
  const Live live = found->second;
  const uint64_t charge = footprint(bytes);
  if (live.promised) return Error(MERON_E_INTERNAL, "memory that grows was not provided");
  if (charge <= live.charge) {
    mapped_.allow(buffer.offset, bytes);
    return Ok{};
  }
  const uint64_t more = charge - live.charge;
  if (charge > live.length) {
    return no_room(more, live.kind, name, "the address space behind what is to grow is taken",
                   "open the context with a larger arena_reserve, or shard more of the state");
  }
  MERON_TRY(check_limit(more, more, live.kind, name));
  pending_ += more;
  const uint64_t promised = more >= kLongBytes ? promised_ : 0;
  lock.unlock();

  const uint64_t end = live.block + live.charge;
  Status populated = promised > 0 ? require_promised(promised + more) : Status(Ok{});
  if (populated.ok()) populated = mapped_.writable().populate(end, more);
  // Pages that exist by then are still zero.
  if (!populated.ok()) static_cast<void>(mapped_.writable().discard(end, more));

  lock.lock();
  pending_ -= more;
  if (!populated.ok()) return no_room(more, live.kind, name, populated.error());
  live_.at(buffer.id).charge = charge;
  counts_[static_cast<size_t>(live.kind)].add(more);
  total_.add(more);
  mapped_.allow(buffer.offset, bytes);
  return Ok{};
}

void Arena::release(const Buffer& buffer) {
  if (!buffer || forked()) return;
  std::unique_lock lock(mutex_);
  const auto it = live_.find(buffer.id);
  if (it == live_.end()) return;
  const Live live = it->second;
  live_.erase(it);
  if (live.charge == 0) return;
  counts_[static_cast<size_t>(live.kind)].usage -= live.charge;
  total_.usage -= live.charge;
  if (live.promised) promised_ -= live.charge;
  // The range stays allocated until its pages are discarded.
  lock.unlock();
  if (!live.promised) clear(live.block, live.charge);
  mapped_.forbid(live.block, live.length);
  lock.lock();
  offsets_.free(live.block);
}

Status Arena::charge(uint64_t bytes, MemoryKind kind, std::string_view name) {
  const std::lock_guard lock(mutex_);
  MERON_TRY(check_limit(bytes, bytes, kind, name));
  counts_[static_cast<size_t>(kind)].add(bytes);
  total_.add(bytes);
  return Ok{};
}

void Arena::discharge(uint64_t bytes, MemoryKind kind) {
  const std::lock_guard lock(mutex_);
  counts_[static_cast<size_t>(kind)].usage -= bytes;
  total_.usage -= bytes;
}

void Arena::clear(uint64_t begin, uint64_t bytes) {
  // The next buffer there must read as zero. Blocks end on kPage. If the host's pages are larger, a
  // block shares the pages at its ends, which are cleared by hand; so is all if discard() fails.
  const uint64_t end = begin + bytes;
  uint64_t hole_begin = std::min(end, round_up(begin, page_size()));
  uint64_t hole_end = std::max(hole_begin, end / page_size() * page_size());
  mapped_.allow(begin, bytes);
  if (!mapped_.writable().discard(begin, bytes).ok()) hole_begin = hole_end = end;
  std::memset(data() + begin, 0, hole_begin - begin);
  std::memset(data() + hole_end, 0, end - hole_end);
}

Status Arena::check_limit(uint64_t charge, uint64_t bytes, MemoryKind kind,
                          std::string_view name) const {
  const uint64_t taken = total_.usage + pending_;
  if (limit_ == 0 || (taken <= limit_ && charge <= limit_ - taken)) return Ok{};
  return no_room(bytes, kind, name,
                 fmt::format("the memory budget of {} has {} left", human_bytes(limit_),
                             human_bytes(limit_ - std::min(limit_, taken))),
                 "raise the context's host_memory_limit, or shard more of the state");
}

Error Arena::no_room(uint64_t bytes, MemoryKind kind, std::string_view name, const Error& why) {
  return no_room(bytes, kind, name, why.info().what, why.info().advice);
}

Error Arena::no_room(uint64_t bytes, MemoryKind kind, std::string_view name, std::string_view why,
                     std::string_view advice) {
  return Error(MERON_E_NO_MEMORY,
               fmt::format("cannot allocate {} of {} memory: {}", human_bytes(bytes), name_of(kind),
                           why),
               std::string(advice))
      .on(std::string(name));
}

uint64_t Arena::usage(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(kind)].usage;
}

uint64_t Arena::peak(MemoryKind kind) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<size_t>(kind)].peak;
}

uint64_t Arena::total_usage() const {
  const std::lock_guard lock(mutex_);
  return total_.usage;
}

uint64_t Arena::total_peak() const {
  const std::lock_guard lock(mutex_);
  return total_.peak;
}

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "drive.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/layout.h"

namespace meron::bench {
namespace {

template <class T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  fmt::print(stderr, "{}\n", result.error().info().what);
  std::exit(1);
}

void end(const std::shared_ptr<IoTicket>& ticket) {
  if (!ticket) return;
  ticket->wait(-1);
  must(ticket->status());
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Drive::Drive(const std::string& directory, uint64_t bytes, uint64_t piece, uint64_t pieces)
    : piece_(piece), count_((bytes + piece - 1) / piece), slots_(pieces) {
  storage_ = must(Storage::open(directory, {}, [] {}));
  extent_ = must(storage_->swap().allocate(count_ * piece_));
  file_ = must(MemoryFile::create("bench-offload-step", 2 * slots_ * piece_));
  memory_ = must(Mapping::map_file(file_.fd(), file_.size(), Access::read_write));
  must(memory_.populate(0, memory_.size()));
  storage_->engine().register_buffer(memory_.data(), memory_.size());
  write();
}

std::shared_ptr<IoTicket> Drive::begin(bool write, uint64_t piece, uint64_t slot) {
  std::byte* const data = memory_.data() + slot * piece_;
  const uint64_t offset = extent_.offset + piece * piece_;
  return write ? storage_->engine().write(storage_->file(), offset, data, piece_)
               : storage_->engine().read(storage_->file(), offset, data, piece_);
}

double Drive::pass(bool reads, bool writes) {
  std::vector<std::shared_ptr<IoTicket>> tickets(2 * slots_);
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count_; ++i) {
    const uint64_t slot = i % slots_;
    if (reads) {
      end(tickets[slot]);
      tickets[slot] = begin(false, i, slot);
    }
    if (writes) {
      const uint64_t other = reads ? (i + count_ / 2) % count_ : i;
      end(tickets[slots_ + slot]);
      tickets[slots_ + slot] = begin(true, other, slots_ + slot);
    }
  }
  for (const auto& ticket : tickets) end(ticket);
  return seconds_since(began);
}

double Drive::serial(const std::function<void(uint64_t piece)>& work) {
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < count_; ++i) {
    end(begin(false, i, 0));
    work(i);
    end(begin(true, i, 0));
  }
  return seconds_since(began);
}

}  // namespace meron::bench

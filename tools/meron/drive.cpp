// SPDX-License-Identifier: Apache-2.0
#include "tools/meron/drive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/human_bytes.h"
#include "os/memory_file.h"
#include "tools/meron/failure.h"
#include "tools/meron/text.h"

namespace meron::tools {
namespace {

constexpr uint64_t kTicket = 4 << 20;   // at least the largest block
constexpr uint64_t kMemory = 64 << 20;  // a multiple of it

template <class T>
T take(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  const ErrorInfo& info = result.error().info();
  throw Failure(fmt::format("{}{}{}{}{}", info.subject, info.subject.empty() ? "" : ": ", info.what,
                            info.advice.empty() ? "" : "; ", info.advice));
}

void finish(const std::shared_ptr<IoTicket>& ticket) {
  (void)ticket->wait(-1);
  take(ticket->status());
}

}  // namespace

std::string Setting::text() const {
  return fmt::format("{} x {}{}", human_bytes(block), requests(), uring() ? "" : " threads");
}

double Rate::gigabytes() const {
  return seconds > 0.0 ? static_cast<double>(bytes) / seconds * 1e-9 : 0.0;
}

uint64_t Rate::whole() const {
  return std::max<uint64_t>(1, std::llround(gigabytes() * 1e9));
}

double Measurement::both() const {
  return 2.0 / (1.0 / std::max(read.gigabytes(), 1e-9) + 1.0 / std::max(write.gigabytes(), 1e-9));
}

MeasuredMemory::MeasuredMemory() {
  const MemoryFile file = take(MemoryFile::create("meron-io-bench", kMemory));
  mapping_ = take(Mapping::map_file(file.fd(), kMemory, Access::read_write));
  take(mapping_.populate(0, kMemory));
  // A drive may compress.
  std::mt19937_64 random;
  for (uint64_t at = 0; at < kMemory; at += sizeof(uint64_t)) {
    const uint64_t drawn = random();
    std::memcpy(data() + at, &drawn, sizeof drawn);
  }
}

Drive::Drive(const std::string& directory, uint64_t size)
    : size_(size), file_(take(DirectFile::create(directory, size))) {
  take(file_.reserve(0, size));
  const auto engine = take(IoEngine::create());
  const auto file = open(*engine);
  (void)move(*engine, file, true, kTicket, -1);
  // Check that the measured transfers move the right bytes.
  const uint64_t bytes = std::min<uint64_t>(size, kTicket);
  std::vector<std::byte> written(memory_.data(), memory_.data() + bytes);
  finish(engine->write(file, 0, memory_.data(), bytes));
  std::memset(memory_.data(), 0, bytes);
  finish(engine->read(file, 0, memory_.data(), bytes));
  if (std::memcmp(written.data(), memory_.data(), bytes) != 0) {
    throw Failure(fmt::format("{}: what is read is not what was written", directory));
  }
}

std::shared_ptr<IoEngine> Drive::start(const Setting& setting) const {
  auto engine = take(IoEngine::create({.block = setting.block,
                                       .depth = setting.depth,
                                       .threads = setting.threads,
                                       .backend = setting.backend}));
  engine->register_buffer(memory_.data(), kMemory);
  return engine;
}

Measurement Drive::measure(const Setting& setting, double seconds) const {
  const auto engine = start(setting);
  const auto file = open(*engine);
  const auto limit = static_cast<int64_t>(seconds * 1e9);
  const uint64_t ahead = setting.requests() * setting.block;
  Measurement done;
  done.setting = setting;
  done.read = move(*engine, file, false, ahead, limit);
  done.write = move(*engine, file, true, ahead, limit);
  return done;
}

Rate Drive::both(const Setting& setting, double seconds) const {
  const auto engine = start(setting);
  const auto file = open(*engine);
  const auto limit = static_cast<int64_t>(seconds * 1e9);
  const size_t most = 2 * (setting.requests() * setting.block / kTicket + 2);
  const uint64_t half = size_ / 2;
  const uint64_t ticket = std::min(kTicket, half);
  std::deque<std::shared_ptr<IoTicket>> under_way;
  const int64_t begin = now_ns();
  uint64_t at = 0;
  for (; at + ticket <= half && now_ns() - begin < limit; at += ticket) {
    while (under_way.size() >= most) {
      finish(under_way.front());
      under_way.pop_front();
    }
    // Writes and concurrent reads use different memory.
    std::byte* const to = memory_.data() + at % (kMemory / 2);
    under_way.push_back(engine->read(file, at, to, ticket));
    under_way.push_back(engine->write(file, half + at, to + kMemory / 2, ticket));
  }
  for (const auto& ticket : under_way) finish(ticket);
  return {.bytes = at, .seconds = static_cast<double>(now_ns() - begin) * 1e-9};
}

// Each engine has a file of its own, of the same bytes.
std::shared_ptr<IoFile> Drive::open(IoEngine& engine) const {
  return take(
      engine.add(take(DirectFile::open(fmt::format("/proc/self/fd/{}", file_.buffered_fd())))));
}

// Keeps at least `ahead` bytes in the engine. Transfers beyond the memory reuse it, because nothing
// reads their bytes.
Rate Drive::move(IoEngine& engine, const std::shared_ptr<IoFile>& file, bool write, uint64_t ahead,
                 int64_t limit_ns) const {
  const size_t most = ahead / kTicket + 2;
  std::deque<std::shared_ptr<IoTicket>> under_way;
  const int64_t begin = now_ns();
  uint64_t at = 0;
  while (at < size_ && (limit_ns < 0 || now_ns() - begin < limit_ns)) {
    if (under_way.size() == most) {
      finish(under_way.front());
      under_way.pop_front();
    }
    const uint64_t bytes = std::min(kTicket, size_ - at);
    std::byte* const data = memory_.data() + at % kMemory;
    under_way.push_back(write ? engine.write(file, at, data, bytes)
                              : engine.read(file, at, data, bytes));
    at += bytes;
  }
  for (const auto& ticket : under_way) finish(ticket);
  return {.bytes = at, .seconds = static_cast<double>(now_ns() - begin) * 1e-9};
}

}  // namespace meron::tools

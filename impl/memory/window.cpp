// SPDX-License-Identifier: Apache-2.0
#include "memory/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/held.h"
#include "base/layout.h"
#include "memory/reserve.h"
#include "os/process.h"

namespace meron {

Result<std::shared_ptr<Window>> Window::create(uint64_t reserve) {
  using Made = Result<std::shared_ptr<Window>>;
  return with_reserve(reserve, [](uint64_t bytes) -> Made {
    MERON_ASSIGN(MemoryFile file, MemoryFile::create("meron-window", bytes));
    return map(std::move(file));
  });
}

Result<std::shared_ptr<Window>> Window::attach(UniqueFd fd) {
  MERON_ASSIGN(MemoryFile file, MemoryFile::adopt(std::move(fd)));
  return map(std::move(file));
}

Result<std::shared_ptr<Window>> Window::map(MemoryFile file) {
  MERON_ASSIGN(DoubleMapping mapped, DoubleMapping::map(file));
  return std::shared_ptr<Window>(new Window(std::move(file), std::move(mapped)));
}

Window::Window(MemoryFile file, DoubleMapping mapped)
    : owner_pid_(process_id()), file_(std::move(file)), mapped_(std::move(mapped)) {}

Status Window::check_owner(const char* verb) const {
  if (process_id() == owner_pid_) return Ok{};
  return Error(MERON_E_FORKED,
               fmt::format("cannot {} memory of the window: this process is a fork of the one that "
                           "opened it",
                           verb),
               "open a context of its own in the child, or start it with exec");
}

Status Window::reserve(uint64_t offset, uint64_t bytes) {
  if (bytes >= kLongBytes) expect_unheld("reserving much memory");
  MERON_TRY(check_owner("reserve"));
  return mapped_.writable().populate(offset, bytes);
}

void Window::prefault(uint64_t offset, uint64_t bytes) const {
  mapped_.readable().prefault(offset, bytes);
}

Status Window::discard(uint64_t offset, uint64_t bytes) {
  if (bytes >= kLongBytes) expect_unheld("giving back much memory");
  MERON_TRY(check_owner("discard"));
  return mapped_.writable().discard(offset, bytes);
}

void Window::clear(uint64_t offset, uint64_t bytes) {
  if (!check_owner("clear").ok()) return;
  // Pages at the ends may be shared with neighbours.
  const uint64_t end = offset + bytes;
  const uint64_t first = std::min(end, round_up(offset, kPage));
  const uint64_t last = std::max(first, end / kPage * kPage);
  std::memset(writable(offset), 0, first - offset);
  std::memset(writable(last), 0, end - last);
  if (!discard(first, last - first).ok()) std::memset(writable(first), 0, last - first);
}

Result<std::shared_ptr<PeerArena>> PeerArena::attach(UniqueFd fd) {
  MERON_ASSIGN(const MemoryFile file, MemoryFile::adopt(std::move(fd)));
  MERON_ASSIGN(Mapping mapping, Mapping::map_file(file.fd(), file.size(), Access::read));
  return std::shared_ptr<PeerArena>(new PeerArena(std::move(mapping)));
}

}  // namespace meron

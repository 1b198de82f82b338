// SPDX-License-Identifier: Apache-2.0
#include "os/job_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace meron {

// Both are all zeros at first: no rank has ended, none is blamed.
struct JobBoard::Header {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> ranks;
};
struct JobBoard::Slot {
  std::atomic<uint32_t> ended;   // 0, or kEnded + wait status
  std::atomic<uint32_t> blamed;  // 0, or 1 + rank
  static constexpr uint32_t kEnded = 1u << 31;
};

namespace {

constexpr uint64_t kMagic = 0x64616f62006d6a01ull;  // layout 1

std::optional<int> read_number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return {};
  int value = -1;
  const char* end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, value);
  if (code != std::errc{} || stop != end || value < 0) return {};
  return value;
}

}  // namespace

Result<std::unique_ptr<JobBoard>> JobBoard::create(int ranks) {
  const auto count = static_cast<uint64_t>(ranks);
  MERON_ASSIGN(MemoryFile file,
               MemoryFile::create("meron-board", sizeof(Header) + count * sizeof(Slot)));
  MERON_ASSIGN(Mapping mapping, Mapping::map_file(file.fd(), file.size(), Access::read_write));
  MERON_TRY(mapping.populate(0, mapping.size()));
  std::unique_ptr<JobBoard> board(new JobBoard(std::move(file), std::move(mapping), ranks));
  board->header().ranks = static_cast<uint32_t>(ranks);
  board->header().magic = kMagic;
  return board;
}

Result<std::unique_ptr<JobBoard>> JobBoard::adopt(int fd, int ranks) {
  // The descriptor stays open, for programs that this one may start in its place.
  MERON_ASSIGN(MemoryFile file, MemoryFile::adopt(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 3))));
  const uint64_t bytes = sizeof(Header) + static_cast<uint64_t>(ranks) * sizeof(Slot);
  if (file.size() < bytes) return Error(MERON_E_MISMATCH, "the board is of another job");
  MERON_ASSIGN(Mapping mapping, Mapping::map_file(file.fd(), file.size(), Access::read_write));
  std::unique_ptr<JobBoard> board(new JobBoard(std::move(file), std::move(mapping), ranks));
  if (board->header().magic != kMagic || board->header().ranks != static_cast<uint32_t>(ranks)) {
    return Error(MERON_E_MISMATCH, "the board is of another job");
  }
  return board;
}

JobBoard* JobBoard::of_launcher() {
  static const std::unique_ptr<JobBoard> board = []() -> std::unique_ptr<JobBoard> {
    const auto fd = read_number("MERON_BOARD_FD");
    const auto ranks = read_number("MERON_WORLD_SIZE");
    if (!fd || !ranks) return nullptr;
    auto adopted = adopt(*fd, *ranks);
    // A wrapper may have closed the descriptor or taken its number: all works without.
    return adopted.ok() ? std::move(*adopted) : nullptr;
  }();
  return board.get();
}

JobBoard::Header& JobBoard::header() const {
  return *reinterpret_cast<Header*>(const_cast<std::byte*>(mapping_.data()));
}

JobBoard::Slot* JobBoard::slot(int rank) const {
  if (rank < 0 || rank >= ranks_) return nullptr;
  return reinterpret_cast<Slot*>(const_cast<std::byte*>(mapping_.data()) + sizeof(Header)) + rank;
}

void JobBoard::set_ended(int rank, int wait_status) {
  if (Slot* const own = slot(rank)) own->ended = Slot::kEnded | static_cast<uint32_t>(wait_status);
}

std::optional<int> JobBoard::ended(int rank) const {
  const Slot* const of_rank = slot(rank);
  const uint32_t word = of_rank != nullptr ? of_rank->ended.load() : 0;
  if (word == 0) return {};
  return static_cast<int>(word & ~Slot::kEnded);
}

void JobBoard::set_blamed(int rank, int peer) {
  uint32_t nobody = 0;
  if (Slot* const own = slot(rank); own != nullptr && slot(peer) != nullptr) {
    own->blamed.compare_exchange_strong(nobody, static_cast<uint32_t>(peer) + 1);
  }
}

void JobBoard::clear_blame(int rank) {
  if (Slot* const own = slot(rank)) own->blamed = 0;
}

std::optional<int> JobBoard::blamed(int rank) const {
  const Slot* const of_rank = slot(rank);
  const uint32_t word = of_rank != nullptr ? of_rank->blamed.load() : 0;
  if (word == 0 || word > static_cast<uint32_t>(ranks_)) return {};
  return static_cast<int>(word - 1);
}

int JobBoard::first_of(int rank) const {
  int first = rank;
  for (int steps = 0; steps < ranks_; ++steps) {  // they may blame each other
    const auto peer = blamed(first);
    if (!peer || !ended(*peer)) return first;
    first = *peer;
  }
  return rank;
}

std::string end_text(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return fmt::format("was killed by signal {}", WTERMSIG(wait_status));
  return fmt::format("exited with code {}", WEXITSTATUS(wait_status));
}

}  // namespace meron

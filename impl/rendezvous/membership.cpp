// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership.h"

#include <utility>

#include "os/memory_file.h"
#include "transport/control.h"

namespace meron {

Result<Membership> Membership::attach(const MeetingOptions& options, const UniqueFd& window) {
  const auto ranks = static_cast<uint64_t>(options.ranks_in_window());
  MERON_ASSIGN(const MemoryFile file, MemoryFile::adopt(window.duplicate()));
  const auto differs = [] {
    return Error(MERON_E_VERSION, "rank 0's window is of another layout",
                 "let all ranks load the same library");
  };
  if (file.size() < header_bytes(ranks)) return differs();
  MERON_ASSIGN(Mapping head, Mapping::map_file(file.fd(), header_bytes(ranks), Access::read_write));
  const auto* header = reinterpret_cast<const WindowHeader*>(head.data());
  if (header->magic != kWindowMagic || header->world_size != ranks) return differs();
  return Membership(options, std::move(head));
}

Membership::~Membership() {
  if (head_.valid() && !confirmed_) mark_left(options_->rank);
}

void Membership::mark_left(int rank) {
  auto* ranks = reinterpret_cast<RankBlock*>(head_.data() + sizeof(WindowHeader));
  ranks[options_->named(rank)].left.store(1, std::memory_order_seq_cst);
}

}  // namespace meron

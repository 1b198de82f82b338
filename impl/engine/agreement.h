// SPDX-License-Identifier: Apache-2.0
// Words between the ranks of a world on how far a checkpoint is.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collective/collective.h"
#include "collective/operation.h"

namespace meron {

// Keeps the memory of a collective until it has ended, even if a caller cancels the wait for it.
template <class Collective>
class Agreement final : public Operation {
 public:
  template <class... Args>
  Agreement(Channel& channel, Deadline deadline, std::shared_ptr<std::vector<std::byte>> memory,
            Args... args)
      : Operation(channel, deadline),
        memory_(std::move(memory)),
        collective_(channel, deadline, args...) {}
  Result<bool> advance() override { return collective_.advance(); }
  std::vector<int> missing() const override { return collective_.missing(); }
  std::string describe() const override { return "agreement on a checkpoint"; }
  bool staged() const override { return true; }

 private:
  std::shared_ptr<std::vector<std::byte>> memory_;
  Collective collective_;
};

// `run` posts the agreement, with so many bytes, and waits for it.
template <class Run>
Status agree_by_broadcast(Channel& channel, Deadline deadline, std::byte* data, uint64_t bytes,
                          int root, Run run) {
  auto memory = std::make_shared<std::vector<std::byte>>(data, data + bytes);
  std::byte* const place = memory->data();
  MERON_TRY(run(bytes, std::make_shared<Agreement<BroadcastOperation>>(channel, deadline, memory,
                                                                       place, bytes, root)));
  std::copy_n(place, bytes, data);
  return Ok{};
}

template <class Run>
Status agree_by_gather(Channel& channel, Deadline deadline, const std::byte* own, uint64_t bytes,
                       std::byte* all, Run run) {
  const uint64_t total = bytes * static_cast<uint64_t>(channel.size());
  auto memory = std::make_shared<std::vector<std::byte>>(bytes + total);
  std::byte* const place = memory->data();
  std::copy_n(own, bytes, place);
  MERON_TRY(run(bytes, std::make_shared<Agreement<AllGatherOperation>>(
                           channel, deadline, memory, place, bytes, place + bytes)));
  std::copy_n(place + bytes, total, all);
  return Ok{};
}

}  // namespace meron

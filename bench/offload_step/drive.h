// SPDX-License-Identifier: Apache-2.0
// What the drive alone takes for the bytes of a step, by the same engine and requests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/storage.h"
#include "os/mapping.h"
#include "os/memory_file.h"

namespace meron::bench {

class Drive {
 public:
  // A file of `bytes` in `directory`, written once. A transfer has `piece` bytes; `pieces`
  // transfers are in memory at a time.
  Drive(const std::string& directory, uint64_t bytes, uint64_t piece, uint64_t pieces);

  // Seconds for all bytes: read; written; the first half read while the second is written and the
  // other way round, as a step does both at the same time.
  double read() { return pass(true, false); }
  double write() { return pass(false, true); }
  double both() { return pass(true, true); }
  // One piece after the other: read, work(piece), written, each waited for.
  double serial(const std::function<void(uint64_t piece)>& work);

 private:
  double pass(bool reads, bool writes);
  std::shared_ptr<IoTicket> begin(bool write, uint64_t piece, uint64_t slot);

  std::unique_ptr<Storage> storage_;
  Extent extent_;
  uint64_t piece_, count_, slots_;
  MemoryFile file_;
  Mapping memory_;
};

}  // namespace meron::bench

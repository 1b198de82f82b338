// SPDX-License-Identifier: Apache-2.0
// What this rank holds of a flat's values, on tier nvme: read into the window for a gather or an
// update, and written back when they have changed.
//
// Every 64 KiB have a checksum in memory: what comes from the drive is compared before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/storage.h"
#include "param/rank.h"

namespace meron {

class StoredValues {
 public:
  // Takes room in the file for the `bytes` bytes that lie at `data` while they are in memory; a
  // transfer under way uses that memory. `phase`: value_phase() of them. They are zero until they
  // are first stored. Errors: those of Rank::open_storage and SwapFile::allocate.
  static Result<std::unique_ptr<StoredValues>> create(Rank& rank, std::byte* data, uint64_t bytes,
                                                      uint64_t phase, std::string name);
  StoredValues(const StoredValues&) = delete;
  StoredValues& operator=(const StoredValues&) = delete;

  // Never waits, and begins to read where that has not begun. Whether they are in memory. An error
  // is that of a transfer, also of an earlier write, and stays: MERON_E_CORRUPT where they are not
  // what was written.
  Result<bool> bring();
  // The same for a change, which no transfer may be under way at. `whole`: all of them will be
  // written, so that nothing has to be read.
  Result<bool> open(bool whole);
  // They have changed in memory, and go to the drive.
  void store();
  // Gives the room in the file back, before anything was stored there.
  void give_back();
  // The memory is given back. Not while busy().
  void forget();

  bool busy() const { return transfer_ != nullptr && !transfer_->done(); }
  // Sleeps until the transfer under way has ended, at most `timeout_ns`; at once where none is.
  void wait(int64_t timeout_ns) const;
  // "1 read of /local is under way", for messages.
  std::string describe() const;

 private:
  StoredValues(Rank& rank, std::byte* data, uint64_t bytes, std::string name);
  // Takes note of a transfer that has ended.
  Status settle();
  void read();
  Status verify();
  template <class Body>
  void for_blocks(Body body);

  Rank& rank_;
  std::byte* const data_;
  const uint64_t bytes_;
  const std::string name_;  // for errors
  Extent extent_;
  uint64_t offset_ = 0;  // of the values, in the file
  std::vector<uint32_t> checksums_;
  std::shared_ptr<IoTicket> transfer_;
  bool writing_ = false;  // what transfer_ does
  bool stored_ = false;   // the file has them
  bool here_ = false;     // the memory does
  std::optional<Error> error_;
};

}  // namespace meron

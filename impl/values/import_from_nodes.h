// SPDX-License-Identifier: Apache-2.0
// Values on their way between nodes. What a remote rank holds is staged by one rank of this node
// for all of them: each byte crosses the link once per node, and lands in memory that the node's
// ranks share. First parts along the replica axis, which makes the node's rows whole, then rows
// along the shard axis.
#pragma once

#include <memory>
#include <vector>

#include "rank/staging.h"
#include "unit/unit.h"

namespace meron {

class Import {
 public:
  // What lies where: parts of this rank's row (by replica); rows (by place on the shard axis); or,
  // of values that every rank holds whole, what each member of `axis` has updated.
  enum class Kind { parts, rows, whole };

  // Begins to send what this rank holds and to receive its share of what is staged, under `tag`,
  // for flats that need it. `again`: what comes is in place already, or about to be, and is
  // dropped.
  static Result<std::shared_ptr<Import>> begin(Unit& unit, Kind kind, Channel& axis, uint64_t tag,
                                               bool again);

  bool done() const { return batch_->done(); }
  const std::shared_ptr<Batch>& batch() const { return batch_; }
  // Once, when it is done: decodes what came encoded, and counts.
  void unpack();

 private:
  struct Piece {
    Flat* flat;
    Range range;
    std::shared_ptr<Staging> staging;  // null: received where it belongs
  };
  Import(Unit& unit, Kind kind, bool again);
  Range range_of(const Flat& flat, const Channel& axis, int member) const;
  bool encoded(const Flat& flat) const;
  uint64_t wire_bytes_of(const Flat& flat, const Range& range) const;
  Status exchange(Flat& flat, Channel& axis, uint64_t tag);

  Unit& unit_;
  Kind kind_;
  bool again_;
  std::shared_ptr<Batch> batch_;
  std::vector<Piece> pieces_;
};

}  // namespace meron

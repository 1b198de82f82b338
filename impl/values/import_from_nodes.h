// SPDX-License-Identifier: Apache-2.0
// Inter-node transfer of values. One rank of this node stages a remote rank's values for all of
// them, so each byte crosses the link once per node, into the node's shared segment. Parts along
// the replica axis come first and complete the node's rows; then rows along the shard axis.
#pragma once

#include <memory>
#include <vector>

#include "rank/staging.h"
#include "unit/unit.h"

namespace meron {

class Import {
 public:
  // Contents: parts of this rank's row, by replica; rows, by index on the shard axis; or `whole`:
  // for values that every rank holds in full, the ranges updated by each member of `axis`.
  enum class Kind { parts, rows, whole };

  // Begins to send this rank's values and to receive its share of the staged ones, under `tag`, for
  // flats that need it. `again`: an earlier import stages the same values, so received ones are
  // dropped.
  static Result<std::shared_ptr<Import>> begin(Unit& unit, Kind kind, Channel& axis, uint64_t tag,
                                               bool again);

  bool done() const { return batch_->done(); }
  const std::shared_ptr<Batch>& batch() const { return batch_; }
  // Decodes received values, and counts them; once, when it is done.
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

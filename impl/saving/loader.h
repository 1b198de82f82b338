// SPDX-License-Identifier: Apache-2.0
// Reads what this rank owns of the units' states out of a checkpoint, unit by unit, in bounded
// pieces.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/block_reader.h"
#include "checkpoint/directory.h"
#include "checkpoint/staging.h"
#include "saving/exchange.h"
#include "saving/matching.h"
#include "state/unit_state.h"

namespace meron {

class Loader {
 public:
  // Finds all ranges and opens the files; nothing has changed yet. `checkpoint` and `units` must
  // stay. Errors: those of BlockReader::create.
  static Result<std::unique_ptr<Loader>> create(const checkpoint::Checkpoint& checkpoint,
                                                std::span<const UnitState> units,
                                                const Matching& matching,
                                                const std::shared_ptr<checkpoint::Staging>& staging,
                                                int64_t timeout_ns);

  // Gives the next unit its states; an update of it is open. In the order of the units. Errors name
  // the tensor.
  Status load_next(Exchange& exchange);
  uint64_t bytes_read() const { return reader_ ? reader_->bytes_read() : 0; }

 private:
  // A piece of a state, and where its elements come from: `ranges` of the reader, one after the
  // other.
  struct Source {
    const checkpoint::Tensor* tensor;
    uint64_t at;  // element of the piece
    uint64_t count;
    uint64_t bytes;  // in the file
  };
  struct Piece {
    State state;
    Range range;
    std::vector<Source> sources;
    bool whole;  // every element of a param has a source
  };
  Loader(std::span<const UnitState> units) : units_(units), pieces_(units.size()) {}
  static void add_sources(const checkpoint::Tensor& tensor, const ParamSpan& span, Piece* piece,
                          std::vector<checkpoint::WantedRange>* wanted);
  void plan(const Matching& matching, std::vector<checkpoint::WantedRange>* wanted);

  std::span<const UnitState> units_;
  std::vector<std::vector<Piece>> pieces_;           // by unit
  std::unique_ptr<checkpoint::BlockReader> reader_;  // null: nothing is read
  size_t next_ = 0;
};

}  // namespace meron

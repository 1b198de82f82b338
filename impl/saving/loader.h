// SPDX-License-Identifier: Apache-2.0
// Reads what this rank owns of the units' states out of a checkpoint, unit by unit, in bounded
// pieces. Or some ranks read, each its files, and scatter each piece to those who own it.
#pragma once

#include <algorithm>
#include <cstddef>
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
  struct Options {
    int64_t timeout_ns = -1;
    // By file, the rank that reads it for all; empty: each rank reads what it owns.
    std::vector<int> readers = {};
  };
  // True if this rank may read files, with such Options::readers.
  static bool reads_here(const Exchange& exchange, const std::vector<int>& readers) {
    return readers.empty() ||
           std::find(readers.begin(), readers.end(), exchange.rank()) != readers.end();
  }
  // Finds all ranges and opens the files; nothing has changed yet. All but `options` must stay.
  // Errors: those of BlockReader::create.
  static Result<std::unique_ptr<Loader>> create(Exchange& exchange,
                                                const checkpoint::Checkpoint& checkpoint,
                                                std::span<const UnitState> units,
                                                const Matching& matching,
                                                const std::shared_ptr<checkpoint::Staging>& staging,
                                                Options options);

  // Gives the next unit its states; an update of it is open. In the order of the units. Errors name
  // the tensor.
  Status load_next();
  uint64_t bytes_read() const { return reader_ ? reader_->bytes_read() : 0; }

 private:
  // The source of elements of a piece: a range of the reader.
  struct Source {
    const checkpoint::Tensor* tensor;
    uint64_t at;  // element of the piece
    uint64_t count;
    uint64_t bytes;  // in the file
    int reader;      // the rank that scatters it
  };
  struct Piece {
    State state;
    Range range;
    std::vector<Source> sources;
    bool complete;               // every element of a param has a source
    bool shared;                 // local peers read it too
    std::vector<Range> by_rank;  // what each rank gets, if it is scattered
    std::vector<int> readers;    // ranks that scatter ranges of it, ascending
  };
  Loader(Exchange& exchange, std::span<const UnitState> units, const Matching& matching)
      : exchange_(exchange), units_(units), matching_(matching), pieces_(units.size()) {}
  bool scatters() const { return !readers_.empty(); }
  void plan();
  // The pieces of `all`; `replica` is whose residual they are.
  void plan_range(size_t unit, const State& state, const Range& all, uint64_t replica, bool shared);
  void add_sources(const SourceTensor& source, const ParamSpan& span, Piece* piece);
  // The blocks that local peers need: begins and ends of their ranges.
  std::vector<checkpoint::BlockPlace> edges_of_peers(uint64_t block_bytes) const;
  std::vector<Range> ranges_by_rank(const UnitState& unit, const State& state, uint64_t replica);
  // Copies the elements that this rank reads to values_.
  Status read(const Piece& piece);
  Status read_source(const Source& source, std::byte* into);
  // Writes those of `values`, which are in `range`, that have a source.
  Status write(const UnitState& unit, const Piece& piece, const Range& range,
               const std::byte* values);
  Status scatter(const UnitState& unit, const Piece& piece);
  // Sends the elements that `reader` has of the piece. `received` gets those of this rank's range.
  Status scatter_from(int reader, const Piece& piece, std::vector<std::byte>* received);

  Exchange& exchange_;
  std::span<const UnitState> units_;
  const Matching& matching_;
  std::vector<int> readers_;  // Options::readers
  std::vector<checkpoint::WantedRange> wanted_;
  std::vector<std::vector<Piece>> pieces_;           // by unit
  std::unique_ptr<checkpoint::BlockReader> reader_;  // null: nothing is read here
  size_t next_ = 0;
  std::vector<std::byte> values_;  // of the piece that was read last
  std::vector<std::byte> raw_;     // of a source whose dtype is not the state's
};

}  // namespace meron

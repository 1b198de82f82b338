// SPDX-License-Identifier: Apache-2.0
// Which rank writes which pieces of which states, in which order. Each rank computes its own files
// alone, and rank 0 those of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "saving/given.h"
#include "saving/names.h"
#include "state/unit_state.h"

namespace meron {

// One rank's slice of one state of one param, or of a tensor of the caller.
struct SavedPiece {
  const UnitState* unit = nullptr;  // null: `given`
  State state = {};
  const Param* param = nullptr;
  Range range = {};    // of the flat
  uint64_t first = 0;  // element of the param or tensor
  const GivenTensor* given = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // in the file
};

struct SavedFile {
  std::string name;
  std::string head;  // up to the first piece
  std::vector<SavedPiece> pieces;
  uint64_t bytes = 0;
};

class SaveLayout {
 public:
  struct Options {
    bool values_only = false;
    bool skip_frozen = false;
    bool some_units = false;  // some are left out
    SavedNames names = {};
  };
  // The units of all ranks, which are those of the world, and the caller's tensors, by rank:
  // files() of a rank needs those of that rank. Both must stay.
  SaveLayout(std::span<const UnitState> units, std::span<const std::vector<GivenTensor>> given,
             Options options)
      : units_(units), given_(given), options_(std::move(options)) {}

  // MERON_E_DUPLICATE for a tensor of the caller's that a unit saves too.
  Status check() const;
  // A rank's files, of values first; an empty one is left out. `id`: Manifest::id.
  Result<std::vector<SavedFile>> files(uint32_t rank, const std::string& id) const;
  // Files and tensors of the manifest, without checksums, from files() of all ranks.
  Status describe(std::span<const std::vector<SavedFile>> files,
                  checkpoint::Manifest* manifest) const;

 private:
  bool saves(const UnitState& unit, const State& state) const;
  bool saves(const GivenTensor& tensor) const;
  std::vector<SavedPiece> pieces_of(uint32_t rank, bool values) const;
  const std::string& name_of_piece(const SavedPiece& piece) const;
  Result<SavedFile> file_of(uint32_t rank, bool values, const std::string& id) const;

  std::span<const UnitState> units_;
  std::span<const std::vector<GivenTensor>> given_;
  Options options_;
};

// As safetensors names it.
std::string_view dtype_text(DType dtype);

}  // namespace meron

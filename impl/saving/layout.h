// SPDX-License-Identifier: Apache-2.0
// Which rank writes which pieces of which states, in which order: the same on every rank, without
// a word between them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "state/unit_state.h"

namespace meron {

// A tensor of the caller's own, which rank 0 writes.
struct ExtraTensor {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<uint64_t> shape;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
};

// One rank's part of one state of one param, or a tensor of the caller's.
struct SavedPiece {
  const UnitState* unit = nullptr;  // null: `extra`
  State state = {};
  const Param* param = nullptr;
  Range range = {};    // of the flat
  uint64_t first = 0;  // element of the param
  const ExtraTensor* extra = nullptr;
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
  };
  // The units of all ranks, which are those of the world. `units` and `extras` must stay.
  SaveLayout(std::span<const UnitState> units, std::span<const ExtraTensor> extras, uint32_t world,
             Options options)
      : units_(units), extras_(extras), world_(world), options_(options) {}

  // A rank's files, of values first; an empty one is left out. `id`: Manifest::id. MERON_E_ARGUMENT
  // for extra tensors that a file cannot name.
  Result<std::vector<SavedFile>> files(uint32_t rank, const std::string& id) const;
  // Files and tensors of the manifest, without checksums, from files() of all ranks.
  Status describe(std::span<const std::vector<SavedFile>> files,
                  checkpoint::Manifest* manifest) const;

 private:
  std::vector<SavedPiece> pieces_of(uint32_t rank, bool values) const;
  Result<SavedFile> file_of(uint32_t rank, bool values, const std::string& id) const;

  std::span<const UnitState> units_;
  std::span<const ExtraTensor> extras_;
  uint32_t world_;
  Options options_;
};

// As safetensors names it.
std::string_view dtype_text(DType dtype);

}  // namespace meron

// SPDX-License-Identifier: Apache-2.0
#include "saving/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "checkpoint/piece_name.h"
#include "checkpoint/safetensors.h"

namespace meron {
namespace {

std::string kind_of(const SavedPiece& piece, uint32_t rank) {
  if (piece.unit == nullptr) return piece.given->kind;
  if (piece.state.kind != StateKind::residual) return std::string(name_of(piece.state.kind));
  const auto replica = rank / piece.unit->unit().axes().mesh.shards;
  return fmt::format("{}.{}", name_of(piece.state.kind), replica);
}

uint64_t count_of(const SavedPiece& piece) {
  return piece.unit != nullptr ? piece.range.size() : piece.given->count;
}

const std::vector<uint64_t>& shape_of(const SavedPiece& piece) {
  return piece.unit != nullptr ? piece.param->desc.shape : piece.given->shape;
}

std::string dtype_of(const SavedPiece& piece) {
  return piece.unit != nullptr ? std::string(dtype_text(piece.state.dtype)) : piece.given->dtype;
}

}  // namespace

std::string_view dtype_text(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::bf16:
      return "BF16";
    case DType::f16:
      return "F16";
  }
  return "F32";
}

bool SaveLayout::saves(const UnitState& unit, const State& state) const {
  if (options_.values_only && state.kind != StateKind::values) return false;
  return !options_.skip_frozen || unit.unit().flats()[state.flat].desc.trainable;
}

bool SaveLayout::saves(const GivenTensor& tensor) const {
  return !options_.values_only || is_kept_by_values_only(tensor);
}

Status SaveLayout::check() const {
  std::map<std::pair<std::string_view, std::string_view>, size_t> ranks;  // kind, name
  for (size_t rank = 0; rank < given_.size(); ++rank) {
    for (const GivenTensor& tensor : given_[rank]) {
      if (saves(tensor)) ranks.try_emplace({tensor.kind, tensor.name}, rank);
    }
  }
  if (ranks.empty()) return Ok{};
  for (const UnitState& unit : units_) {
    for (const State& state : unit.states()) {
      if (!saves(unit, state)) continue;
      for (const auto& param : unit.unit().params()) {
        if (param->place.flat != state.flat || options_.names.left_out(*param)) continue;
        const auto taken = ranks.find({name_of(state.kind), options_.names.of(*param)});
        if (taken == ranks.end()) continue;
        return Error(MERON_E_DUPLICATE,
                     fmt::format("{} of '{}' is given by rank {}, and unit '{}' saves it too",
                                 name_of(state.kind), taken->first.second, taken->second,
                                 unit.unit().name()),
                     "leave out what units and their optimizers hold")
            .on(std::string(taken->first.second));
      }
    }
  }
  return Ok{};
}

// Wide elements first, so that every piece begins at a multiple of its element's size.
std::vector<SavedPiece> SaveLayout::pieces_of(uint32_t rank, bool values) const {
  std::vector<SavedPiece> pieces;
  for (const UnitState& unit : units_) {
    for (const State& state : unit.states()) {
      if ((state.kind == StateKind::values) != values || !saves(unit, state)) continue;
      const Range range = unit.saved(state, static_cast<int>(rank));
      for (const ParamSpan& span : unit.spans(state, range)) {
        if (options_.names.left_out(*span.param)) continue;
        const uint64_t begin = range.begin + span.offset;
        pieces.push_back({.unit = &unit,
                          .state = state,
                          .param = span.param,
                          .range = {begin, begin + span.count},
                          .first = span.first,
                          .bytes = span.count * size_of(state.dtype)});
      }
      // Empty tensors have a name all the same.
      for (const auto& param : unit.unit().params()) {
        if (rank != 0 || param->count > 0 || param->place.flat != state.flat) continue;
        if (options_.names.left_out(*param)) continue;
        pieces.push_back({.unit = &unit, .state = state, .param = param.get()});
      }
    }
  }
  std::set<std::pair<std::string_view, std::string_view>> named;  // tensors without elements
  for (const GivenTensor& tensor : given_[rank]) {
    if ((tensor.kind == "values") != values || !saves(tensor)) continue;
    // Empty slices are left out, except one for the name of an empty tensor.
    if (tensor.count == 0 &&
        (tensor.elements() > 0 || !named.insert({tensor.kind, tensor.name}).second)) {
      continue;
    }
    pieces.push_back({.first = tensor.begin, .given = &tensor, .bytes = tensor.bytes()});
  }
  const auto width = [](const SavedPiece& piece) {
    if (piece.unit != nullptr) return static_cast<uint32_t>(size_of(piece.state.dtype));
    return checkpoint::element_bytes(piece.given->dtype);
  };
  std::stable_sort(pieces.begin(), pieces.end(),
                   [&](const SavedPiece& a, const SavedPiece& b) { return width(a) > width(b); });
  return pieces;
}

const std::string& SaveLayout::name_of_piece(const SavedPiece& piece) const {
  return piece.unit != nullptr ? options_.names.of(*piece.param) : piece.given->name;
}

Result<SavedFile> SaveLayout::file_of(uint32_t rank, bool values, const std::string& id) const {
  SavedFile file;
  file.name = fmt::format("{}-{:05}-of-{:05}.safetensors", values ? "values" : "state", rank,
                          given_.size());
  file.pieces = pieces_of(rank, values);
  if (file.pieces.empty()) return file;
  std::vector<SafetensorsEntry> entries;
  uint64_t at = 0;
  for (const SavedPiece& piece : file.pieces) {
    SafetensorsEntry entry;
    const std::string kind = kind_of(piece, rank);
    const uint64_t count = count_of(piece);
    const bool complete =
        piece.unit != nullptr ? count == piece.param->count : piece.given->complete();
    entry.name = checkpoint::piece_name(kind, name_of_piece(piece), piece.first,
                                        piece.first + count, complete);
    entry.dtype = dtype_of(piece);
    entry.shape = complete ? shape_of(piece) : std::vector<uint64_t>{count};
    entry.begin = at;
    entry.end = at += piece.bytes;
    entries.push_back(std::move(entry));
  }
  MERON_ASSIGN(file.head, checkpoint::compose_safetensors(entries, checkpoint::file_metadata(id)));
  for (size_t i = 0; i < entries.size(); ++i) {
    file.pieces[i].offset = file.head.size() + entries[i].begin;
  }
  file.bytes = file.head.size() + at;
  return file;
}

Result<std::vector<SavedFile>> SaveLayout::files(uint32_t rank, const std::string& id) const {
  std::vector<SavedFile> files;
  for (const bool values : {true, false}) {
    MERON_ASSIGN(SavedFile file, file_of(rank, values, id));
    if (!file.pieces.empty()) files.push_back(std::move(file));
  }
  return files;
}

Status SaveLayout::describe(std::span<const std::vector<SavedFile>> files,
                            checkpoint::Manifest* manifest) const {
  std::map<std::pair<std::string, std::string>, size_t> index;  // kind, name
  for (size_t rank = 0; rank < files.size(); ++rank) {
    for (const SavedFile& file : files[rank]) {
      const auto number = static_cast<uint32_t>(manifest->files.size());
      manifest->files.push_back(
          {.name = file.name, .rank = static_cast<uint32_t>(rank), .bytes = file.bytes, .crc = {}});
      for (const SavedPiece& piece : file.pieces) {
        const std::string kind = kind_of(piece, static_cast<uint32_t>(rank));
        const auto [at, added] =
            index.try_emplace({kind, name_of_piece(piece)}, manifest->tensors.size());
        if (added) {
          manifest->tensors.push_back({.name = name_of_piece(piece),
                                       .kind = kind,
                                       .dtype = dtype_of(piece),
                                       .shape = shape_of(piece),
                                       .pieces = {}});
        }
        const uint64_t count = count_of(piece);
        if (count == 0) continue;
        manifest->tensors[at->second].pieces.push_back(
            {.file = number, .begin = piece.first, .count = count, .offset = piece.offset});
      }
    }
  }
  for (checkpoint::Tensor& tensor : manifest->tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return Ok{};
}

}  // namespace meron
